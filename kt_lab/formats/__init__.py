"""Other tuners' files: Kernel Tuner caches and T4 results, to landscapes and back.

    landscape = read_cache("A100.json.gz", restrictions=conditions("convolution.json"))
    write_t4(kt_lab.load_landscape("softmax/4096x640"), "softmax_T4.json.gz")

What is read is data: nothing in it is executed, and what breaks a law is a LandscapeError or a
SpaceError. What is written replaces its target in one step. Files that kt_lab wrote say under its
name what Kernel Tuner has no field for, so that reading them gives back every sample, visit and
status, the default and the protocol. What no such file holds is lost: which configs are one
binary, what the parameters mean, the shape's extents and dtype, the seconds of a cache flush.
"""

from kt_lab.formats.axes import conditions
from kt_lab.formats.cache import read_cache, write_cache
from kt_lab.formats.t4 import read_t4, write_t4

__all__ = ["conditions", "read_cache", "read_t4", "write_cache", "write_t4"]

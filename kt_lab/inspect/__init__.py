"""Offline inspection: what every config compiles to on GPUs that are not there.

>>> from kt_lab.inspect import inspect_space
>>> found = inspect_space(subject("softmax/4096x640"), space, target="gfx942")
>>> smaller = space.only(found.keep(max_spill_bytes=64))
"""

from kt_lab.inspect.compiled import inspect_space
from kt_lab.inspect.difference import diff
from kt_lab.inspect.inspection import Inspection
from kt_lab.inspect.targets import TARGETS, Target, get_target

__all__ = ["TARGETS", "Inspection", "Target", "diff", "get_target", "inspect_space"]

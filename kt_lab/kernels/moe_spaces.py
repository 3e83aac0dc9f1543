"""Named spaces of the FP8 quantisers: what torchao published, by architecture.

A space is asked for by its name and an architecture, never by how something was built. On an
architecture that is not listed there is nothing to tune: every name gives the one config that
was in use before anybody tuned.

Published are the values of tiles, num_warps and num_stages; the rest of a config is that of the
default. Names: "original", the single config; "pr3952_first", the space that pull request 3952
began with; "pr3952", as merged; "pr3972", "pr4069" and "pr4113", later ones of the jagged
kernels; "published", where there was only one; with "_acq_rel", the same with the fenced atomics
of before pull request 3945; "wide", everything here.
"""

import math
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from kt_lab.errors import UnknownName
from kt_lab.kernels import get_kernel
from kt_lab.space import ParameterSpace
from kt_lab.trial import Config
from kt_lab.workload import Workload

ARCHITECTURES = ("sm_90", "gfx942", "gfx90a")
_LDS_BYTES = 64 * 1024  # shared memory of a work-group on gfx942 and gfx90a

_WEIGHTS = ("BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
_JAGGED = ("BLOCK", "BLOCK_ITER", "num_warps", "num_stages")


def _all(names: tuple[str, ...], *values: tuple[int, ...]) -> tuple[Mapping[str, int], ...]:
    return tuple(dict(zip(names, chosen, strict=True)) for chosen in product(*values))


def _listed(names: tuple[str, ...], *rows: tuple[int, ...]) -> tuple[Mapping[str, int], ...]:
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


_PAIR = {
    "original": _listed(_WEIGHTS, (128, 128, 4, 4)),
    "pr3952_first": _all(_WEIGHTS, (64, 128), (128,), (4, 8), (2, 4)),
    "pr3952": _all(_WEIGHTS, (64, 128, 256), (64, 128), (4, 8), (2, 4)),
}
_JAGGED_SPACES = {
    "original": _listed(_JAGGED, (32, 128, 4, 3)),
    "pr3952": _all(_JAGGED, (32, 64), (64, 128), (4, 8), (2, 3)),
    "pr3972": _listed(_JAGGED, (128, 128, 8, 2), (128, 256, 8, 2), (256, 128, 8, 2)),
    "pr4069": _listed(_JAGGED, (32, 128, 4, 3)),
    "pr4113": _all(_JAGGED, (32, 64, 128), (64, 128, 256), (4, 8), (2, 3)),
}
PUBLISHED: Mapping[str, Mapping[str, tuple[Mapping[str, Any], ...]]] = {
    "moe_weights_atomic": _PAIR
    | {
        f"{name}_acq_rel": tuple(row | {"SEM": "acq_rel"} for row in rows)
        for name, rows in _PAIR.items()
    },
    "moe_weights_cast": _PAIR,
    "moe_weights_reduction": {
        "original": _listed(_WEIGHTS, (64, 128, 8, 6)),
        "pr3952_first": _all(_WEIGHTS, (32, 64), (128,), (4, 8), (3, 6)),
        "pr3952": _all(_WEIGHTS, (32, 64, 128), (64, 128), (4, 8), (2, 4, 6)),
    },
    "jagged_rowwise": _JAGGED_SPACES,
    "jagged_colwise": _JAGGED_SPACES,
    "moe_weights_colwise": {
        "original": _listed(("BLOCK_N", "BLOCK_K", "num_warps"), (64, 128, 4)),
        "published": _all(("BLOCK_N", "BLOCK_K", "num_warps"), (64, 128), (128, 256), (4, 8)),
    },
    "blockwise_quantise": {
        "original": _listed(("BLOCK_M", "num_warps", "num_stages"), (32, 4, 4)),
        "published": _all(
            ("BLOCK_M", "num_warps", "num_stages"),
            (2, 16, 32, 64, 128),
            (2, 4, 8),
            (2, 4, 6),
        ),
    },
}


def names(kernel: str) -> tuple[str, ...]:
    """Returns the names of a kernel's spaces, the original first, the widest last."""
    if kernel not in PUBLISHED:
        raise UnknownName("kernel with published spaces", kernel, PUBLISHED)
    return (*PUBLISHED[kernel], "wide")


@cache
def published(kernel: str, name: str) -> tuple[Config, ...]:
    """Returns the configs of a published space, in the order of its lists.

    Args:
        kernel: Name of the kernel.
        name: One of `names(kernel)` but "wide".

    Raises:
        UnknownName: The kernel or the space is not known.
    """
    names(kernel)
    if name not in PUBLISHED[kernel]:
        raise UnknownName(f"published space of {kernel}", name, PUBLISHED[kernel])
    known = get_kernel(kernel)
    default = known.space(known.workloads[0]).default
    return tuple(Config({**default, **row}) for row in PUBLISHED[kernel][name])


def space_for(workload: Workload, *, arch: str, name: str = "wide") -> ParameterSpace:
    """Returns a named space of a workload on an architecture.

    Args:
        workload: Of one of the kernels here.
        arch: As its vendor's compiler calls it ("sm_90", "gfx942"); on one that is not in
            ARCHITECTURES every name gives the original config alone.
        name: One of `names(workload.kernel)`.

    Raises:
        UnknownName: The kernel or the space is not known.
    """
    if name not in names(workload.kernel):
        raise UnknownName(f"space of {workload.kernel}", name, names(workload.kernel))
    wide = get_kernel(workload.kernel).space(workload)
    if arch not in ARCHITECTURES:
        name = "original"
    if name != "wide":
        return wide.only(wide.rows(published(workload.kernel, name)))
    rows = wide.enumerate()
    if arch.startswith("gfx"):
        rows = rows[np.asarray([_staged(c, workload) <= _LDS_BYTES for c in wide.configs(rows)])]
    return wide.only(rows)


def _staged(config: Mapping[str, Any], workload: Workload) -> int:
    """Returns the bytes of the tiles that a config has in flight in shared memory."""
    if not config.get("PIPELINED", config.get("TRIPS", 1) > 1):
        return 0
    # blockwise_quantise has no second side to tune: its blocks have 128 columns.
    sides = [v for k, v in config.items() if k.startswith("BLOCK")] + [128] * ("BLOCK_M" in config)
    return config["num_stages"] * math.prod(sides) * (4 if workload.dtype == "float32" else 2)

"""The matrix product in a space ten times as large, with a space of the usual size inside it.

Fixing the added axes at their first values leaves the tile, warps and stages: what grows from the
inner space to the outer one is the number of axes, not that of their values.
"""

import numpy as np

from kt_lab.kernels.gemm import (
    EPILOGUES,
    GROUPS_NEED_COLUMNS,
    LOADS,
    SCHEDULES,
    bytes_moved,
    cdiv,
    constants,
    describable,
    flops,
    halves_law,
    persistent_laws,
    tile_laws,
)
from kt_lab.kernels.matmul import KERNEL as MATMUL
from kt_lab.space import Choice, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

# The axes that the outer space adds, and where the inner space lies along them.
INNER = {"GROUP_M": 1, "SCHEDULE": "tiles", "LOADS": "pointers", "EPILOGUE": "whole"}


def space(workload: Workload) -> ParameterSpace:
    """Returns the outer space; the parameters mean what they mean in kernel matmul's.

    Tiles from 16 x 16 up and a single warp are what a careless search would try, too. Where rows
    are no multiples of 16 bytes, LOADS has the one value "pointers".
    """
    through = describable(workload)
    parameters = (
        PowerOfTwo("BLOCK_M", 16, 256, role="tile"),
        PowerOfTwo("BLOCK_N", 16, 256, role="tile"),
        PowerOfTwo("BLOCK_K", 32, 256, role="tile"),
        Choice("GROUP_M", (1, 8)),
        Choice("SCHEDULE", SCHEDULES),
        Choice("LOADS", LOADS if through else LOADS[:1]),
        Choice("EPILOGUE", EPILOGUES),
        PowerOfTwo("num_warps", 1, 8, role="warps"),
        Integer("num_stages", 1, 5, role="stages"),
    )
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4}
    tile["num_stages"] = min(cdiv(workload.extents["K"], 32), 3)
    return ParameterSpace(
        parameters,
        constraints=(
            *tile_laws(fewest=16),
            GROUPS_NEED_COLUMNS,
            *persistent_laws(4096),
            halves_law(64),
        ),
        default=INNER | tile,
        constants=constants(workload),
    )


def inner(outer: ParameterSpace) -> ParameterSpace:
    """Returns the members of the outer space whose added axes are as INNER fixes them."""
    rows = outer.enumerate()
    kept = np.ones(len(rows), dtype=bool)
    for parameter, column in zip(outer.parameters, rows.T, strict=True):
        if parameter.name in INNER:
            kept &= column == parameter.index(INNER[parameter.name])
    return outer.only(rows[kept])


KERNEL = Kernel(
    name="matmul_nested",
    description="A[M, K] @ B[K, N] in a space of ten thousand configs around one of a thousand",
    workloads=(
        Workload(
            "matmul_nested",
            "2048x2048x2048",
            {"M": 2048, "K": 2048, "N": 2048},
            "bfloat16",
            "square and quick to time: two waves of 128 x 128 tiles",
        ),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    rtol=MATMUL.rtol,  # the same kernel
    atol=MATMUL.atol,
)

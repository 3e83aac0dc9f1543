"""Scales of expert weights by atomic minimum: the first of two launches, moe_weights_cast next.

The pair is two kernels here because a launch is one and because they were tuned apart: each has
its own tile and its own key. Times of the pair are the sum of both.
"""

from kt_lab.kernels import moe_weights
from kt_lab.parameters import Ordered
from kt_lab.space import Choice, Constraint, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_PUBLISHED = (
    "BLOCK_N in (64, 128, 256) and BLOCK_K in (64, 128) and num_warps in (4, 8) "
    "and FIRST == 'experts'"
)


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of scales[e, k] = min over n of the scale of |w[e, n, k]|.

    A program reads TRIPS tiles of BLOCK_N x BLOCK_K, one after the other, num_stages in flight,
    and joins its scales to the others' atomically, once, with semantics SEM. FIRST says what
    neighbouring programs differ in. The default is torchao's single config.
    """
    parameters = (
        PowerOfTwo("BLOCK_N", 16, 512, role="tile"),
        PowerOfTwo("BLOCK_K", 64, 512, role="tile"),
        PowerOfTwo("TRIPS", 1, 8),
        Choice("FIRST", ("experts", "columns", "rows")),
        Choice("SEM", ("relaxed", "acq_rel")),
        PowerOfTwo("num_warps", 2, 16, role="warps"),
        Ordered("num_stages", (1, 2, 3, 4), role="stages"),
    )
    default = {
        "BLOCK_N": 128,
        "BLOCK_K": 128,
        "TRIPS": 1,
        "FIRST": "experts",
        "SEM": "relaxed",
        "num_warps": 4,
        "num_stages": 4,
    }
    return ParameterSpace(
        parameters,
        constraints=_laws(),
        default=default,
        constants=moe_weights.constants(workload),
    )


def _laws() -> tuple[Constraint, ...]:
    return (
        *moe_weights.tile_laws(
            most=128,
            published="BLOCK_N == 256 and BLOCK_K == 128",
            staged="(0 if TRIPS == 1 else num_stages)",
        ),
        *moe_weights.trip_laws(_PUBLISHED),
        Constraint(
            "fences",
            "SEM == 'relaxed' or TRIPS == 1 and FIRST == 'experts'",
            "acquire and release are there to be compared in the published order of programs",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: the weights once, and the scales."""
    each = moe_weights.width(workload)
    return each * moe_weights.weights(workload) + moe_weights.scale_bytes(workload)


KERNEL = Kernel(
    name="moe_weights_atomic",
    description="scales of w[E, N, K] over N, powers of two, by atomic minimum; not the cast",
    workloads=moe_weights.shipped("moe_weights_atomic"),
    space=space,
    bytes_moved=bytes_moved,
    flops=moe_weights.weights,
    # Maxima are exact, and the rest is one formula: every config must give the same bits.
    rtol=0.0,
    atol=0.0,
)

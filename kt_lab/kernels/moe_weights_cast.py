"""Cast of expert weights to transposed FP8: the second of two launches, after the scales."""

from kt_lab.kernels import moe_weights
from kt_lab.parameters import Ordered
from kt_lab.space import Choice, Constraint, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_PUBLISHED = (
    "BLOCK_N in (64, 128, 256) and BLOCK_K in (64, 128) and num_warps in (4, 8) "
    "and FIRST == 'experts' and EVICTION == ''"
)


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of out[e, k, n] = e4m3(w[e, n, k] * scales[e, k]).

    A program casts TRIPS tiles of BLOCK_N x BLOCK_K, one after the other, num_stages in flight.
    EVICTION is the cache hint of what is written; FIRST says what neighbouring programs differ
    in. The default is torchao's single config.
    """
    parameters = (
        PowerOfTwo("BLOCK_N", 32, 512, role="tile"),
        PowerOfTwo("BLOCK_K", 16, 256, role="tile"),
        PowerOfTwo("TRIPS", 1, 4),
        Choice("FIRST", ("experts", "columns", "rows")),
        Choice("EVICTION", ("", "evict_first")),
        PowerOfTwo("num_warps", 2, 16, role="warps"),
        Ordered("num_stages", (1, 2, 3, 4), role="stages"),
    )
    default = {
        "BLOCK_N": 128,
        "BLOCK_K": 128,
        "TRIPS": 1,
        "FIRST": "experts",
        "EVICTION": "",
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
            # The tile is turned around in shared memory as well.
            staged="(0 if TRIPS == 1 else num_stages)",
        ),
        *moe_weights.trip_laws(_PUBLISHED),
        Constraint(
            "hints_without_a_loop",
            "EVICTION == '' or TRIPS == 1 and FIRST != 'experts'",
            "hints are tried where a program writes one tile",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: the weights read, a byte each written, and the scales."""
    each = moe_weights.width(workload) + 1
    return each * moe_weights.weights(workload) + moe_weights.scale_bytes(workload)


KERNEL = Kernel(
    name="moe_weights_cast",
    description="w[E, N, K] times scales[E, K], transposed to out[E, K, N] in e4m3",
    workloads=moe_weights.shipped("moe_weights_cast"),
    space=space,
    bytes_moved=bytes_moved,
    flops=moe_weights.weights,
    # One product and one cast, to the nearest: every config must give the same bits.
    rtol=0.0,
    atol=0.0,
)

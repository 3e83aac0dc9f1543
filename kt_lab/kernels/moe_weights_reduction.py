"""Expert weights to transposed FP8 with a scale per row, in one launch that reads them twice."""

from kt_lab.kernels import moe_weights
from kt_lab.parameters import Ordered
from kt_lab.space import Choice, Constraint, Flag, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_PUBLISHED = (
    "BLOCK_N in (32, 64, 128) and BLOCK_K in (64, 128) and num_warps in (4, 8) "
    "and FIRST == 'experts' and not ONCE and not BACKWARD"
)


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of scales[e, k] and out[e, k, n] = e4m3(w[e, n, k] * scales[e, k]).

    A program reads BLOCK_K columns of w[e] in steps of BLOCK_N rows, and again to cast them:
    from the end if BACKWARD. If ONCE, maxima are joined across threads at the end of the first
    reading, otherwise at each step. If PIPELINED, num_stages steps are in flight; otherwise
    num_stages does nothing, as in torchao. FIRST says what neighbouring programs differ in. The
    default is torchao's single config.
    """
    parameters = (
        PowerOfTwo("BLOCK_N", 16, 256, role="tile"),
        PowerOfTwo("BLOCK_K", 16, 128, role="tile"),
        Flag("PIPELINED"),
        Flag("ONCE"),
        Flag("BACKWARD"),
        Choice("FIRST", ("experts", "columns")),
        PowerOfTwo("num_warps", 2, 16, role="warps"),
        Ordered("num_stages", (2, 3, 4, 6), role="stages"),
    )
    default = {
        "BLOCK_N": 64,
        "BLOCK_K": 128,
        "PIPELINED": False,
        "ONCE": False,
        "BACKWARD": False,
        "FIRST": "experts",
        "num_warps": 8,
        "num_stages": 6,
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
            most=64,
            published="BLOCK_N == 128 and BLOCK_K == 128 and num_warps == 4",
            staged="(num_stages if PIPELINED else 0)",
        ),
        Constraint(
            "kept_maxima_fit",
            "not ONCE or BLOCK_N * BLOCK_K <= 32 * 32 * num_warps",
            "a thread may keep at most 32 maxima beside its weights",
        ),
        Constraint(
            "stages_in_flight",
            "not PIPELINED or num_stages in (2, 4)",
            "2 or 4 steps are in flight",
        ),
        Constraint(
            "idle_stages",
            f"PIPELINED or num_stages == 6 or {_PUBLISHED}",
            "num_stages does nothing here; published configs differ in it all the same",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: the weights read twice, a byte each written, and the scales.

    What a program reads between its two readings of a weight exceeds the caches at the shapes
    that matter, so 5 bytes a weight is what torchao counts too.
    """
    each = 2 * moe_weights.width(workload) + 1
    return each * moe_weights.weights(workload) + moe_weights.scale_bytes(workload)


def flops(workload: Workload) -> int:
    """Returns operations: a comparison and a product per weight."""
    return 2 * moe_weights.weights(workload)


KERNEL = Kernel(
    name="moe_weights_reduction",
    description="scales of w[E, N, K] over N, powers of two, and their transposed e4m3 cast",
    workloads=moe_weights.shipped("moe_weights_reduction"),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Maxima are exact, and the rest is one formula: every config must give the same bits.
    rtol=0.0,
    atol=0.0,
)

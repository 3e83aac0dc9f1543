"""Expert weights to FP8 with a scale per column, in the layout that they have."""

from kt_lab.kernels import moe_weights
from kt_lab.parameters import Ordered
from kt_lab.space import Choice, Constraint, Flag, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of scales[e, n] and out[e, n, k] = e4m3(w[e, n, k] * scales[e, n]).

    A program reads BLOCK_N columns (of the view (E, K, N), K contiguous) in steps of BLOCK_K,
    and again to cast them: from the end if BACKWARD. If ONCE, maxima are joined across threads
    at the end of the first reading, otherwise at each step. If PIPELINED, num_stages steps are in
    flight; otherwise num_stages does nothing. FIRST says whether neighbouring programs differ in
    experts or in columns. The default is the first of torchao's 8; it never had a single config.
    """
    parameters = (
        PowerOfTwo("BLOCK_N", 1, 128, role="tile"),
        PowerOfTwo("BLOCK_K", 64, 1024, role="tile"),
        Flag("PIPELINED"),
        Flag("ONCE"),
        Flag("BACKWARD"),
        Choice("FIRST", ("experts", "columns")),
        PowerOfTwo("num_warps", 2, 16, role="warps"),
        Ordered("num_stages", (2, 3, 4), role="stages"),
    )
    default = {
        "BLOCK_N": 64,
        "BLOCK_K": 128,
        "PIPELINED": False,
        "ONCE": False,
        "BACKWARD": False,
        "FIRST": "experts",
        "num_warps": 4,
        "num_stages": 3,
    }
    return ParameterSpace(
        parameters,
        constraints=_laws(),
        default=default,
        constants=moe_weights.constants(workload),
    )


def _laws() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "tile_has_work",
            "BLOCK_N * BLOCK_K >= 8 * 32 * num_warps",
            "a tile needs at least 8 weights a thread",
        ),
        Constraint(
            "tile_fits",
            "BLOCK_N * BLOCK_K <= 32 * 32 * num_warps or num_warps in (4, 8) "
            "and BLOCK_N in (64, 128) and BLOCK_K in (128, 256) and not PIPELINED",
            "a tile may have at most 32 weights a thread, unless it was published",
        ),
        Constraint(
            "tile_exists",
            "BLOCK_K <= max(256, next_power_of_two(K))",
            "a tile may not be longer than a column, rounded up",
        ),
        Constraint(
            "kept_maxima_fit",
            "not ONCE or BLOCK_N * BLOCK_K <= 32 * 32 * num_warps",
            "a thread may keep at most 32 maxima beside its weights",
        ),
        Constraint(
            "experts_to_order",
            "FIRST == 'experts' or E > 1 and not (PIPELINED and BACKWARD)",
            "with one expert both orders are the same",
        ),
        Constraint(
            "stages_in_flight",
            "num_stages in (2, 4) if PIPELINED else num_stages == 3",
            "2 or 4 steps are in flight; without a pipeline num_stages does nothing",
        ),
        Constraint(
            "stages_fit",
            "not PIPELINED or num_stages * BLOCK_N * BLOCK_K * WIDTH "
            f"<= {moe_weights.SHARED_BYTES}",
            "the steps in flight must fit the shared memory of a program",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: the weights once, a byte each written, and the scales (E, N).

    A program that takes few columns finds them in the caches when it reads them again.
    """
    e, n = workload.extents["E"], workload.extents["N"]
    return (moe_weights.width(workload) + 1) * moe_weights.weights(workload) + 4 * e * n


def flops(workload: Workload) -> int:
    """Returns operations: a comparison and a product per weight."""
    return 2 * moe_weights.weights(workload)


KERNEL = Kernel(
    name="moe_weights_colwise",
    description="scales of w[E, N, K] over K, powers of two, and their e4m3 cast, as laid out",
    workloads=moe_weights.shipped("moe_weights_colwise"),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Maxima are exact, and the rest is one formula: every config must give the same bits.
    rtol=0.0,
    atol=0.0,
)

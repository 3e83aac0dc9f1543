"""Products of selected experts' 8-bit matrices with a vector: tiles, shares of rows, loads."""

from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def max_split(workload: Workload) -> int:
    """Returns the most programs that a row may be split over: SPLIT_K's upper bound."""
    return 8 if workload.extents["T"] * workload.extents["N"] <= 8192 else 4


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of W[idx] @ x with W[E, N, K] of int8 and T experts in idx.

    A program multiplies BLOCK_N rows of one expert, BLOCK_K columns a step, one of SPLIT_K shares
    of the columns. SUM keeps one partial sum per element of the tile and adds them at the end
    ("late") or adds up every tile at once ("early"). num_stages steps are in flight. Weights that
    the L2 cache could hold have a cache hint, EVICTION.
    """
    e, t, n, k = (workload.extents[name] for name in "ETNK")
    widest = min(max(_next_power_of_two(k), 256), 4096)
    small = t * n * k <= 2**25  # what is read may stay in the L2 cache, if it is asked to
    parameters = (
        PowerOfTwo("BLOCK_N", 1, min(_next_power_of_two(n), 32), role="tile"),
        PowerOfTwo("BLOCK_K", 512 if k > 8192 else 256, widest, role="tile"),
        PowerOfTwo("SPLIT_K", 1, max_split(workload)),
        Choice("SUM", ("late", "early")),
        *([Choice("EVICTION", ("", "evict_first"))] if small else []),
        PowerOfTwo("num_warps", 1, 8, role="warps"),
        Integer("num_stages", 1, 4, role="stages"),
    )
    default = {
        "BLOCK_N": 1,
        "BLOCK_K": min(widest, 1024),
        "SPLIT_K": 1,
        "SUM": "late",
        **({"EVICTION": ""} if small else {}),
        "num_warps": min(widest, 1024) // 256,
        "num_stages": 1,
    }
    return ParameterSpace(
        parameters,
        constraints=_constraints(min(_SMS, t * n)),
        default=default,
        constants={"E": e, "T": t, "N": n, "K": k},
    )


def _constraints(fewest: int) -> tuple[Constraint, ...]:
    trips = "cdiv(cdiv(K, BLOCK_K), SPLIT_K)"
    return (
        Constraint(
            "tile_has_work",
            "BLOCK_N * BLOCK_K >= 8 * 32 * num_warps",
            "a tile needs at least eight weights a thread",
        ),
        Constraint(
            "tile_fits",
            "BLOCK_N * BLOCK_K <= 64 * 32 * num_warps",
            "a tile may have at most 64 weights a thread",
        ),
        Constraint(
            "enough_programs",
            f"T * cdiv(N, BLOCK_N) * SPLIT_K >= {fewest}",
            f"the rows must be shared by at least {fewest} programs",
        ),
        Constraint(
            "splits_have_work",
            f"(SPLIT_K - 1) * {trips} < cdiv(K, BLOCK_K)",
            "every share of a row needs at least one step",
        ),
        Constraint(
            "stages_need_trips",
            f"num_stages == 1 or num_stages <= {trips}",
            "a share cannot be pipelined deeper than it has steps",
        ),
        Constraint(
            "early_needs_trips",
            f"SUM == 'late' or {trips} > 1",
            "a single step is added up once either way",
        ),
        Constraint(
            "stages_fit",
            f"(num_stages - 1) * (BLOCK_N + 2) * BLOCK_K <= {_SHARED_BYTES}",
            "the tiles in flight must fit the shared memory of a program",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: the chosen experts' int8 weights, bfloat16 vector and output, int64 idx."""
    t, n, k = (workload.extents[name] for name in "TNK")
    return t * n * k + 2 * k + 2 * t * n + 8 * t


def flops(workload: Workload) -> int:
    """Returns operations: one multiplication and one addition per chosen weight."""
    t, n, k = (workload.extents[name] for name in "TNK")
    return 2 * t * n * k


def _workload(e: int, t: int, n: int, k: int, source: str) -> Workload:
    extents = {"E": e, "T": t, "N": n, "K": k}
    return Workload("gather_gemv", f"{e}x{t}x{n}x{k}", extents, "bfloat16", source)


KERNEL = Kernel(
    name="gather_gemv",
    description="W[idx].to(bfloat16) @ x for int8 experts W[E, N, K], bfloat16 vector and output",
    workloads=(
        _workload(8, 2, 14336, 4096, "Mixtral-8x7B up projections of two experts, one token"),
        _workload(8, 2, 4096, 14336, "Mixtral-8x7B down projections of two experts, one token"),
        _workload(8, 2, 2048, 2048, "TritonBench gather_gemv, S = 2048"),
        _workload(128, 8, 1536, 2048, "Qwen3-30B-A3B gate and up projections of eight experts"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Products are exact in float32; sums of about 74 sqrt(K) = 9,000 at most are rounded in it
    # (2^-24) a few thousand times in any order, and may cancel: 0.1 covers that. One rounding to
    # bfloat16 is half a unit in the last place, 2^-8 of the value (a whole one, 2^-7, where a
    # conversion truncates, as Triton's interpreter does). A lost weight changes a sum by about 60.
    rtol=8e-3,
    atol=0.1,
)

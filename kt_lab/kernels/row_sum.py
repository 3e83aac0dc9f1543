"""Sums of rows: how a row is cut up over programs and steps, and how its parts are joined."""

from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_MAX_STEP = 128  # elements a thread and unrolled step: they fill half of its registers


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def max_split(workload: Workload) -> int:
    """Returns the most programs that a row may be split over: SPLIT's upper bound."""
    return min(1024, max(2, 2048 // _next_power_of_two(workload.extents["M"])))


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of the sums of the rows of x[M, N].

    A program adds up one of SPLIT shares of BLOCK_M rows in steps of BLOCK_N columns. SUM keeps
    one partial sum per element of the tile and adds them at the end ("late") or adds up every
    tile at once ("early"). JOIN adds the shares by atomics, or lets the last program to arrive
    do it. Loads are sped up by UNROLL steps at a time or by num_stages steps in flight.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    widest = min(max(_next_power_of_two(n), 256), 8192)
    tall = 1 if n >= 2**20 else 8 if m >= 4096 else 4
    parameters = (
        PowerOfTwo("BLOCK_M", 1, min(_next_power_of_two(m), tall), role="tile"),
        PowerOfTwo("BLOCK_N", min(256 if m >= 64 else 512, widest), widest, role="tile"),
        PowerOfTwo("SPLIT", 1, max_split(workload)),
        Choice("JOIN", ("last", "atomic")),
        Choice("SUM", ("late", "early")),
        PowerOfTwo("UNROLL", 1, 8 if n % 2 else 4),
        PowerOfTwo("num_warps", 2, 16, role="warps"),
        # Rows of an odd length start at odd elements: copies of 2 bytes cannot be pipelined.
        Integer("num_stages", 1, 1 if n % 2 else 4, role="stages"),
    )
    wide = min(widest, 1024)
    default = {
        "BLOCK_M": 1,
        "BLOCK_N": wide,
        "SPLIT": _default_split(m, n, wide, max_split(workload)),
        "JOIN": "last",
        "SUM": "late",
        "UNROLL": 1,
        "num_warps": max(2, wide // 256) if wide >= 512 else 2,
        "num_stages": 1,
    }
    programs = m * default["SPLIT"]
    return ParameterSpace(
        parameters,
        constraints=_constraints(min(_SMS, programs), ragged=n % 8 > 0),
        default=default,
        constants={"M": m, "N": n},
    )


def _default_split(m: int, n: int, wide: int, most: int) -> int:
    """Returns the smallest split that makes a wave of programs, if the row has as many steps."""
    steps = -(-n // wide)
    split = 1
    while m * split < _SMS and 2 * split <= min(most, steps):
        # Every part must have steps: parts of cdiv(steps, split) steps each, the last one too.
        if (2 * split - 1) * -(-steps // (2 * split)) >= steps:
            break
        split *= 2
    return split


def _constraints(fewest: int, *, ragged: bool) -> tuple[Constraint, ...]:
    trips = "cdiv(cdiv(N, BLOCK_N), SPLIT)"
    least = 4 if ragged else 8  # an odd row length has no wide loads to fill
    return (
        Constraint(
            "step_has_work",
            f"BLOCK_M * BLOCK_N >= {least} * 32 * num_warps or BLOCK_M == 1 and BLOCK_N <= 512 "
            "and num_warps == 2",
            f"a step needs at least {least} elements a thread",
        ),
        Constraint(
            "step_fits",
            f"BLOCK_M * BLOCK_N <= 64 * 32 * num_warps and "
            f"UNROLL * BLOCK_M * BLOCK_N <= {_MAX_STEP} * 32 * num_warps",
            f"a step may have at most 64 elements a thread, unrolled {_MAX_STEP}",
        ),
        Constraint(
            "enough_programs",
            f"cdiv(M, BLOCK_M) * SPLIT >= {fewest} or SPLIT * BLOCK_M == 1",
            f"the rows must be shared by at least {fewest} programs",
        ),
        Constraint(
            "splits_have_work",
            f"(SPLIT - 1) * {trips} < cdiv(N, BLOCK_N)",
            "every share of a row needs at least one step",
        ),
        Constraint(
            "join_needs_shares", "SPLIT > 1 or JOIN == 'last'", "a row in one piece is not joined"
        ),
        Constraint(
            "early_needs_rows",
            "SUM == 'late' or BLOCK_M > 1 or BLOCK_N > 1024",
            "adding up narrow tiles of one row at once would spend most of the time on it",
        ),
        Constraint(
            "unroll_or_stages",
            "UNROLL == 1 or num_stages == 1",
            "steps are unrolled or pipelined, not both",
        ),
        Constraint(
            "loads_need_trips",
            f"max(UNROLL, num_stages) == 1 or max(UNROLL, num_stages) <= {trips}",
            "there cannot be more steps in flight than a share has",
        ),
        Constraint(
            "stages_fit",
            f"(num_stages - 1) * BLOCK_M * BLOCK_N * 2 <= {_SHARED_BYTES}",
            "the tiles in flight must fit the shared memory of a program",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 elements and float32 sums, each once."""
    m, n = workload.extents["M"], workload.extents["N"]
    return 2 * m * n + 4 * m


def flops(workload: Workload) -> int:
    """Returns operations: one addition per element."""
    return workload.extents["M"] * workload.extents["N"]


def _workload(m: int, n: int, source: str) -> Workload:
    return Workload("row_sum", f"{m}x{n}", {"M": m, "N": n}, "bfloat16", source)


KERNEL = Kernel(
    name="row_sum",
    description="sums of the rows of x[M, N], bfloat16 in, float32 out and arithmetic",
    workloads=(
        _workload(32, 4_194_304, "SDXL VAE decoder: 32 groups of 4 channels of 1024 x 1024"),
        _workload(16384, 4096, "Llama-3-8B hidden states of 16,384 tokens"),
        _workload(1024, 50257, "GPT-2 vocabulary (50,257 entries: odd), 1,024 tokens"),
        _workload(1, 16_777_216, "one 4096 x 4096 weight of Llama-3-8B, as for a norm"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Standard normal numbers sum to some sqrt(N) = 4096 at most here, and may cancel to nothing,
    # so the tolerance is absolute: rounding 4096 in float32 errs by up to 2^-12 = 2.4e-4, and a
    # chain of 4,096 such additions by about 64 times that in the worst of orders, atomics'
    # included. One lost element changes a sum by about 1.
    rtol=1e-5,
    atol=0.03,
)

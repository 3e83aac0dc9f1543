"""Row softmax: how each row is cut up, kept or read twice, and spread over programs."""

from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_SHARED_BYTES = 256 * 1024  # L1 and shared memory together; a program may use 227 KiB of it
_MAX_TILE = 128  # tile elements a thread: as float32 they fill half of its 255 registers


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of a row softmax over x[M, N].

    BLOCK_M x BLOCK_N is the tile of one program. A row that fits its tile is read once and kept
    in registers; a longer one is read twice. WAVES = 0 launches one program per row block;
    otherwise WAVES programs per multiprocessor stride over the row blocks. EVICTION is the cache
    hint of the first reading.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    widest = min(max(_next_power_of_two(n), 128), 131072)
    narrowest = min(1024 if n > 4096 else 128, widest)
    parameters = (
        PowerOfTwo("BLOCK_M", 1, 32 if n <= 4096 else 16, role="tile"),
        PowerOfTwo("BLOCK_N", narrowest, widest, role="tile"),
        Choice("WAVES", (0, 1, 4, 8) if n <= 4096 else (0, 1, 4)),
        Choice("EVICTION", ("", "evict_first", "evict_last")),
        PowerOfTwo("num_warps", 1, 32, role="warps"),
        Integer("num_stages", 1, 4, role="stages"),
    )
    wide = min(widest, 8192)
    default = {
        "BLOCK_M": 1,
        "BLOCK_N": wide,
        "WAVES": 0,
        "EVICTION": "",
        "num_warps": min(max(wide // 1024, 1), 8),
        "num_stages": 1,
    }
    return ParameterSpace(
        parameters, constraints=_constraints(), default=default, constants={"M": m, "N": n}
    )


def _constraints() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "tile_has_work",
            "BLOCK_M * BLOCK_N >= 128 * num_warps",
            "a tile needs at least four elements a thread",
        ),
        Constraint(
            "tile_fits",
            f"BLOCK_M * BLOCK_N <= {_MAX_TILE} * 32 * num_warps",
            f"a tile may have at most {_MAX_TILE} elements a thread",
        ),
        Constraint(
            "stages_fit",
            f"(num_stages - 1) * BLOCK_M * BLOCK_N * 2 <= {_SHARED_BYTES}",
            "the tiles in flight must fit the shared memory of a multiprocessor",
        ),
        Constraint(
            "rows_exist",
            "BLOCK_M <= next_power_of_two(M)",
            "a tile may not have more rows than the tensor, rounded up",
        ),
        Constraint(
            "waves_stride",
            f"WAVES == 0 or WAVES * {_SMS} < cdiv(M, BLOCK_M)",
            "a persistent grid needs fewer programs than there are row blocks",
        ),
        Constraint(
            "stages_need_a_loop",
            "num_stages == 1 or WAVES > 0 or BLOCK_N < N",
            "without a loop there is nothing to pipeline",
        ),
        Constraint(
            "stages_need_trips",
            "BLOCK_N >= N or num_stages <= cdiv(N, BLOCK_N)",
            "a row cannot be pipelined deeper than it has blocks",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: float16 in and out, each once."""
    return 2 * 2 * workload.extents["M"] * workload.extents["N"]


def flops(workload: Workload) -> int:
    """Returns operations: maximum, subtraction, exponential, sum and division per element."""
    return 5 * workload.extents["M"] * workload.extents["N"]


def _workload(m: int, n: int, source: str) -> Workload:
    return Workload("softmax", f"{m}x{n}", {"M": m, "N": n}, "float16", source)


KERNEL = Kernel(
    name="softmax",
    description="softmax over the rows of x[M, N], float16 in and out, float32 arithmetic",
    workloads=(
        _workload(4096, 640, "TritonBench softmax, as in Helion pull request 1115"),
        _workload(65536, 512, "attention scores: 32 heads x 2048 queries, 512 keys"),
        _workload(8192, 8192, "Helion autotuner study, August 2026"),
        _workload(256, 128256, "Llama-3 vocabulary logits (128,256 entries), 256 tokens"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # float32 arithmetic rounded once to float16: half a unit in the last place is 2^-11 of the
    # value, plus ex2.approx and a longer sum; below 2^-14 float16 is subnormal, in steps of
    # 2^-24 = 6e-8.
    rtol=2e-3,
    atol=1e-7,
)

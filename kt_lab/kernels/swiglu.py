"""Gated activation silu(gate) * up: tiles, how many of them a program takes, in what order."""

from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_MAX_TILE = 64  # outputs a thread: as many gates and ups in float32 fill half of its registers


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of silu(x[:, :N]) * x[:, N:] over x[M, 2N].

    A program writes TRIPS tiles of BLOCK_M x BLOCK_N outputs, one after the other: neighbours
    (ORDER "blocked") or every so many as there are programs ("strided"). EVICTION is the cache
    hint of loads and stores alike: nothing is read twice. num_stages tiles are in flight.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    small = m * n <= 2**22  # a wave or two of work: small tiles, few trips
    widest = min(max(_next_power_of_two(n), 512), 2048 if small else 4096)
    parameters = (
        PowerOfTwo("BLOCK_M", 1, 16 if small else 4, role="tile"),
        PowerOfTwo("BLOCK_N", min(32 if small else 256, widest), widest, role="tile"),
        PowerOfTwo("TRIPS", 1, 4 if small else 8),
        Choice("ORDER", ("blocked", "strided")),
        Choice("EVICTION", ("", "evict_first")),
        PowerOfTwo("num_warps", 1 if small else 2, 8 if small else 16, role="warps"),
        Integer("num_stages", 1, 3, role="stages"),
    )
    wide = min(widest, 1024)
    default = {
        "BLOCK_M": 1,
        "BLOCK_N": wide,
        "TRIPS": 1,
        "ORDER": "blocked",
        "EVICTION": "",
        "num_warps": 1 if small else max(wide // 256, 2),
        "num_stages": 1,
    }
    fewest = min(_SMS // 2 if small else _SMS, m * -(-n // wide))
    return ParameterSpace(
        parameters,
        constraints=_constraints(fewest, least=2 if small else 8),
        default=default,
        constants={"M": m, "N": n},
    )


def _constraints(fewest: int, *, least: int) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "tile_has_work",
            f"BLOCK_M * BLOCK_N >= {least} * 32 * num_warps",
            f"a tile needs at least {least} outputs a thread",
        ),
        Constraint(
            "tile_fits",
            f"BLOCK_M * BLOCK_N <= {_MAX_TILE} * 32 * num_warps",
            f"a tile may have at most {_MAX_TILE} outputs a thread",
        ),
        Constraint(
            "rows_exist",
            "BLOCK_M <= next_power_of_two(M)",
            "a tile may not have more rows than the tensor, rounded up",
        ),
        Constraint(
            "enough_programs",
            f"cdiv(cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), TRIPS) >= {fewest}",
            f"the tiles must be shared by at least {fewest} programs",
        ),
        Constraint(
            "order_needs_trips",
            "TRIPS > 1 or ORDER == 'blocked'",
            "a single tile has no order",
        ),
        Constraint(
            "stages_need_trips",
            "num_stages == 1 or num_stages <= TRIPS",
            "a program cannot have more tiles in flight than it takes",
        ),
        Constraint(
            "stages_fit",
            f"(num_stages - 1) * BLOCK_M * BLOCK_N * 4 <= {_SHARED_BYTES}",
            "the gates and ups in flight must fit the shared memory of a program",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 gate, up and output, each once."""
    return 3 * 2 * workload.extents["M"] * workload.extents["N"]


def flops(workload: Workload) -> int:
    """Returns operations: exponential, sum, division and two products per output."""
    return 5 * workload.extents["M"] * workload.extents["N"]


def _workload(m: int, n: int, source: str) -> Workload:
    return Workload("swiglu", f"{m}x{n}", {"M": m, "N": n}, "bfloat16", source)


KERNEL = Kernel(
    name="swiglu",
    description="silu(gate) * up, the halves of x[M, 2N], bfloat16 in and out, float32 arithmetic",
    workloads=(
        _workload(8192, 14336, "Llama-3-8B and Mixtral-8x7B feed-forward, 8,192 tokens"),
        _workload(4096, 11008, "TritonBench swiglu: batch 4 of 1,024 tokens, Llama-2-7B"),
        _workload(16, 14336, "Llama-3-8B feed-forward, decoding 16 sequences"),
        _workload(2048, 4864, "Qwen2.5-0.5B feed-forward (19 x 256 columns), 2,048 tokens"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # float32 arithmetic rounded once to bfloat16: half a unit in the last place is 2^-8 of the
    # value (a whole one, 2^-7, where a conversion truncates, as Triton's interpreter does), plus
    # the approximate exponential and division. Where the gate is very negative the output is
    # tiny, and its absolute error is, too.
    rtol=8e-3,
    atol=1e-6,
)

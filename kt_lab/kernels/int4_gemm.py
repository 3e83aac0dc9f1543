"""Matrix product with 4-bit weights: tiles, split reduction, and how nibbles become numbers."""

from kt_lab.errors import UsageError
from kt_lab.space import Choice, Constraint, Integer, Parameter, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)


def max_split(workload: Workload) -> int:
    """Returns the most parts that the reduction may be split into: SPLIT_K's upper bound."""
    rows = workload.extents["M"]
    return 32 if rows <= 16 else 16 if rows <= 256 else 2


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of A[M, K] @ W[K, N] with packed signed 4-bit weights.

    BLOCK_M = 1 multiplies and adds in float32 without tensor cores; a larger BLOCK_M uses them.
    BLOCK_K counts elements, BLOCK_K // 2 rows of packed bytes. SPLIT_K programs share an output
    tile. UNPACK turns nibbles into numbers by sign-extending shifts or by writing them into the
    mantissa of 128.0. EVICTION is the cache hint of the weights. GROUP_M row tiles are visited
    before moving on to the next columns.

    Raises:
        UsageError: The kernel does not compute that shape.
    """
    batches, m, k, n = (workload.extents[name] for name in "BMKN")
    if batches != 1 or k % 2 or n % 4 or max_split(workload) * m * n >= 2**31:
        raise UsageError(
            "int4_gemm must have B = 1, an even K, an N that 4 divides, and partial sums that 32 "
            f"bits can count, got {workload.key}; choose another shape"
        )
    constants = {"M": m, "K": k, "N": n}
    parameters: list[Parameter] = []
    if m < 16:
        parameters.append(Choice("BLOCK_M", (1, 16), role="tile"))
    elif m == 16:
        constants["BLOCK_M"] = 16  # the only tile height; no axis
    else:
        low, high = (16, 64) if m <= 256 else (64, 256)
        parameters.append(PowerOfTwo("BLOCK_M", low, high, role="tile"))
    parameters += [
        PowerOfTwo("BLOCK_N", 32 if 16 <= m <= 256 else 64, 512 if m < 16 else 256, role="tile"),
        PowerOfTwo("BLOCK_K", 32, 256 if m == 16 else 128, role="tile"),
        PowerOfTwo("SPLIT_K", 1, max_split(workload)),
        Choice("UNPACK", ("shift", "magic")),
    ]
    if m <= 16:
        parameters.append(Choice("EVICTION", ("", "evict_first")))
    if m > 256:
        parameters.append(Choice("GROUP_M", (1, 8)))
    warps = (1, 8) if m < 16 else (2, 8) if m <= 256 else (4, 16)
    parameters += [
        PowerOfTwo("num_warps", *warps, role="warps"),
        Integer("num_stages", 1, 5 if m == 16 else 4, role="stages"),
    ]
    return ParameterSpace(
        parameters,
        constraints=_constraints(_fewest_programs(workload)),
        default=_default(workload),
        constants=constants,
    )


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _plain_tile(m: int) -> tuple[int, int, int]:
    """Returns BLOCK_M, BLOCK_N, BLOCK_K of the default config."""
    if m < 16:
        return 1, 128, 32
    return (16 if m <= 256 else 64), 64, 64


def _fewest_programs(workload: Workload) -> int:
    """Returns 128, about the multiprocessors of a Hopper; fewer where there is little work."""
    m, k, n = (workload.extents[name] for name in "MKN")
    tile_m, tile_n, _ = _plain_tile(m)
    tiles = _cdiv(m, tile_m) * _cdiv(n, tile_n)
    return min(128, m * k * n >> 18, tiles * max_split(workload))


def _default(workload: Workload) -> dict[str, int | str]:
    """Returns a config that is valid at every shape: a middling tile, split only if it must."""
    m, k, n = (workload.extents[name] for name in "MKN")
    tile_m, tile_n, tile_k = _plain_tile(m)
    split = 1
    while _cdiv(m, tile_m) * _cdiv(n, tile_n) * split < _fewest_programs(workload):
        split *= 2
    chosen: dict[str, int | str] = {} if m == 16 else {"BLOCK_M": tile_m}
    chosen |= {"BLOCK_N": tile_n, "BLOCK_K": tile_k, "SPLIT_K": split, "UNPACK": "shift"}
    if m <= 16:
        chosen["EVICTION"] = ""
    if m > 256:
        chosen["GROUP_M"] = 1
    trips = _cdiv(_cdiv(k, tile_k), split)
    return chosen | {"num_warps": 4, "num_stages": min(2, trips)}


def _constraints(fewest: int) -> tuple[Constraint, ...]:
    trips = "cdiv(cdiv(K, BLOCK_K), SPLIT_K)"
    return (
        Constraint(
            "fma_tile",
            "BLOCK_M > 1 or 16 <= BLOCK_K // 2 * BLOCK_N // (32 * num_warps) <= 64",
            "without tensor cores a thread needs 16 (one load) to 64 bytes of weights a step",
        ),
        Constraint(
            "dot_tile",
            "BLOCK_M == 1 or BLOCK_N <= 256 and (M >= 16 or BLOCK_K >= 64 and num_warps <= 4)",
            "a tensor core tile has at most 256 columns; one for fewer than 16 rows reads at "
            "least 64 elements a step and stays small",
        ),
        Constraint(
            "dot_work",
            "BLOCK_M == 1 or BLOCK_K // 2 * BLOCK_N >= 512 * num_warps",
            "a tensor core tile needs at least 16 bytes of weights a thread",
        ),
        Constraint(
            "accumulators_fit",
            "BLOCK_M == 1 or BLOCK_M * BLOCK_N <= 4096 * num_warps",
            "a thread may hold at most 128 accumulators",
        ),
        Constraint(
            "weights_fit",
            "BLOCK_M == 1 or BLOCK_K // 2 * BLOCK_N <= 2048 * num_warps",
            "a thread may unpack at most 64 bytes of weights a step",
        ),
        Constraint(
            "shared_fits",
            "max(num_stages - 1, 1) * (2 * BLOCK_M * BLOCK_K + BLOCK_K // 2 * BLOCK_N)"
            f" <= {_SHARED_BYTES}",
            "the pipelined tiles of A and W must fit the shared memory of a program",
        ),
        Constraint(
            "enough_programs",
            f"cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N) * SPLIT_K >= {fewest}",
            f"the product must be shared by at least {fewest} programs",
        ),
        Constraint(
            "splits_have_work",
            f"(SPLIT_K - 1) * {trips} < cdiv(K, BLOCK_K)",
            "every split needs at least one block of the reduction",
        ),
        Constraint(
            "stages_need_trips",
            f"num_stages == 1 or num_stages <= {trips}",
            "a split cannot be pipelined deeper than it has blocks",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 A and C, half a byte a weight, each once."""
    m, k, n = (workload.extents[name] for name in "MKN")
    return 2 * m * k + k * n // 2 + 2 * m * n


def flops(workload: Workload) -> int:
    """Returns operations: one multiplication and one addition per weight and row."""
    m, k, n = (workload.extents[name] for name in "MKN")
    return 2 * m * k * n


def _workload(m: int, k: int, n: int, source: str) -> Workload:
    extents = {"B": 1, "M": m, "K": k, "N": n}
    return Workload("int4_gemm", f"1x{m}x{k}x{n}", extents, "bfloat16", source)


KERNEL = Kernel(
    name="int4_gemm",
    description="A[M, K] @ W[K, N], bfloat16 A and output, W packed as signed 4-bit integers",
    workloads=(
        _workload(1, 7168, 8192, "TritonBench int4_gemm, as in Helion pull request 1115"),
        _workload(16, 7168, 8192, "the same weights with 16 tokens in flight"),
        _workload(64, 14336, 4096, "Llama-3-8B down projection, 64 tokens in flight"),
        _workload(1, 4096, 28672, "Llama-3-8B gate and up projections, one token"),
        _workload(2048, 2048, 2048, "square and bound by arithmetic"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Products are exact in float32 and are summed in it, in an order that the config chooses;
    # the output is rounded once to bfloat16 (2^-9 of its value). Sums of thousands of terms may
    # cancel to almost nothing and keep the long sum's error: in float32 the worst of 8,192 sums
    # over K = 7168 is off by about 0.01, and tensor cores truncate where float32 rounds. One
    # lost weight changes an output by about 4.
    rtol=1e-2,
    atol=0.2,
)

"""FP8 matrix product with one scale per operand: tiles, schedule, loads and split reduction."""

from kt_lab.space import Choice, Constraint, Integer, Parameter, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_FEW_ROWS = 256  # up to here a product is bound by reading B
_FULL = 128  # programs that occupy about every multiprocessor
_TILES = "cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"
_TRIPS = "cdiv(cdiv(K, BLOCK_K), SPLIT_K)"
_MOST_PROGRAMS = 8 * _SMS  # of a product that is split


def cdiv(a: int, b: int) -> int:
    """Returns a / b rounded up."""
    return -(-a // b)


def has_few_rows(workload: Workload) -> bool:
    """Whether a product's space is the one for products that are bound by reading B."""
    return workload.extents["M"] <= _FEW_ROWS


def max_split(workload: Workload) -> int:
    """Returns the most parts that the reduction may be split into: SPLIT_K's upper bound."""
    return 16 if has_few_rows(workload) else 1


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of A[M, K] @ B[N, K]^T with FP8 operands.

    LOADS reads tiles through pointers (asynchronous copies of 16 bytes a thread) or through
    tensor descriptors that programs make on the device (the tensor memory accelerator, which then
    writes the output too, unless it is split).

    For many rows, SCHEDULE launches a program per tile, or one per multiprocessor that walks
    over tiles ("persistent"), its loops over tiles and over K made one so that the next tile's
    loads start during a tile's end ("flattened"). GROUP_M row tiles are visited before moving on
    to the next columns. EPILOGUE writes a tile at once or in two halves of its columns, through
    half the shared memory.

    For few rows (M <= 256), SPLIT_K programs share an output tile, and ORDER multiplies A B^T or
    (B A^T)^T: the 64 rows that Hopper's FP8 instruction has are then columns of the output, which
    are many. With fewer rows than that, Triton turns both operands into float16.
    """
    few = has_few_rows(workload)
    parameters = few_rows(workload) if few else many_rows()
    if not few:
        parameters.insert(-2, Choice("EPILOGUE", ("whole", "halves")))
    tile = (_accumulators(2048 if few else 4096), *(() if few else (_HALVES,)))
    return ParameterSpace(
        parameters,
        constraints=(*constraints(workload), *tile),
        default=default(workload) | ({} if few else {"EPILOGUE": "whole"}),
        constants=constants(workload),
    )


def few_rows(workload: Workload, *, widest: int = 256, widest_k: int = 512) -> list[Parameter]:
    """Returns the axes of a product that is bound by reading B."""
    heights = PowerOfTwo("BLOCK_M", 16, _tallest(workload), role="tile")
    return [
        *([heights] if heights.high > 16 else []),  # else the only tile height; no axis
        PowerOfTwo("BLOCK_N", 16, widest, role="tile"),
        PowerOfTwo("BLOCK_K", 64, widest_k, role="tile"),
        PowerOfTwo("SPLIT_K", 1, max_split(workload)),
        Choice("ORDER", ("ab", "ba")),
        Choice("LOADS", ("pointers", "descriptors")),
        PowerOfTwo("num_warps", 2, 8, role="warps"),
        Integer("num_stages", 2, 6, role="stages"),
    ]


def many_rows(*, widest_k: int = 256) -> list[Parameter]:
    """Returns the axes of a product that is bound by arithmetic."""
    return [
        PowerOfTwo("BLOCK_M", 64, 256, role="tile"),
        PowerOfTwo("BLOCK_N", 64, 256, role="tile"),
        PowerOfTwo("BLOCK_K", 64, widest_k, role="tile"),
        Choice("GROUP_M", (1, 8)),
        Choice("LOADS", ("pointers", "descriptors")),
        Choice("SCHEDULE", ("tiles", "persistent", "flattened")),
        PowerOfTwo("num_warps", 4, 8, role="warps"),
        Integer("num_stages", 2, 5, role="stages"),
    ]


def _tallest(workload: Workload) -> int:
    return min(max(1 << (workload.extents["M"] - 1).bit_length(), 16), 128)


def constants(workload: Workload) -> dict[str, int]:
    """Returns what constraints may name besides parameters."""
    extents = {name: workload.extents[name] for name in "MKN"}
    if not has_few_rows(workload):
        return extents | {"SPLIT_K": 1}
    return extents | ({"BLOCK_M": 16} if _tallest(workload) == 16 else {})


def default(workload: Workload) -> dict[str, int | str]:
    """Returns a config that is valid at every shape: a middling tile, split only if it must."""
    k, n = workload.extents["K"], workload.extents["N"]
    if not has_few_rows(workload):
        tile = {"BLOCK_M": 128, "BLOCK_N": 128 if n > 64 else 64, "BLOCK_K": 128 if k > 64 else 64}
        chosen = {"GROUP_M": 8, "LOADS": "pointers", "SCHEDULE": "tiles", "num_warps": 8}
        return tile | chosen | {"num_stages": min(max(cdiv(k, tile["BLOCK_K"]), 2), 3)}
    split = _plain_split(workload)
    chosen = {"BLOCK_N": 64, "BLOCK_K": 128, "SPLIT_K": split, "ORDER": "ab"}
    chosen |= {} if _tallest(workload) == 16 else {"BLOCK_M": 16}
    trips = cdiv(cdiv(k, 128), split)
    return chosen | {"LOADS": "pointers", "num_warps": 4, "num_stages": min(max(trips, 2), 3)}


def _plain_tiles(workload: Workload) -> int:
    return cdiv(workload.extents["M"], 16) * cdiv(workload.extents["N"], 64)


def _plain_split(workload: Workload) -> int:
    """Returns how often the default's reduction is split to occupy every multiprocessor."""
    blocks, split = cdiv(workload.extents["K"], 128), 1
    while _plain_tiles(workload) * split < _FULL and split < max_split(workload):
        if (2 * split - 1) * cdiv(blocks, 2 * split) >= blocks:
            break  # a split would have nothing to do
        split *= 2
    return split


def constraints(workload: Workload) -> tuple[Constraint, ...]:
    """Returns the laws of both FP8 products but for how many accumulators fit a thread."""
    if not has_few_rows(workload):
        return *_shared(49152, "num_stages * (BLOCK_M + BLOCK_N)"), *_MANY
    fewest = min(_FULL, _plain_tiles(workload) * _plain_split(workload))
    enough = Constraint(
        "enough_programs",
        f"{_TILES} * SPLIT_K >= {fewest}",
        f"the product must be shared by at least {fewest} programs",
    )
    return *_shared(16384, "(num_stages - 1) * BLOCK_N"), *_FEW, enough


def _shared(fewest: int, lines: str) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "descriptors_align",
            "LOADS == 'pointers' or K % 16 == 0 and N % 8 == 0",
            "a tensor descriptor needs rows of a multiple of 16 bytes",
        ),
        Constraint(
            "tile_fits_shape",
            "BLOCK_N <= max(64, next_power_of_two(N)) and BLOCK_K <= max(128, "
            "next_power_of_two(K))",
            "a tile may not be wider than the operands, rounded up",
        ),
        Constraint(
            "shared_fits",
            f"(num_stages - 1) * (BLOCK_M + BLOCK_N) * BLOCK_K <= {_SHARED_BYTES}",
            "the pipelined tiles of A and B must fit the shared memory of a program",
        ),
        Constraint(
            "loads_in_flight",
            f"{lines} * BLOCK_K >= {fewest} or num_stages >= {_TRIPS}",
            f"at least {fewest} bytes must be on their way to hide how long memory takes",
        ),
        Constraint(
            "stages_need_trips",
            f"num_stages <= max(2, {_TRIPS})",
            "a reduction cannot be pipelined deeper than it has blocks",
        ),
    )


def _accumulators(most: int) -> Constraint:
    return Constraint(
        "accumulators_fit",
        f"BLOCK_M * BLOCK_N <= {most} * num_warps",
        f"a thread may hold at most {most // 32} accumulators",
    )


_HALVES = Constraint(
    "halves_save_memory",
    "EPILOGUE == 'whole' or BLOCK_N == 256 and LOADS == 'descriptors' and SCHEDULE != 'tiles'",
    "halves are for wide tiles whose output needs shared memory beside the next tile's",
)

_MANY = (
    Constraint(
        "wgmma_fits",
        f"num_stages * (BLOCK_M + BLOCK_N) * BLOCK_K <= {_SHARED_BYTES}",
        "the tiles being multiplied stay in shared memory beside those on their way",
    ),
    Constraint(
        "threads_have_work",
        "BLOCK_M * BLOCK_N >= 1024 * num_warps",
        "a thread needs at least 32 accumulators",
    ),
    Constraint(
        "walk_is_longer",
        f"SCHEDULE == 'tiles' or {_TILES} > {_SMS}",
        "a persistent grid needs fewer programs than there are tiles",
    ),
    Constraint(
        "flat_needs_descriptors",
        "SCHEDULE != 'flattened' or LOADS == 'descriptors'",
        "in one flat loop pointers would be computed anew at every step",
    ),
)

_FEW = (
    Constraint(
        "order_fits",
        "16 * num_warps <= BLOCK_N and num_warps >= 4 if ORDER == 'ba' else 8 * num_warps <= "
        "BLOCK_N and BLOCK_N * BLOCK_K <= 4096 * num_warps",
        "ba gives four warps 64 columns of the output, ab gives a warp at least 8 and a thread "
        "at most 128 elements of B to convert",
    ),
    Constraint(
        "threads_load",
        "BLOCK_N * BLOCK_K >= 2048 * num_warps",
        "a thread needs at least 64 bytes of B a step",
    ),
    Constraint(
        "splits_have_work",
        f"(SPLIT_K - 1) * {_TRIPS} < cdiv(K, BLOCK_K)",
        "every split needs at least one block of the reduction",
    ),
    Constraint(
        "splits_are_needed",
        f"SPLIT_K == 1 or {_TILES} * SPLIT_K <= {_MOST_PROGRAMS}",
        f"more than {_MOST_PROGRAMS} programs need no further split",
    ),
)


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: A and B of one byte an element and the bfloat16 output, each once."""
    m, k, n = (workload.extents[name] for name in "MKN")
    return m * k + k * n + 2 * m * n


def flops(workload: Workload) -> int:
    """Returns operations: one multiplication and one addition per element of B and row of A."""
    m, k, n = (workload.extents[name] for name in "MKN")
    return 2 * m * k * n


def _workload(m: int, k: int, n: int, source: str) -> Workload:
    return Workload("fp8_gemm", f"{m}x{k}x{n}", {"M": m, "K": k, "N": n}, "float8_e4m3fn", source)


KERNEL = Kernel(
    name="fp8_gemm",
    description="A[M, K] @ B[N, K]^T in FP8 (e4m3), a scale for each operand, bfloat16 output",
    workloads=(
        _workload(4096, 4096, 4096, "Llama-3.1-8B-Instruct-FP8 output projection, 4,096 tokens"),
        _workload(16, 14336, 4096, "Llama-3.1-8B-Instruct-FP8 down projection, 16 tokens"),
        _workload(
            4616, 1024, 4096, "CLIP ViT-L/14 at 336 pixels, first layer of the MLP, 8 images"
        ),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Outputs are about standard normal. Products of e4m3 are exact in float32, but Hopper's FP8
    # tensor cores align 32 of them and the running sum to the largest and keep about 14 bits
    # (DeepSeek-V3, arXiv:2412.19437, section 3.3.2). Simulated with 12 to 14 bits, the worst of
    # thousands of sums over K = 14336 is off by 0.01 beyond 2 % of its value; bfloat16 rounds
    # 0.4 % at most. A lost block of 64 terms changes outputs by 0.07 (root mean square).
    rtol=2e-2,
    atol=4e-2,
)

"""Activations to FP8 with a scale per row and 128 columns, as blockwise FP8 products need them."""

from kt_lab.parameters import Ordered
from kt_lab.space import Choice, Constraint, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_PUBLISHED = (
    "BLOCK_M in (2, 16, 32, 64, 128) and num_warps in (2, 4, 8) and TRIPS == 1 "
    "and FIRST == 'rows' and EVICTION == ''"
)


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of x[M, K] to e4m3, 128 columns of a row sharing a scale.

    A program takes BLOCK_M rows of TRIPS neighbouring blocks of 128 columns, one block after the
    other, num_stages in flight; without a loop num_stages does nothing, as in torchao. EVICTION
    is the cache hint of loads and stores; FIRST says whether neighbouring programs differ in
    rows or in columns. torchao never had a single config: the default is the middle of its 45.
    """
    m, k = workload.extents["M"], workload.extents["K"]
    parameters = (
        PowerOfTwo("BLOCK_M", 1, 128, role="tile"),
        PowerOfTwo("TRIPS", 1, 8),
        Choice("FIRST", ("rows", "columns")),
        Choice("EVICTION", ("", "evict_first")),
        PowerOfTwo("num_warps", 1, 16, role="warps"),
        Ordered("num_stages", (1, 2, 4, 6), role="stages"),
    )
    default = {
        "BLOCK_M": 32,
        "TRIPS": 1,
        "FIRST": "rows",
        "EVICTION": "",
        "num_warps": 4,
        "num_stages": 4,
    }
    constants = {"M": m, "K": k, "BYTES": 4 if workload.dtype == "float32" else 2}
    return ParameterSpace(parameters, constraints=_laws(), default=default, constants=constants)


def _laws() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "tile_has_work",
            f"BLOCK_M * 128 >= 4 * 32 * num_warps or {_PUBLISHED}",
            "a tile needs at least 4 elements a thread, unless it was published",
        ),
        Constraint(
            "tile_fits",
            f"BLOCK_M * 128 <= 128 * 32 * num_warps or {_PUBLISHED}",
            "a tile may have at most 128 elements a thread, unless it was published",
        ),
        Constraint(
            "trips_have_work",
            "TRIPS == 1 or TRIPS <= cdiv(K, 128)",
            "a program cannot take more blocks than a row has",
        ),
        Constraint(
            "stages_need_trips",
            "TRIPS == 1 or num_stages in (1, 2, 4) and num_stages <= TRIPS",
            "a program cannot have more blocks in flight than it takes",
        ),
        Constraint(
            "stages_fit",
            "TRIPS == 1 or num_stages * BLOCK_M * 128 * BYTES <= 232448",
            "the blocks in flight must fit the shared memory of a program",
        ),
        Constraint(
            "idle_stages",
            f"TRIPS > 1 or num_stages == 4 or num_stages in (2, 6) and {_PUBLISHED}",
            "without a loop num_stages does nothing; published configs differ in it all the same",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: elements read, a byte each written, a float32 scale per 128 of a row."""
    m, k = workload.extents["M"], workload.extents["K"]
    return (5 if workload.dtype == "float32" else 3) * m * k + 4 * m * -(-k // 128)


def flops(workload: Workload) -> int:
    """Returns operations: a comparison and a product per element."""
    return 2 * workload.extents["M"] * workload.extents["K"]


def _workload(m: int, k: int, source: str) -> Workload:
    return Workload("blockwise_quantise", f"{m}x{k}", {"M": m, "K": k}, "bfloat16", source)


KERNEL = Kernel(
    name="blockwise_quantise",
    description="x[M, K] to e4m3 and scales[K / 128, M], a scale per row and 128 columns",
    workloads=(
        _workload(32768, 7168, "DeepSeek-V3 hidden states, 32,768 tokens as torchao benchmarks"),
        _workload(32768, 2048, "DeepSeek-V3 expert features, the same tokens"),
        _workload(16640, 5120, "Llama 4 hidden states, tokens of torchao pull request 3952"),
        _workload(128, 7168, "DeepSeek-V3, decoding 128 sequences"),
        _workload(4096, 1408, "DeepSeek-MoE-16B expert features (11 blocks), one sequence"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Maxima are exact, and the rest is one formula: every config must give the same bits.
    rtol=0.0,
    atol=0.0,
)

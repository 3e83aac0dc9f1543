"""What the spaces of the expert-weight quantisers have in common: shapes, tiles, laws."""

from kt_lab.errors import UsageError
from kt_lab.space import Constraint
from kt_lab.workload import Workload

SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_LLAMA4 = "Llama 4, {} experts: benchmarked with torchao pull request 3952"
# E, N, K and where the shape comes from; 128 experts of Llama 4 are 10.7 GB of weights.
_SHAPES = (
    (1, 8192, 5120, _LLAMA4.format(1)),
    (1, 5120, 8192, _LLAMA4.format(1)),
    (16, 8192, 5120, _LLAMA4.format(16)),
    (16, 5120, 8192, _LLAMA4.format(16)),
    (64, 5120, 8192, _LLAMA4.format("half of 128")),
    (128, 5120, 8192, _LLAMA4.format(128)),
    (128, 8192, 5120, _LLAMA4.format(128)),
    (32, 4096, 7168, "DeepSeek-V3, 8-way expert parallel: gate and up projections"),
    (8, 2048, 1408, "DeepSeek-MoE-16B (11 x 128 columns): torchao pull request 4024"),
    (16, 4096, 1536, "Qwen3-235B-A22B, 8-way expert parallel: down projections"),
)


def shipped(kernel: str) -> tuple[Workload, ...]:
    """Returns the workloads of one of these kernels: E experts of w[N, K], bfloat16.

    The optional extent ROUND tells what scales are rounded down to: 2 (or absent) powers of two;
    1: nothing.
    """
    return tuple(
        Workload(kernel, f"{e}x{n}x{k}", {"E": e, "N": n, "K": k}, "bfloat16", source)
        for e, n, k, source in _SHAPES
    )


def weights(workload: Workload) -> int:
    """Returns the number of weights of all experts."""
    return workload.extents["E"] * workload.extents["N"] * workload.extents["K"]


def scale_bytes(workload: Workload) -> int:
    """Returns the bytes of the float32 scales (E, K)."""
    return 4 * workload.extents["E"] * workload.extents["K"]


def width(workload: Workload) -> int:
    """Returns the bytes of a weight as it is read."""
    return 4 if workload.dtype == "float32" else 2


def constants(workload: Workload) -> dict[str, int]:
    """Returns what the laws know of a workload; a dtype's bytes are WIDTH."""
    if (to := workload.extents.get("ROUND", 2)) not in (1, 2):
        raise UsageError(f"ROUND must be 1 or 2, or absent, got ROUND={to} of {workload.key}")
    return {name: workload.extents[name] for name in "ENK"} | {"WIDTH": width(workload)}


def tile_laws(*, most: int, published: str = "", staged: str = "num_stages") -> tuple:
    """Returns the laws of a tile BLOCK_N x BLOCK_K of w[E, N, K].

    Args:
        most: Weights of a tile per thread, at most.
        published: Tiles beyond that which are members all the same, as an expression.
        staged: How many tiles are in flight, as an expression.
    """
    spared = f" or {published}" if published else ""
    return (
        Constraint(
            "tile_has_work",
            "BLOCK_N * BLOCK_K >= 8 * 32 * num_warps",
            "a tile needs at least 8 weights a thread",
        ),
        Constraint(
            "tile_fits",
            f"BLOCK_N * BLOCK_K <= {most} * 32 * num_warps{spared}",
            f"a tile may have at most {most} weights a thread, unless it was published",
        ),
        Constraint(
            "tile_exists",
            "BLOCK_N <= max(256, next_power_of_two(N)) and "
            "BLOCK_K <= max(128, next_power_of_two(K))",
            "a tile may not be longer than an expert, rounded up",
        ),
        Constraint(
            "experts_to_order",
            "E > 1 or FIRST != 'columns'",
            "with one expert its columns come first anyway",
        ),
        Constraint(
            "stages_fit",
            f"{staged} * BLOCK_N * BLOCK_K * WIDTH <= {SHARED_BYTES}",
            "the weights in flight must fit the shared memory of a program",
        ),
    )


def trip_laws(published: str) -> tuple[Constraint, ...]:
    """Returns the laws of programs that take TRIPS tiles each, as far as N goes.

    Without a loop num_stages does nothing, and only configs that were published differ in it.

    Args:
        published: Where they did, as an expression.
    """
    return (
        Constraint(
            "trips_have_work",
            "TRIPS == 1 or TRIPS <= cdiv(N, BLOCK_N)",
            "a program cannot take more tiles than there are",
        ),
        Constraint(
            "enough_programs",
            "TRIPS == 1 or E * cdiv(K, BLOCK_K) * cdiv(cdiv(N, BLOCK_N), TRIPS) "
            ">= min(132, E * cdiv(K, 64))",
            "programs that loop must be enough for the multiprocessors of a Hopper",
        ),
        Constraint(
            "stages_need_trips",
            "TRIPS == 1 or num_stages in (1, 3) and num_stages <= TRIPS",
            "a program cannot have more tiles in flight than it takes",
        ),
        Constraint(
            "idle_stages",
            f"TRIPS > 1 or num_stages == 4 or num_stages == 2 and {published}",
            "without a loop num_stages does nothing; published configs differ in it all the same",
        ),
    )

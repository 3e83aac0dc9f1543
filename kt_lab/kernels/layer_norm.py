"""LayerNorm: how each row is cut up, kept or read twice, and how its variance is summed."""

from kt_lab.kernels.row_space import (
    default_tile,
    grid_constraints,
    row_tile,
    tile_constraints,
    waves,
)
from kt_lab.space import Choice, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of a LayerNorm over the rows of x[M, N].

    BLOCK_M x BLOCK_N is the tile of one program. A row that fits its tile is read once and kept
    in registers; a longer one is read twice. WAVES = 0 launches one program per row block;
    otherwise WAVES programs per multiprocessor stride over the row blocks. VARIANCE is the mean
    of squared deviations (of longer rows block by block, after Welford and Chan), or the mean of
    squares less the squared mean, whose sums do not wait for each other. WEIGHT says when
    weights and biases are fetched: before the row, after its sums, or once for all rows of a
    program. EVICTION is the cache hint of the first reading of two.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    parameters = (
        *row_tile(n, rows=8, narrow=512 if n <= 2048 else 1024),
        waves(0, 2, 4),
        Choice("VARIANCE", ("centred", "moments")),
        Choice("WEIGHT", ("early", "late", "kept")),
        Choice("EVICTION", ("", "evict_last")),
        PowerOfTwo("num_warps", 1, 32, role="warps"),
        Integer("num_stages", 1, 3, role="stages"),
    )
    default = {
        **default_tile(n),
        "WAVES": 0,
        "VARIANCE": "centred",
        "WEIGHT": "early",
        "EVICTION": "",
        "num_stages": 1,
    }
    return ParameterSpace(
        parameters,
        constraints=(*tile_constraints(), *grid_constraints()),
        default=default,
        constants={"M": m, "N": n},
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: float16 in and out, weights and biases, each once."""
    m, n = workload.extents["M"], workload.extents["N"]
    return 2 * (2 * m * n + 2 * n)


def flops(workload: Workload) -> int:
    """Returns operations: two sums, a square and a subtraction, and four to scale an element."""
    return 8 * workload.extents["M"] * workload.extents["N"]


def _workload(m: int, n: int, source: str) -> Workload:
    return Workload("layer_norm", f"{m}x{n}", {"M": m, "N": n}, "float16", source)


KERNEL = Kernel(
    name="layer_norm",
    description="(x - mean) / sqrt(var + eps) * w + b over the rows of x[M, N], float16",
    workloads=(
        _workload(8192, 5120, "OPT-13B hidden state (5,120), 4 sequences of 2,048 tokens"),
        _workload(16384, 1600, "GPT-2 XL hidden state (1,600), 16 sequences of 1,024 tokens"),
        _workload(16, 12288, "GPT-3 175B hidden state (12,288), 16 sequences being decoded"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # float32 arithmetic rounded once to float16: half a unit in the last place is 2^-11 of the
    # value. Terms of up to 6 may cancel and leave their float32 error, which is 1e-6 where the
    # variance is a difference of two means.
    rtol=2e-3,
    atol=1e-4,
)

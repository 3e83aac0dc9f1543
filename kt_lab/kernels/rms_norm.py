"""RMSNorm: how each row is cut up, kept or read twice, and when the weights are fetched."""

from kt_lab.kernels.row_space import (
    default_tile,
    grid_constraints,
    row_tile,
    tile_constraints,
    waves,
)
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

PARTIAL_SUMS = Constraint(
    "partial_sums_need_blocks",
    "PARTIAL == 'tile' or BLOCK_N < N",
    "a row in one block has one sum",
)


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of an RMSNorm over the rows of x[M, N].

    BLOCK_M x BLOCK_N is the tile of one program. A row that fits its tile is read once and kept
    in registers; a longer one is read twice, its squares summed by whole tiles or reduced block
    by block (PARTIAL). WAVES = 0 launches one program per row block; otherwise WAVES programs per
    multiprocessor stride over the row blocks. WEIGHT says when the weights are fetched: before
    the row, after its sum, or once for all rows of a program. EVICTION is the cache hint of the
    first reading of two.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    short = n <= 512
    parameters = (
        *row_tile(n, rows=64 if short else 8, narrow=128 if short else 1024),
        waves(0, 2, 4, 8) if short else waves(0, 1, 2, 4),
        Choice("WEIGHT", ("early", "late", "kept")),
        Choice("PARTIAL", ("tile", "row")),
        Choice("EVICTION", ("", "evict_last")),
        PowerOfTwo("num_warps", 1, 32, role="warps"),
        Integer("num_stages", 1, 4, role="stages"),
    )
    constraints = (*tile_constraints(), *grid_constraints(), PARTIAL_SUMS)
    default = {
        **default_tile(n),
        "WAVES": 0,
        "WEIGHT": "early",
        "PARTIAL": "tile",
        "EVICTION": "",
        "num_stages": 1,
    }
    return ParameterSpace(
        parameters, constraints=constraints, default=default, constants={"M": m, "N": n}
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 in and out and the weights, each once."""
    m, n = workload.extents["M"], workload.extents["N"]
    return 2 * (2 * m * n + n)


def flops(workload: Workload) -> int:
    """Returns operations: square, sum, and two multiplications per element."""
    return 4 * workload.extents["M"] * workload.extents["N"]


def _workload(m: int, n: int, source: str) -> Workload:
    return Workload("rms_norm", f"{m}x{n}", {"M": m, "N": n}, "bfloat16", source)


KERNEL = Kernel(
    name="rms_norm",
    description="x / sqrt(mean(x^2) + eps) * w over the rows of x[M, N], bfloat16 in and out",
    workloads=(
        _workload(8192, 4096, "Llama-3-8B hidden state (4,096), one sequence of 8,192 tokens"),
        _workload(4096, 7168, "DeepSeek-V3 hidden state (7,168), 4,096 tokens"),
        _workload(16, 8192, "Llama-3-70B hidden state (8,192), 16 sequences being decoded"),
        # Rows so short that a program takes many: nothing else in this suite looks like it.
        _workload(131072, 128, "Qwen3-8B query norm: 32 heads of 128 x 4,096 tokens"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # float32 arithmetic rounded once to bfloat16: at most 2^-8 = 0.004 of the value, twice that
    # in the interpreter, which truncates. Nothing is subtracted: the error of a zero is zero.
    rtol=1e-2,
    atol=1e-6,
)

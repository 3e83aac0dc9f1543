"""Gradients of RMSNorm: row tiles, and how weight gradients are added up over all rows."""

from kt_lab.kernels.row_space import default_tile, row_tile, tile_constraints, waves
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

MOST_PROGRAMS = 1024  # rows of the workspace for partial sums
_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of the gradients of an RMSNorm over x[M, N].

    BLOCK_M x BLOCK_N is the tile of one program; rows that do not fit are read twice. WAVES
    programs per multiprocessor stride over the row blocks. Each adds up weight gradients: in
    registers, by whole tiles or reduced over each block's rows (PARTIAL), or in memory where rows
    are read twice. GROUP programs COMBINE theirs, by atomic additions to one row, or by the last
    of them ("tree"); the last of all adds up the groups. WEIGHT says when the weights are
    fetched: before each row, or once.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    parameters = (
        *row_tile(n, rows=8, narrow=2048 if n <= 4096 else 1024),
        waves(1, 2, 4),
        Choice("WEIGHT", ("early", "kept")),
        Choice("PARTIAL", ("tile", "row")),
        Choice("COMBINE", ("atomic", "tree")),
        Choice("GROUP", (1, 16, MOST_PROGRAMS)),
        PowerOfTwo("num_warps", 4, 32, role="warps"),
        Integer("num_stages", 1, 3, role="stages"),
    )
    tile = default_tile(n) if n <= 8192 else {"BLOCK_N": 2048, "num_warps": 8}
    default = {
        **tile,
        "BLOCK_M": 1 if n <= 8192 or m < 4 else 4,
        "num_warps": max(tile["num_warps"], 4),
        "WAVES": 1,
        "WEIGHT": "kept" if tile["BLOCK_N"] >= n else "early",
        "PARTIAL": "row",
        "COMBINE": "tree",
        "GROUP": 1,
        "num_stages": 1,
    }
    return ParameterSpace(
        parameters,
        constraints=(*tile_constraints(tensors=2, most=32, idle=4), *_constraints()),
        default=default,
        constants={"M": m, "N": n},
    )


def _constraints() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "waves_stride",
            f"WAVES == 1 or WAVES * {_SMS} < cdiv(M, BLOCK_M)",
            "more waves need fewer programs than there are row blocks",
        ),
        Constraint(
            "registers_fit",
            "BLOCK_M * BLOCK_N <= 16384",
            "two tiles in float32 and the sums beside them must fit a multiprocessor's registers",
        ),
        Constraint(
            "whole_tiles_have_rows",
            "PARTIAL == 'row' or BLOCK_M > 1 and BLOCK_N >= N",
            "summing whole tiles differs where they have several rows and stay in registers",
        ),
        Constraint(
            "weights_are_kept_with_rows",
            "WEIGHT != 'kept' or BLOCK_N >= N",
            "weights are kept where a program meets whole rows",
        ),
        Constraint(
            "groups_combine",
            "COMBINE == 'atomic' and GROUP > 1 or COMBINE == 'tree' and GROUP <= 16",
            "a group of one has nothing to add; all programs in one group would not be a tree",
        ),
        Constraint(
            "long_rows_have_height",
            "BLOCK_N >= N or BLOCK_M >= 4 or M < 4",
            "weight gradients of rows read twice go through memory once per block of rows",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 x, grad and both gradients, weights, and float32 1 / rms."""
    m, n = workload.extents["M"], workload.extents["N"]
    return 2 * (3 * m * n + 2 * n) + 4 * m


def flops(workload: Workload) -> int:
    """Returns operations per element: ten, of which two are the weights' gradient."""
    return 10 * workload.extents["M"] * workload.extents["N"]


def _workload(m: int, n: int, source: str) -> Workload:
    return Workload("rms_norm_backward", f"{m}x{n}", {"M": m, "N": n}, "bfloat16", source)


KERNEL = Kernel(
    name="rms_norm_backward",
    description="gradients of RMSNorm for x[M, N] and its weights, bfloat16, sums in float32",
    workloads=(
        _workload(8192, 4096, "Llama-3-8B training, hidden 4,096, one sequence of 8,192 tokens"),
        _workload(4096, 7168, "DeepSeek-V3 training, hidden 7,168, one sequence of 4,096 tokens"),
        _workload(2048, 2048, "Llama-3.2-1B fine-tuning, hidden 2,048, 2,048 tokens"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Rounded once to bfloat16: at most 2^-8 = 0.004 of the value, twice that in the interpreter,
    # which truncates. A weight's gradient sums M terms near 1 in an order that atomic additions
    # leave open; sums that cancel keep a float32 error below 1e-3 at M = 8192. A lost row changes
    # them by about 0.6.
    rtol=1e-2,
    atol=2e-3,
)

"""RMSNorm once more, in a space of twenty thousand configs: every grid and every cache hint."""

from kt_lab.kernels.rms_norm import KERNEL as PLAIN
from kt_lab.kernels.rms_norm import PARTIAL_SUMS
from kt_lab.kernels.row_space import default_tile, grid_laws, row_tile, tile_constraints
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload


def space(workload: Workload) -> ParameterSpace:
    """Returns a dense search space of an RMSNorm over the rows of x[M, N].

    The axes of `rms_norm`, where WAVES is any number of programs per multiprocessor, also for
    rows that are read twice, and STORE is the cache modifier of what is written.
    """
    m, n = workload.extents["M"], workload.extents["N"]
    parameters = (
        *row_tile(n, rows=8, narrow=256),
        Integer("WAVES", 0, 16),
        Choice("WEIGHT", ("early", "late", "kept")),
        Choice("PARTIAL", ("tile", "row")),
        Choice("EVICTION", ("", "evict_first", "evict_last")),
        Choice("STORE", ("", ".cs")),
        PowerOfTwo("num_warps", 1, 16, role="warps"),
        Integer("num_stages", 1, 3, role="stages"),
    )
    default = {
        **default_tile(n),
        "WAVES": 0,
        "WEIGHT": "early",
        "PARTIAL": "tile",
        "EVICTION": "",
        "STORE": "",
        "num_stages": 1,
    }
    return ParameterSpace(
        parameters,
        constraints=(*tile_constraints(), *grid_laws(), PARTIAL_SUMS, *_constraints()),
        default=default,
        constants={"M": m, "N": n},
    )


def _constraints() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "hints_are_heard",
            "EVICTION == '' or num_stages == 1",
            "asynchronous copies ignore the cache hint",
        ),
        Constraint(
            "weights_are_kept_with_rows",
            "WEIGHT != 'kept' or WAVES > 0 and BLOCK_N >= N",
            "weights are kept where one program meets several whole rows",
        ),
    )


KERNEL = Kernel(
    name="rms_norm_dense",
    description=PLAIN.description + ", in a dense space",
    workloads=(
        Workload(
            "rms_norm_dense",
            "4096x1536",
            {"M": 4096, "N": 1536},
            "bfloat16",
            "DeepSeek-V3 compressed query (q_lora_rank 1,536), 4,096 tokens",
        ),
    ),
    space=space,
    bytes_moved=PLAIN.bytes_moved,
    flops=PLAIN.flops,
    rtol=PLAIN.rtol,
    atol=PLAIN.atol,
)

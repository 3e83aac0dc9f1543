"""Copy of tokens to column-major: the first half of the route that then scales colwise.

The route to rowwise scales that torchao calls triton_transpose copies the gradients, scales the
columns of the copy (jagged_colwise with LAYOUT 2) and turns the result as a view, for nothing.
"""

from kt_lab.parameters import Ordered
from kt_lab.space import Choice, Constraint, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of out[w, t] = x[t, w].

    A program copies TRIPS tiles of BLOCK_T x BLOCK_W, one after the other along the tokens,
    num_stages in flight. EVICTION is the cache hint of loads and stores; FIRST says whether
    neighbouring programs differ in tokens or in features.
    """
    tokens, width = workload.extents["TOKENS"], workload.extents["WIDTH"]
    parameters = (
        PowerOfTwo("BLOCK_T", 16, 512, role="tile"),
        PowerOfTwo("BLOCK_W", 16, 512, role="tile"),
        PowerOfTwo("TRIPS", 1, 4),
        Choice("FIRST", ("features", "tokens")),
        Choice("EVICTION", ("", "evict_first")),
        PowerOfTwo("num_warps", 2, 16, role="warps"),
        Ordered("num_stages", (1, 3), role="stages"),
    )
    default = {
        "BLOCK_T": 64,
        "BLOCK_W": 64,
        "TRIPS": 1,
        "FIRST": "features",
        "EVICTION": "",
        "num_warps": 4,
        "num_stages": 1,
    }
    constants = {"TOKENS": tokens, "WIDTH": width}
    constants |= {"BYTES": 4 if workload.dtype == "float32" else 2}
    return ParameterSpace(
        parameters,
        constraints=_laws(),
        default=default,
        constants=constants,
    )


def _laws() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "tile_has_work",
            "BLOCK_T * BLOCK_W >= 8 * 32 * num_warps",
            "a tile needs at least 8 elements a thread",
        ),
        Constraint(
            "tile_fits",
            "BLOCK_T * BLOCK_W <= 64 * 32 * num_warps",
            "a tile may have at most 64 elements a thread",
        ),
        Constraint(
            "tile_exists",
            "BLOCK_T <= max(64, next_power_of_two(TOKENS)) and "
            "BLOCK_W <= max(64, next_power_of_two(WIDTH))",
            "a tile may not be longer than the tensor, rounded up",
        ),
        Constraint(
            "trips_have_work",
            "TRIPS == 1 or TRIPS <= cdiv(TOKENS, BLOCK_T)",
            "a program cannot take more tiles than there are",
        ),
        Constraint(
            "stages_need_trips",
            "num_stages == 1 or num_stages <= TRIPS",
            "a program cannot have more tiles in flight than it takes",
        ),
        Constraint(
            "stages_fit",
            "TRIPS == 1 or (num_stages + 1) * BLOCK_T * BLOCK_W * BYTES <= 232448",
            "the tiles in flight must fit the shared memory of a program",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: every element read once and written once."""
    each = 8 if workload.dtype == "float32" else 4
    return each * workload.extents["TOKENS"] * workload.extents["WIDTH"]


def flops(workload: Workload) -> int:  # noqa: ARG001
    """Returns operations: a copy has none."""
    return 0


def _workload(tokens: int, width: int, source: str) -> Workload:
    extents = {"TOKENS": tokens, "WIDTH": width}
    return Workload("tokens_transpose", f"{tokens}x{width}", extents, "bfloat16", source)


KERNEL = Kernel(
    name="tokens_transpose",
    description="copy of x[TOKENS, WIDTH] to out[WIDTH, TOKENS], bfloat16",
    workloads=(
        _workload(16640, 8192, "torchao pull request 3952: gradients of Llama 4's features"),
        _workload(16640, 5120, "torchao pull request 3952: Llama 4's hidden states"),
        _workload(32768, 2048, "DeepSeek-V3, torchao request 4113"),
        _workload(16640, 1408, "DeepSeek-MoE-16B width (11 x 128 columns)"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # A copy.
    rtol=0.0,
    atol=0.0,
)

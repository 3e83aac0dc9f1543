"""Cross entropy: how a row of logits is cut up and shared, and how its exponentials are summed."""

from kt_lab.kernels.row_space import next_power_of_two
from kt_lab.space import Choice, Constraint, Integer, Parameter, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_FEW_ROWS = 8 * _SMS  # fewer programs than this leave multiprocessors without enough loads
_WIDEST = 32768
_TRIPS = "cdiv(cdiv(V, BLOCK_V), SPLIT)"  # tiles of the longest share of a row


def max_split(workload: Workload) -> int:
    """Returns the most programs that a row may be shared by; 1: rows are never shared."""
    m, v = workload.extents["M"], workload.extents["V"]
    if m > _FEW_ROWS or v <= 1024:
        return 1
    return min(64, 4096 // next_power_of_two(m))


def can_align(workload: Workload) -> bool:
    """Whether rows start off 16-byte boundaries, and the tensor ends on one."""
    m, v = workload.extents["M"], workload.extents["V"]
    return v % 8 > 0 and m * v % 8 == 0


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of the losses of logits x[M, V] of bfloat16.

    A program reads a share of BLOCK_M rows in tiles of BLOCK_M x BLOCK_V. METHOD is how the sum
    of exponentials stays finite: "online" keeps one running maximum and sum per row, "lanes" one
    per thread, joined at the end of the row; "anchored" subtracts the target's logit instead of
    the maximum, so that the loss is the logarithm of the sum, and goes online over a row again
    whose loss passes 69; "twice" reads the row for its maximum first. TARGET loads the target's
    logit by itself ("gather") or picks it out of the tile that passes ("pick").

    Few rows are shared by SPLIT programs; the last to finish joins their parts in a fixed order.
    Of many short rows, WAVES programs per multiprocessor may each take several; 0 launches one
    program per row block. READ "aligned" starts at the 16-byte boundary before a row that does
    not start on one. EVICTION is the cache hint of the last reading.
    """
    m, v = workload.extents["M"], workload.extents["V"]
    widest = min(max(next_power_of_two(v), 64), _WIDEST)
    narrowest = min(1024, widest)
    few, aligned, split = m <= _FEW_ROWS, can_align(workload), max_split(workload)
    default: dict[str, int | str] = {"BLOCK_V": min(widest, 8192), "num_stages": 1}
    constants: dict[str, int | str] = {"M": m, "V": v}
    parameters: list[Parameter] = []

    def add(parameter: Parameter, plain: int | str) -> None:
        """Makes an axis of a parameter, or a constant where it has but one value."""
        if parameter.cardinality > 1:
            parameters.append(parameter)
            default[parameter.name] = plain
        else:
            constants[parameter.name] = plain

    tall = 1 if few else 8 if v % 2 == 0 else 2
    add(PowerOfTwo("BLOCK_M", 1, tall, role="tile"), 1)
    parameters.append(PowerOfTwo("BLOCK_V", narrowest, widest, role="tile"))
    running = ("online", "lanes", "anchored", "twice")
    add(Choice("METHOD", running if v > narrowest else ("online", "anchored")), "online")
    add(Choice("TARGET", ("gather", "pick")), "gather")
    add(PowerOfTwo("SPLIT", 1, split), 1)
    add(Choice("WAVES", (0,) if few or v > _WIDEST else (0, 1, 2, 4)), 0)
    add(Choice("READ", ("plain", "aligned") if aligned else ("plain",)), "plain")
    add(Choice("EVICTION", ("", "evict_first")), "")
    add(PowerOfTwo("num_warps", 1, 16, role="warps"), max(min(widest, 8192) // 1024, 1))
    # Copies of 2 bytes, as of rows of an odd length, cannot be pipelined.
    parameters.append(Integer("num_stages", 1, 4 if v % 2 == 0 or aligned else 1, role="stages"))
    return ParameterSpace(
        parameters,
        constraints=(*_tile_laws(), *_grid_laws(), *_load_laws(odd=v % 2 > 0)),
        default=default,
        constants=constants,
    )


def _tile_laws() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "tile_has_work",
            "BLOCK_M * BLOCK_V >= 16 * 32 * num_warps or num_warps == 1",
            "a tile needs at least 16 elements a thread: two loads of 16 bytes",
        ),
        Constraint(
            "tile_fits",
            "BLOCK_M * BLOCK_V <= 64 * 32 * num_warps",
            "a tile may have at most 64 elements a thread: they fill a quarter of its registers",
        ),
        Constraint(
            "rows_exist",
            "BLOCK_M <= next_power_of_two(M)",
            "a tile may not have more rows than the tensor, rounded up",
        ),
        Constraint(
            "running_needs_trips",
            f"METHOD in ('online', 'anchored') or {_TRIPS} > 1",
            "what is one tile has its maximum at once",
        ),
        Constraint(
            "picking_saves_a_load",
            "TARGET == 'gather' or METHOD in ('online', 'lanes')",
            "an anchor is known before the row is read; a row read twice gains nothing from one "
            "load less",
        ),
    )


def _grid_laws() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "shares_have_work",
            f"(SPLIT - 1) * {_TRIPS} < cdiv(V, BLOCK_V)",
            "every share of a row needs at least one tile",
        ),
        Constraint(
            "waves_stride",
            f"WAVES == 0 or WAVES * {_SMS} < cdiv(M, BLOCK_M)",
            "a persistent grid needs fewer programs than there are row blocks",
        ),
        Constraint(
            "waves_take_whole_rows",
            "WAVES == 0 or BLOCK_V >= V",
            "a program gains from more rows where the next is fetched while one is at work",
        ),
    )


def _load_laws(*, odd: bool) -> tuple[Constraint, ...]:
    laws = (
        Constraint(
            "stages_fit",
            f"(num_stages - 1) * BLOCK_M * BLOCK_V * 2 <= {_SHARED_BYTES}",
            "the tiles in flight must fit the shared memory of a program",
        ),
        Constraint(
            "stages_need_trips",
            f"num_stages == 1 or num_stages <= {_TRIPS} or {_TRIPS} == 1 and WAVES > 0",
            "a row cannot be pipelined deeper than a program has tiles of it; where it is one "
            "tile, the next rows are fetched ahead",
        ),
        Constraint(
            "hints_need_loads",
            "EVICTION == '' or num_stages == 1",
            "asynchronous copies ignore the hint",
        ),
    )
    copies = Constraint(
        "copies_are_wide",
        "num_stages == 1 or READ == 'aligned'",
        "rows of an odd length are read two bytes at a time, too little for asynchronous copies",
    )
    return (*laws, copies) if odd else laws


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 logits, int64 targets and float32 losses, each once."""
    m, v = workload.extents["M"], workload.extents["V"]
    return 2 * m * v + 8 * m + 4 * m


def flops(workload: Workload) -> int:
    """Returns operations: maximum, subtraction, scaling, exponential and sum per logit."""
    return 5 * workload.extents["M"] * workload.extents["V"]


def _workload(m: int, v: int, source: str) -> Workload:
    return Workload("cross_entropy", f"{m}x{v}", {"M": m, "V": v}, "bfloat16", source)


KERNEL = Kernel(
    name="cross_entropy",
    description="logsumexp(x[m, :]) - x[m, target[m]] of bfloat16 logits x[M, V], float32 losses",
    workloads=(
        _workload(16384, 131072, "Helion autotuner study, August 2026"),
        _workload(8192, 32000, "Llama-2 vocabulary (32,000 entries), 8,192 tokens"),
        _workload(4096, 128256, "Llama-3 vocabulary (128,256 entries), 4,096 tokens"),
        _workload(2048, 50257, "GPT-2 vocabulary (50,257 entries: odd), 2,048 tokens"),
        _workload(512, 151936, "Qwen2.5 vocabulary (151,936 entries), 512 tokens"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Losses of up to 40, rounded to float32 a few times: some 2^-24 of the value each. To it adds
    # the relative error of the sum, 1e-6: ex2.approx errs by 2^-22, and a lane adds up some
    # hundred positive terms. Interpreted, losses over V = 131072 are off by up to 2e-6. 16 bytes
    # of logits left out of as many change a loss by 6e-5 on average.
    rtol=1e-6,
    atol=1e-5,
)

"""Depthwise convolution of images: strips, how often rows are read, where the filter is kept."""

from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of R x R filters, one per channel, over x[B, H, W, C].

    A program writes ROWS rows of BLOCK_W pixels x BLOCK_C channels, row by row. READ "gather"
    reads the R rows around each of them, R times each; "march" reads every input row once and
    keeps R rows of sums. A small FILTER is in "registers" all along, or read again from the L1
    "cache". num_stages rows that are read are in flight. R must be odd.
    """
    b, h, w, c, r = (workload.extents[name] for name in "BHWCR")
    kept = r <= 3  # a larger filter does not fit the registers of a thread
    tall = min(_next_power_of_two(h), 8 if kept else 32)
    deep = min(max(_next_power_of_two(c), 16), 128)
    wide = min(max(_next_power_of_two(w), 256 // deep), 64)
    small = b * h * w * c <= 2**20  # less than a wave of work: narrow strips
    least = 1 if small else 8 if kept else 4
    parameters = (
        PowerOfTwo("BLOCK_W", 1, wide, role="tile"),
        PowerOfTwo("BLOCK_C", 16, deep, role="tile"),
        PowerOfTwo("ROWS", 1, tall),
        Choice("READ", ("gather", "march")),
        *([Choice("FILTER", ("registers", "cache"))] if kept else []),
        PowerOfTwo("num_warps", 1, 8, role="warps"),
        Integer("num_stages", 1, 3, role="stages"),
    )
    block_w = min(wide, max(8, 256 // deep))
    block_c = min(deep, 256 // block_w)
    default = {
        "BLOCK_W": block_w,
        "BLOCK_C": block_c,
        "ROWS": 1,
        "READ": "gather",
        **({"FILTER": "cache"} if kept else {}),
        "num_warps": 1,
        "num_stages": 1,
    }
    wave = _SMS // 2 if small else _SMS
    programs = -(-w // block_w) * -(-c // block_c)
    return ParameterSpace(
        parameters,
        constraints=_constraints(min(wave, max(1, b * h * programs // 8)), least=least),
        default=default,
        constants={"B": b, "H": h, "W": w, "C": c, "R": r} | ({} if kept else {"FILTER": "cache"}),
    )


def _constraints(fewest: int, *, least: int) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "strip_has_work",
            f"BLOCK_W * BLOCK_C >= {least} * 32 * num_warps",
            f"a row of a strip needs at least {least} outputs a thread",
        ),
        Constraint(
            "strip_fits",
            "BLOCK_W * BLOCK_C * (R + 1 if READ == 'march' else 4) <= 128 * 32 * num_warps",
            "the sums of a thread must fit half of its registers",
        ),
        Constraint(
            "march_pays",
            "READ == 'gather' or ROWS >= 4 and ROWS + 1 >= R",
            "marching pays once a strip has about as many rows as the filter",
        ),
        Constraint(
            "gather_strips",
            "READ == 'march' or ROWS <= 16",
            "rows that share nothing gain nothing from a long strip",
        ),
        Constraint(
            "stages_need_rows",
            "num_stages == 1 or num_stages <= (R if READ == 'gather' and FILTER == 'cache'"
            " else ROWS)",
            "there cannot be more rows in flight than are read one after the other",
        ),
        Constraint(
            "stages_fit",
            "num_stages * BLOCK_W * BLOCK_C * 2 * (R * R if READ == 'gather' and FILTER =="
            f" 'registers' else R) <= {_SHARED_BYTES} or num_stages == 1",
            "the rows in flight must fit the shared memory of a program",
        ),
        Constraint(
            "enough_programs",
            f"B * cdiv(H, ROWS) * cdiv(W, BLOCK_W) * cdiv(C, BLOCK_C) >= {fewest}",
            f"the outputs must be shared by at least {fewest} programs",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: float16 images in and out and filters, each once."""
    b, h, w, c, r = (workload.extents[name] for name in "BHWCR")
    return 2 * (2 * b * h * w + r * r) * c


def flops(workload: Workload) -> int:
    """Returns operations: one multiplication and one addition per output and tap."""
    b, h, w, c, r = (workload.extents[name] for name in "BHWCR")
    return 2 * b * h * w * c * r * r


def _workload(b: int, h: int, w: int, c: int, r: int, source: str) -> Workload:
    extents = {"B": b, "H": h, "W": w, "C": c, "R": r}
    return Workload("depthwise_conv", f"{b}x{h}x{w}x{c}x{r}", extents, "float16", source)


KERNEL = Kernel(
    name="depthwise_conv",
    description="R x R filter per channel over x[B, H, W, C], zero padded, float16 in and out",
    workloads=(
        _workload(128, 56, 56, 144, 3, "MobileNetV2, second stage (6 x 24 channels), batch 128"),
        _workload(64, 56, 56, 96, 7, "ConvNeXt-T, first stage, batch 64"),
        _workload(8, 14, 14, 384, 7, "ConvNeXt-T, third stage, batch 8"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Products are exact in float32, sums of up to 49 of them of about 7 are rounded in it
    # (2^-24 each) and once to float16: half a unit in the last place is 2^-11 of the value.
    rtol=2e-3,
    atol=2e-5,
)

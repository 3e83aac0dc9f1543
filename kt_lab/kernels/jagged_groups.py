"""What rowwise and colwise scales of token groups have in common: shapes, space, counts."""

from kt_lab.errors import UsageError
from kt_lab.kernels.moe_groups import aligned
from kt_lab.parameters import Ordered
from kt_lab.space import Choice, Constraint, Flag, ParameterSpace, PowerOfTwo
from kt_lab.workload import Workload

FEATURES_FIRST, TOKENS_FIRST = 1, 2  # values of LAYOUT: what neighbours in memory differ in
_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_PUBLISHED = (  # where configs that were published differ in num_stages, which does nothing there
    "num_stages == 2 and BLOCK in (32, 64, 128, 256) and BLOCK_ITER in (64, 128, 256) "
    "and num_warps in (4, 8) and ASSUME == 1 and not ONCE and not BACKWARD "
    "and FIRST == 'lines'"
)


def jagged(
    kernel: str, tokens: int, width: int, groups: int, skew: int, source: str, *, layout: int = 1
) -> Workload:
    """Returns a workload: `width` lines of `tokens` tokens in `groups` groups, bfloat16.

    Args:
        kernel: Name of the kernel.
        tokens: Tokens of all groups together.
        width: Features of a token; each has a scale per group.
        groups: Groups, one per expert; they may be empty.
        skew: How tokens are shared, see `moe_groups.SKEWS`.
        source: Who runs or benchmarks it.
        layout: 1: the features of a token are neighbours in memory; 2: the tokens of a feature.
    """
    extents = {"TOKENS": tokens, "WIDTH": width, "GROUPS": groups, "SKEW": skew, "LAYOUT": layout}
    return Workload(kernel, "x".join(map(str, extents.values())), extents, "bfloat16", source)


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of a scale per line and group, and of what it scales.

    A program reads BLOCK lines of one group in steps of BLOCK_ITER tokens, and again to cast
    them: from the end if BACKWARD. If ONCE, maxima are joined across threads at the end of the
    first reading, otherwise at each step. If PIPELINED, num_stages steps are in flight; otherwise
    num_stages does nothing, as in torchao. ASSUME is what the ends of groups are taken to be
    multiples of: 16, which allows wide loads and stores, only where they are. FIRST says whether
    neighbouring programs differ in lines or in groups. The default is torchao's single config.
    """
    if (layout := workload.extents["LAYOUT"]) not in (FEATURES_FIRST, TOKENS_FIRST):
        raise UsageError(f"LAYOUT must be 1 or 2, got LAYOUT={layout} of {workload.key}")
    parameters = (
        PowerOfTwo("BLOCK", 16, 256, role="tile"),
        PowerOfTwo("BLOCK_ITER", 16, 256, role="tile"),
        Choice("ASSUME", (1, 16)),
        Flag("PIPELINED"),
        Flag("ONCE"),
        Flag("BACKWARD"),
        Choice("FIRST", ("lines", "groups")),
        PowerOfTwo("num_warps", 2, 16, role="warps"),
        Ordered("num_stages", (2, 3, 4), role="stages"),
    )
    default = {
        "BLOCK": 32,
        "BLOCK_ITER": 128,
        "ASSUME": 1,
        "PIPELINED": False,
        "ONCE": False,
        "BACKWARD": False,
        "FIRST": "lines",
        "num_warps": 4,
        "num_stages": 3,
    }
    constants = {name: workload.extents[name] for name in ("WIDTH", "TOKENS", "GROUPS")}
    constants |= {"BYTES": 4 if workload.dtype == "float32" else 2, "ALIGNED": aligned(workload)}
    return ParameterSpace(parameters, constraints=_laws(), default=default, constants=constants)


def _laws() -> tuple[Constraint, ...]:
    return (
        Constraint(
            "ends_are_multiples",
            "ASSUME == 1 or ALIGNED",
            "the ends of groups must be the multiples that they are taken to be",
        ),
        Constraint(
            "tile_has_work",
            "BLOCK * BLOCK_ITER >= 8 * 32 * num_warps",
            "a tile needs at least 8 elements a thread",
        ),
        Constraint(
            "tile_fits",
            "BLOCK * BLOCK_ITER <= 32 * 32 * num_warps or num_warps in (4, 8) "
            "and BLOCK in (32, 64, 128, 256) and BLOCK_ITER in (64, 128, 256) "
            "and BLOCK * BLOCK_ITER <= 128 * 256 and not PIPELINED",
            "a tile may have at most 32 elements a thread, unless it was published",
        ),
        Constraint(
            "tile_exists",
            "BLOCK <= max(256, next_power_of_two(WIDTH))",
            "a tile may not have more lines than there are, rounded up",
        ),
        Constraint(
            "kept_maxima_fit",
            "not ONCE or BLOCK * BLOCK_ITER <= 32 * 32 * num_warps and FIRST == 'lines'",
            "a thread may keep at most 32 maxima beside its elements",
        ),
        Constraint(
            "groups_to_order",
            "FIRST == 'lines' or GROUPS > 1 and not PIPELINED and not BACKWARD",
            "other orders are tried where there are groups, with the plain loop",
        ),
        Constraint(
            "stages_in_flight",
            "not PIPELINED or num_stages in (2, 4)",
            "2 or 4 steps are in flight",
        ),
        Constraint(
            "stages_fit",
            f"not PIPELINED or num_stages * BLOCK * BLOCK_ITER * BYTES <= {_SHARED_BYTES}",
            "the steps in flight must fit the shared memory of a program",
        ),
        Constraint(
            "idle_stages",
            f"PIPELINED or num_stages == 3 or {_PUBLISHED}",
            "num_stages does nothing here; published configs differ in it all the same",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: each element read once and a byte written, ends of groups, scales.

    Both readings of a program's lines may meet in the caches, as a group is as short as it likes;
    where they do not, a kernel of two readings moves two thirds more.
    """
    tokens, width, groups = (workload.extents[n] for n in ("TOKENS", "WIDTH", "GROUPS"))
    each = 5 if workload.dtype == "float32" else 3
    return each * tokens * width + 4 * groups * (width + 1)


def flops(workload: Workload) -> int:
    """Returns operations: a comparison and a product per element."""
    return 2 * workload.extents["TOKENS"] * workload.extents["WIDTH"]

"""GroupNorm: how a group of channels is cut up, shared by programs, kept or read twice."""

from kt_lab.kernels.row_space import next_power_of_two
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

MOST_PROGRAMS = 128  # that share a group and wait for each other: an H100 runs 132 at once
_TILE = 32768  # most elements of a tile: as float32 half of a multiprocessor's registers


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of a GroupNorm of x[B, G * D, H, W] over D channels at a time.

    BLOCK_D x BLOCK_S is a tile of channels and pixels. A program takes TRIPS of them; a single
    tile is read once and kept in registers, more are read twice, in the same ORDER or backwards.
    As many programs as a group then needs wait for each other's sums. VARIANCE is the mean of
    squared deviations (of several tiles one by one, after Welford and Chan), or the mean of
    squares less the squared mean.
    """
    b, g, d, s = _extents(workload)
    tall, wide = next_power_of_two(d), next_power_of_two(s)
    lowest, widest = _tile_range(s)
    most = next_power_of_two(d * -(-s // widest))
    fewest = 2 if s <= 1024 else 4 if s <= 4096 else 8
    parameters = (
        PowerOfTwo("BLOCK_D", 1, min(tall, 16 if wide >= 1024 else 64), role="tile"),
        PowerOfTwo("BLOCK_S", lowest, widest, role="tile"),
        PowerOfTwo("TRIPS", 1, most),
        Choice("VARIANCE", ("centred", "moments")),
        Choice("ORDER", ("same", "backwards")),
        PowerOfTwo("num_warps", fewest, 32, role="warps"),
        Integer("num_stages", 1, 3, role="stages"),
    )
    default = {
        "BLOCK_D": 1,
        "BLOCK_S": widest,
        "TRIPS": _default_trips(b * g, d * -(-s // widest)),
        "VARIANCE": "centred",
        "ORDER": "same",
        "num_warps": min(max(widest // 512, fewest), 16),
        "num_stages": 1,
    }
    return ParameterSpace(
        parameters,
        constraints=_constraints(fewest),
        default=default,
        constants={"B": b, "G": g, "D": d, "S": s},
    )


def _extents(workload: Workload) -> tuple[int, int, int, int]:
    b, g, d, h, w = (workload.extents[name] for name in "BGDHW")
    return b, g, d, h * w


def _tile_range(s: int) -> tuple[int, int]:
    wide = min(max(next_power_of_two(s), 32), 16384)
    return min(256 if s <= 1024 else 512 if s <= 4096 else 2048, wide), wide


def _default_trips(groups: int, tiles: int) -> int:
    """Returns as many trips as leave work for 64 programs, or four."""
    trips = next_power_of_two(tiles)
    while trips > 4 and groups * -(-tiles // trips) < 64:
        trips //= 2
    return trips


def _constraints(fewest: int) -> tuple[Constraint, ...]:
    blocks = "cdiv(D, BLOCK_D) * cdiv(S, BLOCK_S)"
    return (
        Constraint(
            "tile_has_work",
            f"BLOCK_D * BLOCK_S >= 256 * num_warps or num_warps == {fewest}",
            "a tile needs at least 16 bytes a thread, unless it is as small as can be",
        ),
        Constraint(
            "tile_fits",
            f"BLOCK_D * BLOCK_S <= min({_TILE}, 2048 * num_warps)",
            "a tile may have at most 64 elements a thread",
        ),
        Constraint(
            "channels_exist",
            "BLOCK_D <= next_power_of_two(D)",
            "a tile may not have more channels than a group, rounded up",
        ),
        Constraint(
            "rows_are_whole",
            "BLOCK_D == 1 or BLOCK_S >= S or BLOCK_S >= 2048",
            "several channels are taken together if they are short, or in long pieces",
        ),
        Constraint(
            "trips_exist",
            f"TRIPS < 2 * {blocks}",
            "a program cannot take more tiles than a group has, rounded up",
        ),
        Constraint(
            "group_is_shared",
            f"cdiv({blocks}, TRIPS) <= {MOST_PROGRAMS}",
            "programs that wait for each other must all be running",
        ),
        Constraint(
            "enough_programs",
            f"TRIPS <= 4 or B * G * cdiv({blocks}, TRIPS) >= 64",
            "half of the multiprocessors need work, unless parts are short",
        ),
        Constraint(
            "second_reading",
            "TRIPS > 1 or ORDER == 'same' and num_stages == 1",
            "what is kept in registers is neither read again nor pipelined",
        ),
        Constraint(
            "stages_fit",
            "num_stages <= TRIPS and (num_stages - 1) * BLOCK_D * BLOCK_S * 2 <= 232448",
            "the tiles in flight must exist and fit the shared memory of a program",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: float16 in and out, weights and biases, each once."""
    b, g, d, s = _extents(workload)
    return 2 * (2 * b * g * d * s + 2 * g * d)


def flops(workload: Workload) -> int:
    """Returns operations: two sums, a square and a subtraction, and two to scale an element."""
    b, g, d, s = _extents(workload)
    return 6 * b * g * d * s


def _workload(b: int, c: int, h: int, w: int, source: str) -> Workload:
    extents = {"B": b, "G": 32, "D": c // 32, "H": h, "W": w}
    return Workload("group_norm", "x".join(map(str, extents.values())), extents, "float16", source)


KERNEL = Kernel(
    name="group_norm",
    description="group normalisation of x[B, G * D, H, W] over groups of D channels, float16",
    workloads=(
        _workload(8, 128, 256, 256, "DDPM on LSUN 256x256 at full resolution, 8 images"),
        _workload(2, 320, 64, 64, "Stable Diffusion 1.5 UNet, first block, 512x512, guided"),
        _workload(2, 1920, 32, 32, "Stable Diffusion 1.5 UNet, up block after a skip, guided"),
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

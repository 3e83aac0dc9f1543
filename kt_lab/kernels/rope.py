"""Rotary position embedding: tokens and heads of a tile, and how a head's halves are read."""

from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_MAX_TILE = 64  # elements a thread: twice as many in float32 fill half of its registers


def _next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def positions(workload: Workload) -> int:
    """Returns the rows of the cosine and sine tables: the longest context, in tokens."""
    return max(8192, workload.extents["S"])


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of a rotary embedding of H query and HK key heads of D elements.

    BLOCK_T tokens x BLOCK_H heads are a tile; a program takes TRIPS tiles of its tokens, with
    num_stages of them in flight, and reads their cosines and sines once. ROTATE reads the halves
    of a head apart, or whole heads twice ("partner": as they are and with their halves swapped).
    FIRST says whether neighbouring programs share tokens ("heads" vary first) or heads.
    """
    heads = workload.extents["H"] + workload.extents["HK"]
    tokens = workload.extents["B"] * workload.extents["S"]
    width = _next_power_of_two(workload.extents["D"])
    small = tokens * heads * width <= 2**20  # less than a wave of work
    tall = min(_next_power_of_two(tokens), 16)
    wide = min(_next_power_of_two(heads), 16)
    parameters = (
        PowerOfTwo("BLOCK_T", 1, tall, role="tile"),
        PowerOfTwo("BLOCK_H", 1, wide, role="tile"),
        PowerOfTwo("TRIPS", 1, 8),
        Choice("ROTATE", ("halves", "partner")),
        Choice("FIRST", ("heads", "tokens")),
        PowerOfTwo("num_warps", 1, 8, role="warps"),
        Integer("num_stages", 1, 3, role="stages"),
    )
    default = {
        "BLOCK_T": 1,
        "BLOCK_H": min(wide, max(1, 1024 // width)),
        "TRIPS": 1,
        "ROTATE": "halves",
        "FIRST": "heads",
        "num_warps": max(1, min(8, width // 1024)),
        "num_stages": 1,
    }
    return ParameterSpace(
        parameters,
        constraints=_constraints(tokens * heads * width, small=small),
        default=default,
        constants={"TOKENS": tokens, "HEADS": heads, "WIDTH": width},
    )


def _constraints(elements: int, *, small: bool) -> tuple[Constraint, ...]:
    tile = "BLOCK_T * BLOCK_H * WIDTH"
    least = 2 if small else 8
    fewest = min(_SMS // 2 if small else _SMS, max(1, elements // 8192))
    return (
        Constraint(
            "tile_has_work",
            f"{tile} >= {least} * 32 * num_warps or num_warps == 1",
            f"a tile needs at least {least} elements a thread",
        ),
        Constraint(
            "tile_fits",
            f"{tile} <= {_MAX_TILE} * 32 * num_warps or BLOCK_T * BLOCK_H == 1",
            f"a tile may have at most {_MAX_TILE} elements a thread",
        ),
        Constraint(
            "enough_programs",
            f"cdiv(TOKENS, BLOCK_T) * cdiv(cdiv(HEADS, BLOCK_H), TRIPS) >= {fewest}"
            " or BLOCK_T * TRIPS == 1",
            f"the tiles must be shared by at least {fewest} programs",
        ),
        Constraint(
            "trips_have_work",
            "TRIPS == 1 or TRIPS <= cdiv(HEADS, BLOCK_H)",
            "a program cannot take more tiles than its tokens have",
        ),
        Constraint(
            "stages_need_trips",
            "num_stages == 1 or num_stages <= TRIPS",
            "a program cannot have more tiles in flight than it takes",
        ),
        Constraint(
            "stages_fit",
            f"(num_stages - 1) * {tile} * (4 if ROTATE == 'partner' else 2) <= {_SHARED_BYTES}",
            "the tiles in flight must fit the shared memory of a program",
        ),
        Constraint(
            "partner_is_worth_it",
            f"ROTATE == 'halves' or {tile} <= 32 * 32 * num_warps and TRIPS <= 2",
            "heads that are read twice leave room for 32 elements a thread, of two tiles",
        ),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 query and key heads in and out; a table row and place a token."""
    b, s, h, hk, d = (workload.extents[name] for name in ("B", "S", "H", "HK", "D"))
    return 2 * 2 * b * s * (h + hk) * d + 2 * s * d + 8 * b * s


def flops(workload: Workload) -> int:
    """Returns operations: two products and a sum per element."""
    b, s, h, hk, d = (workload.extents[name] for name in ("B", "S", "H", "HK", "D"))
    return 3 * b * s * (h + hk) * d


def _workload(b: int, s: int, h: int, hk: int, d: int, source: str) -> Workload:
    extents = {"B": b, "S": s, "H": h, "HK": hk, "D": d}
    return Workload("rope", f"{b}x{s}x{h}x{hk}x{d}", extents, "bfloat16", source)


KERNEL = Kernel(
    name="rope",
    description="rotary embedding (halves apart) of the query and key heads of fused projections",
    workloads=(
        _workload(4, 4096, 32, 8, 128, "Llama-3-8B, prefill of four prompts of 4,096 tokens"),
        _workload(1, 2048, 32, 8, 256, "TritonBench rope: hidden size 8192, 2,048 tokens"),
        _workload(1, 4096, 32, 32, 96, "Phi-3-mini: heads of 96 elements, 4,096 tokens"),
        _workload(64, 1, 28, 4, 128, "Qwen2.5-7B, decoding 64 sequences"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Two products of bfloat16 numbers are exact in float32, their sum is rounded in it (2^-24 of
    # operands of at most about 6) and once to bfloat16: half a unit in the last place is 2^-8 of
    # the value (a whole one, 2^-7, where a conversion truncates, as Triton's interpreter does).
    rtol=8e-3,
    atol=1e-5,
)

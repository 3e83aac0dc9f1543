"""What the matrix product kernels have in common: three families of spaces and their laws."""

from kt_lab.space import Choice, Constraint, Integer, Parameter, ParameterSpace, PowerOfTwo
from kt_lab.workload import Workload

_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_SKINNY_ROWS = 64  # products of at most this many rows are bound by reading B
_MOST_SPLITS = 32
_FEWEST_PROGRAMS = 128  # of a split product, if there are as many to be had
_MOST_PROGRAMS = 8 * _SMS  # beyond, splitting only adds partial sums
_TILES = "BATCH * cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)"
_SHARE = "cdiv(cdiv(K, BLOCK_K), SPLIT_K)"  # blocks that one split reduces over
SCHEDULES = ("tiles", "persistent", "flattened")
LOADS = ("pointers", "descriptors")
EPILOGUES = ("whole", "halves")


def cdiv(a: int, b: int) -> int:
    """Returns a / b rounded up, for positive integers."""
    return -(-a // b)


def _power_of_two(n: int, low: int, high: int) -> int:
    return min(max(1 << (n - 1).bit_length(), low), high)


def max_split(workload: Workload) -> int:
    """Returns the most parts that the reduction may be split into; 1: it is never split."""
    batch, m, _, n = constants(workload).values()
    split = 1
    if m <= _SKINNY_ROWS:
        while split < _MOST_SPLITS and 2 * split * batch * cdiv(n, 256) <= _MOST_PROGRAMS:
            split *= 2
    return split


def describable(workload: Workload) -> bool:
    """Whether tensor descriptors may be made: rows of A, B and C in multiples of 16 bytes."""
    return workload.extents["K"] % 8 == 0 and workload.extents["N"] % 8 == 0


def constants(workload: Workload) -> dict[str, int]:
    """Returns what constraints may name besides parameters: BATCH, M, K and N."""
    sizes = {name: workload.extents[name] for name in "MKN"}
    return {"BATCH": workload.extents.get("B", 1)} | sizes


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of C = A[M, K] @ B[K, N], or of B such products.

    BLOCK_M x BLOCK_N is the tile of the output, reduced over BLOCK_K elements at a time. GROUP_M
    row tiles are visited before moving on to the next columns. SCHEDULE is one program per tile
    ("tiles"), one per multiprocessor that strides over tiles ("persistent"), or that with the
    loops over tiles and over K made one ("flattened"). LOADS reads through pointers or through
    tensor descriptors (TMA on Hopper), which need rows in multiples of 16 bytes. EPILOGUE writes
    a tile whole or in two halves, which need less shared memory. SPLIT_K programs share a tile;
    the last to finish adds their parts up in a fixed order, within the launch that is timed.
    ORDER "ba" computes the transposed product, whose many columns fill wgmma's 64 rows.

    At most 64 rows: bound by reading B, split over K. At most 64 columns: bound by reading A.
    """
    if workload.extents["M"] <= _SKINNY_ROWS:
        return _skinny(workload)
    return _narrow(workload) if workload.extents["N"] <= 64 else _wide(workload)


def _wide(workload: Workload) -> ParameterSpace:
    """Returns the space of products with more than 64 rows and columns: bound by arithmetic."""
    sizes = constants(workload)
    batch, m, k, n = sizes.values()
    through = describable(workload)
    parameters: list[Parameter] = [
        PowerOfTwo("BLOCK_M", 64, _power_of_two(m, 128, 256), role="tile"),
        PowerOfTwo("BLOCK_N", 64 if through else 32, _power_of_two(n, 128, 256), role="tile"),
        PowerOfTwo("BLOCK_K", 32, 128, role="tile"),
        Choice("GROUP_M", (1, 8)),
    ]
    constraints = [*tile_laws(fewest=64 if through else 32), GROUPS_NEED_COLUMNS]
    if persistent := batch * cdiv(m, 128) * cdiv(n, 128) > _SMS:
        parameters.append(Choice("SCHEDULE", SCHEDULES))
        constraints += persistent_laws(16384 if through else 8192)
    if through:
        parameters.append(Choice("LOADS", LOADS))
    if through and persistent:
        parameters.append(Choice("EPILOGUE", EPILOGUES))
        constraints.append(halves_law(128))
    fewest_stages = 2 if through and k > 32 else 1
    parameters += [
        PowerOfTwo("num_warps", 4, 8, role="warps"),
        Integer("num_stages", fewest_stages, 5 if through else 4, role="stages"),
    ]
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8}
    default = _plain(parameters) | tile | _depth(k)
    return ParameterSpace(parameters, constraints=constraints, default=default, constants=sizes)


def _narrow(workload: Workload) -> ParameterSpace:
    """Returns the space of products with at most 64 columns: bound by reading A."""
    sizes = constants(workload)
    batch, m, k, n = sizes.values()
    high_n = _power_of_two(n, 16, 64)
    parameters: list[Parameter] = [
        PowerOfTwo("BLOCK_M", 32, _power_of_two(m, 128, 256), role="tile"),
        PowerOfTwo("BLOCK_N", 16, high_n, role="tile"),
        PowerOfTwo("BLOCK_K", 32, 256, role="tile"),
    ]
    constraints = list(tile_laws(fewest=8))
    if batch * cdiv(m, 64) * cdiv(n, 64) > _SMS:
        parameters.append(Choice("SCHEDULE", SCHEDULES))
        constraints += persistent_laws(4096)
    if describable(workload):
        parameters.append(Choice("LOADS", LOADS))
    parameters += [
        PowerOfTwo("num_warps", 1, 8, role="warps"),
        Integer("num_stages", 2 if k > 32 else 1, 5, role="stages"),
    ]
    tile = {"BLOCK_M": 64, "BLOCK_N": high_n, "num_warps": 4}
    default = _plain(parameters) | tile | _depth(k)
    return ParameterSpace(parameters, constraints=constraints, default=default, constants=sizes)


def _skinny(workload: Workload) -> ParameterSpace:
    """Returns the space of products with at most 64 rows: bound by reading B, split over K."""
    sizes = constants(workload)
    batch, m, k, n = sizes.values()
    high_n = _power_of_two(n, 64, 256)
    parameters: list[Parameter] = []
    if m > 16:
        parameters.append(PowerOfTwo("BLOCK_M", 16, _power_of_two(m, 32, 64), role="tile"))
    else:
        sizes["BLOCK_M"] = 16  # the only tile height; no axis
    parameters += [
        PowerOfTwo("BLOCK_N", 32, high_n, role="tile"),
        PowerOfTwo("BLOCK_K", 32, 256, role="tile"),
        PowerOfTwo("SPLIT_K", 1, max_split(workload)),
        Choice("ORDER", ("ab", "ba")),
    ]
    if describable(workload):
        parameters.append(Choice("LOADS", LOADS))
    parameters += [
        PowerOfTwo("num_warps", 1 if n <= 128 else 2, 8, role="warps"),
        Integer("num_stages", 2 if k > 32 else 1, 6, role="stages"),
    ]
    default = _plain(parameters) | {"BLOCK_N": 64, "num_warps": 2} | _depth(k)
    plain_tiles, blocks = batch * cdiv(m, 16) * cdiv(n, 64), cdiv(k, default["BLOCK_K"])
    split = _plain_split(plain_tiles, blocks=blocks, most=max_split(workload))
    default |= {"SPLIT_K": split, "num_stages": min(cdiv(blocks, split), 3)}
    constraints = (
        *tile_laws(fewest=4, trips=_SHARE),
        *_split_laws(min(_FEWEST_PROGRAMS, plain_tiles * split)),
    )
    return ParameterSpace(parameters, constraints=constraints, default=default, constants=sizes)


def _depth(k: int) -> dict[str, int]:
    """Returns BLOCK_K and num_stages of a default: three stages of 64 where K is that long."""
    if k > 128:
        return {"BLOCK_K": 64, "num_stages": 3}
    return {"BLOCK_K": 32, "num_stages": min(cdiv(k, 32), 2)}


def _plain_split(tiles: int, *, blocks: int, most: int) -> int:
    """Returns the fewest parts that make enough programs, each with two blocks at least."""
    found = split = 1
    while tiles * found < _FEWEST_PROGRAMS and split < most:
        split *= 2
        share = cdiv(blocks, split)
        if share >= 2 and (split - 1) * share < blocks:
            found = split
    return found


def tile_laws(*, fewest: int, trips: str = "cdiv(K, BLOCK_K)") -> tuple[Constraint, ...]:
    """Returns the laws on tile, warps and stages that every product obeys.

    Args:
        fewest: Accumulators that a thread must hold at least, 1..128.
        trips: Expression for the blocks that a program reduces over.
    """
    return (
        Constraint(
            "accumulators_fit",
            "BLOCK_M * BLOCK_N <= 4096 * num_warps",
            "a thread may hold at most 128 accumulators",
        ),
        Constraint(
            "tile_has_work",
            f"BLOCK_M * BLOCK_N >= {32 * fewest} * num_warps",
            f"a thread needs at least {fewest} accumulators",
        ),
        Constraint(
            "shared_fits",
            f"num_stages * 2 * BLOCK_K * (BLOCK_M + BLOCK_N) <= {_SHARED_BYTES}",
            "the tiles of A and B in flight must fit the shared memory of a program",
        ),
        Constraint(
            "stages_need_trips",
            f"num_stages == 1 or num_stages <= {trips}",
            "a product cannot be pipelined deeper than it has blocks",
        ),
    )


GROUPS_NEED_COLUMNS = Constraint(
    "groups_need_columns",
    "GROUP_M == 1 or cdiv(M, BLOCK_M) > 1 and cdiv(N, BLOCK_N) > 1",
    "grouping matters only where there are several rows and columns of tiles",
)


def persistent_laws(smallest: int) -> tuple[Constraint, ...]:
    """Returns what a persistent grid needs: many tiles, of `smallest` elements at least."""
    return (
        Constraint(
            "persistent_needs_tiles",
            f"SCHEDULE == 'tiles' or {_TILES} > {_SMS}",
            "a persistent grid needs more tiles than there are multiprocessors",
        ),
        Constraint(
            "persistent_fills",
            f"SCHEDULE == 'tiles' or BLOCK_M * BLOCK_N >= {smallest}",
            "a program that has a multiprocessor to itself needs a tile of at least "
            f"{smallest:,} elements",
        ),
    )


def halves_law(narrowest: int) -> Constraint:
    """Returns where it pays to write a tile in halves of `narrowest` / 2 columns or more."""
    return Constraint(
        "halves_save_memory",
        "EPILOGUE == 'whole' or SCHEDULE != 'tiles' and LOADS == 'descriptors' "
        f"and BLOCK_N >= {narrowest}",
        "halves save shared memory only where the next tile's loads share it with a wide tile "
        "that is stored through a descriptor",
    )


def _split_laws(fewest: int) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "enough_programs",
            f"{_TILES} * SPLIT_K >= {fewest}",
            f"the product must be shared by at least {fewest} programs",
        ),
        Constraint(
            "splits_fit",
            f"SPLIT_K == 1 or {_TILES} * SPLIT_K <= {_MOST_PROGRAMS}",
            f"splitting pays only up to {_MOST_PROGRAMS} programs, eight a multiprocessor",
        ),
        Constraint(
            "splits_have_work",
            f"(SPLIT_K - 1) * {_SHARE} < cdiv(K, BLOCK_K)",
            "every split needs at least one block of the reduction",
        ),
        Constraint(
            "loads_have_work",
            "1024 * num_warps <= BLOCK_K * BLOCK_N <= 8192 * num_warps",
            "a thread needs 64 to 512 bytes of B a step",
        ),
        Constraint(
            "order_needs_wgmma",
            "ORDER == 'ab' or BLOCK_N >= 64 and num_warps >= 4",
            "the transposed product is for wgmma: 64 columns and four warps at least",
        ),
    )


def _plain(parameters: list[Parameter]) -> dict[str, int | str]:
    return {parameter.name: parameter.values[0] for parameter in parameters}


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: bfloat16 A, B and C, each once."""
    batch, m, k, n = constants(workload).values()
    return 2 * batch * (m * k + k * n + m * n)


def flops(workload: Workload) -> int:
    """Returns operations: one multiplication and one addition per term."""
    batch, m, k, n = constants(workload).values()
    return 2 * batch * m * k * n

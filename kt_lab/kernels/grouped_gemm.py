"""Matrix product of each expert's tokens with its weights: tile, walk over tiles, loads, order."""

from kt_lab.kernels.gemm import LOADS, SCHEDULES, cdiv, tile_laws
from kt_lab.kernels.moe_groups import HEAVY, RAGGED, group_ends
from kt_lab.space import Choice, Constraint, Integer, Parameter, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_FEW_TOKENS = 64  # up to so many per expert that has any, reading weights takes longest
_ROW_TILES = "max(cdiv(T, BLOCK_M), USED)"  # or more: the sum over experts is known to a launch


def ends(workload: Workload) -> tuple[int, ...]:
    """Returns the end of each expert's tokens, ascending; the last is T.

    Raises:
        UsageError: SKEW is none of `moe_groups.SKEWS`.
    """
    names = {"TOKENS": "T", "GROUPS": "E", "SKEW": "SKEW"}
    extents = {name: workload.extents[own] for name, own in names.items()}
    return group_ends(Workload(workload.kernel, workload.name, extents, workload.dtype))


def constants(workload: Workload) -> dict[str, int]:
    """Returns what constraints may name besides parameters.

    T, K and N; USED experts that have tokens; LARGEST, the tokens of the one that has most.
    """
    upto = ends(workload)
    sizes = [end - start for start, end in zip((0, *upto), upto, strict=False)]
    facts = {"USED": sum(size > 0 for size in sizes), "LARGEST": max(sizes)}
    return {name: workload.extents[name] for name in ("T", "K", "N")} | facts


def describable(workload: Workload) -> bool:
    """Whether tensor descriptors may be made: rows in multiples of 16 bytes, fewer than 2^31.

    The weights of all experts are described as one matrix of E * N rows.
    """
    _, k, n, experts, _ = workload.extents.values()
    return k % 8 == 0 and n * experts < 2**31


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of C = A B[e]^T for each expert's rows of A[T, K], B[E, N, K].

    BLOCK_M x BLOCK_N is the tile of the output, of one expert's tokens, reduced over BLOCK_K
    elements at a time. Within an expert, GROUP_M row tiles are visited before moving on to the
    next columns: many read weights once, one reads tokens once. SCHEDULE is one program per tile
    that there may be ("tiles"), one per multiprocessor that strides over the tiles that there
    are ("persistent"), or that with the loops over tiles and over K made one ("flattened").
    LOADS reads through pointers or through tensor descriptors (TMA on Hopper), which need rows
    in multiples of 16 bytes; the output, whose rows end with their expert, is written through
    pointers. ORDER "ba" computes the transposed product, whose many columns fill wgmma's 64 rows
    where an expert has few.

    At most 64 tokens per expert that has any: bound by reading the weights. More: by arithmetic.
    """
    facts = constants(workload)
    few = cdiv(facts["T"], facts["USED"]) <= _FEW_TOKENS
    return (_few if few else _many)(workload, facts)


def _many(workload: Workload, facts: dict[str, int]) -> ParameterSpace:
    """Returns the space of experts with more than 64 tokens on average."""
    k, through = facts["K"], describable(workload)
    narrowest = 64 if through else 32
    parameters: list[Parameter] = [
        PowerOfTwo("BLOCK_M", 64, _power_of_two(facts["LARGEST"], 128, 256), role="tile"),
        PowerOfTwo("BLOCK_N", narrowest, _power_of_two(facts["N"], 128, 256), role="tile"),
        PowerOfTwo("BLOCK_K", 32, 128, role="tile"),
        Choice("GROUP_M", (1, 4, 16)),
        *_walks(facts, through=through),
        PowerOfTwo("num_warps", 4, 8, role="warps"),
        Integer("num_stages", 2 if through and k > 32 else 1, 5, role="stages"),
    ]
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8}
    default = _plain(parameters) | tile | _depth(k)
    constraints = (
        *tile_laws(fewest=narrowest),
        *_GROUPS,
        *_persistent_laws(
            parameters, 256 * narrowest, of="BLOCK_M * BLOCK_N", what="output a tile"
        ),
    )
    return ParameterSpace(parameters, constraints=constraints, default=default, constants=facts)


def _few(workload: Workload, facts: dict[str, int]) -> ParameterSpace:
    """Returns the space of experts with at most 64 tokens on average."""
    k, through, default_depth = facts["K"], describable(workload), _depth(facts["K"])
    parameters: list[Parameter] = []
    if facts["LARGEST"] > 16:
        tallest = _power_of_two(facts["LARGEST"], 32, 64)
        parameters.append(PowerOfTwo("BLOCK_M", 16, tallest, role="tile"))
    else:
        facts["BLOCK_M"] = 16  # the only tile height; no axis
    parameters += [
        PowerOfTwo("BLOCK_N", 32, _power_of_two(facts["N"], 64, 256), role="tile"),
        PowerOfTwo("BLOCK_K", default_depth["BLOCK_K"], 256, role="tile"),
        Choice("ORDER", ("ab", "ba")),
        *_walks(facts, through=through),
        PowerOfTwo("num_warps", 2, 8, role="warps"),
        Integer("num_stages", 2 if k > 32 else 1, 6, role="stages"),
    ]
    default = _plain(parameters) | {"BLOCK_N": 64, "num_warps": 2} | default_depth
    in_flight = "(num_stages - 1) * BLOCK_K * BLOCK_N"
    constraints = (
        *tile_laws(fewest=4),
        *_WEIGHTS,
        *_persistent_laws(parameters, 32768, of=in_flight, what="weights on their way"),
    )
    return ParameterSpace(parameters, constraints=constraints, default=default, constants=facts)


def _walks(facts: dict[str, int], *, through: bool) -> list[Parameter]:
    """Returns SCHEDULE and LOADS as far as there is a choice."""
    tiles = max(cdiv(facts["T"], 128), facts["USED"]) * cdiv(facts["N"], 128)
    schedules = Choice("SCHEDULE", SCHEDULES if through else SCHEDULES[:2])
    return [
        *([schedules] if tiles > _SMS else []),
        *([Choice("LOADS", LOADS)] if through else []),
    ]


def _persistent_laws(
    parameters: list[Parameter], fewest: int, *, of: str, what: str
) -> tuple[Constraint, ...]:
    """Returns what a persistent grid needs, if there is one: many tiles, `fewest` elements."""
    laws = (
        Constraint(
            "persistent_needs_tiles",
            f"SCHEDULE == 'tiles' or {_ROW_TILES} * cdiv(N, BLOCK_N) > {_SMS}",
            "a persistent grid needs more tiles than there are multiprocessors",
        ),
        Constraint(
            "persistent_fills",
            f"SCHEDULE == 'tiles' or {of} >= {fewest}",
            f"a program that has a multiprocessor to itself needs {fewest:,} elements of {what}",
        ),
        Constraint(
            "flat_needs_descriptors",
            "SCHEDULE != 'flattened' or LOADS == 'descriptors'",
            "in one flat loop pointers would be computed anew at every step",
        ),
    )
    names = {parameter.name for parameter in parameters}
    return tuple(law for law in laws if law.names & {"SCHEDULE", "LOADS"} <= names)


_GROUPS = (
    Constraint(
        "groups_differ",
        "GROUP_M == 1 or 4 * cdiv(LARGEST, BLOCK_M) > GROUP_M and cdiv(N, BLOCK_N) > 1",
        "a higher group must hold more row tiles of some expert, and matters only where there "
        "are several columns of tiles",
    ),
)

_WEIGHTS = (
    Constraint(
        "loads_have_work",
        "1024 * num_warps <= BLOCK_K * BLOCK_N <= 4096 * num_warps",
        "a thread needs 64 to 256 bytes of weights a step",
    ),
    Constraint(
        "order_needs_wgmma",
        "ORDER == 'ab' or BLOCK_N >= 16 * num_warps and num_warps >= 4",
        "the transposed product is for wgmma: 64 columns of the output for every four warps",
    ),
)


def _power_of_two(n: int, low: int, high: int) -> int:
    return min(max(1 << (n - 1).bit_length(), low), high)


def _depth(k: int) -> dict[str, int]:
    """Returns BLOCK_K and num_stages of a default: three stages of 64 where K is that long."""
    if k > 128:
        return {"BLOCK_K": 64, "num_stages": 3}
    return {"BLOCK_K": 32, "num_stages": min(cdiv(k, 32), 2)}


def _plain(parameters: list[Parameter]) -> dict[str, int | str]:
    return {parameter.name: parameter.values[0] for parameter in parameters}


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: A, C and the weights of experts that have tokens, each once, and offsets."""
    t, k, n, used, _ = constants(workload).values()
    return 2 * (t * k + used * n * k + t * n) + 4 * (workload.extents["E"] + 1)


def flops(workload: Workload) -> int:
    """Returns operations: one multiplication and one addition per term."""
    t, k, n = (workload.extents[name] for name in ("T", "K", "N"))
    return 2 * t * k * n


def _workload(t: int, k: int, n: int, experts: int, skew: int, source: str) -> Workload:
    extents = {"T": t, "K": k, "N": n, "E": experts, "SKEW": skew}
    return Workload(
        "grouped_gemm", "x".join(map(str, extents.values())), extents, "bfloat16", source
    )


KERNEL = Kernel(
    name="grouped_gemm",
    description="A @ B[e]^T for each expert's rows of A[T, K], B[E, N, K], bfloat16",
    workloads=(
        _workload(
            8192, 4096, 14336, 8, RAGGED,
            "Mixtral-8x7B gate or up projection: 4,096 tokens, 2 of 8 experts each",
        ),
        _workload(
            32768, 2048, 1536, 128, RAGGED,
            "Qwen3-30B-A3B gate and up projections: 4,096 tokens, 8 of 128 experts each",
        ),
        _workload(
            512, 7168, 2048, 64, RAGGED,
            "DeepSeek-V3 gate or up projection, decoding: 256 tokens, 8 of 256 experts each, a "
            "quarter of them on this GPU",
        ),
        _workload(
            4096, 5120, 16384, 16, HEAVY,
            "Llama 4 Scout gate and up projections: 4,096 tokens, 1 of 16 experts each, skewed",
        ),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # As of matmul: products are exact in float32 and are summed in it, in an order that the
    # config chooses; the output is rounded once to bfloat16 (2^-9 of its value). Sums of
    # thousands of terms may cancel to almost nothing and keep the long sum's error, about 0.003
    # at K = 8192 where tensor cores truncate. Another expert's weights change an output by about
    # 100, one lost block of 32 terms by about 6.
    rtol=1e-2,
    atol=5e-2,
)  # fmt: skip

"""Flash attention forward: tiles, the order of blocks, masks, loads, and exponentials."""

from kt_lab.parameters import Ordered
from kt_lab.space import Choice, Constraint, Integer, Parameter, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

ALL_KEYS, CAUSAL = 1, 2  # values of the extent CAUSAL: which keys a query sees
_SHARED_BYTES = 227 * 1024  # per program on Hopper (CUDA programming guide, capability 9.0)
_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_WIDEST = 256  # columns of a head that a program keeps
_SHORT_HEAD, _LONG_HEAD = 64, 128  # whose exponentials take as long as products, and half of it
_RESIDENT = "max(8 // num_warps, 1)"  # persistent programs of a multiprocessor
# Lines in shared memory, and blocks of the loop that loads them. Where heads are wider than a
# tile, scores are summed over tiles of Q and K, and one of V follows.
_TILES = ("BLOCK_M + 2 * num_stages * BLOCK_N", "cdiv(S, BLOCK_N)")
_SUMMED_TILES = ("num_stages * (BLOCK_M + BLOCK_N) + BLOCK_N", "cdiv(D, WIDTH)")


def cdiv(a: int, b: int) -> int:
    """Returns a / b rounded up, for positive integers."""
    return -(-a // b)


def _power_of_two(n: int, low: int, high: int) -> int:
    return min(max(1 << (n - 1).bit_length(), low), high)


def extents(workload: Workload) -> tuple[int, ...]:
    """Returns B, H, HK, S, D and CAUSAL."""
    return tuple(workload.extents[name] for name in ("B", "H", "HK", "S", "D", "CAUSAL"))


def head_width(workload: Workload) -> int:
    """Returns the columns of a tile: D rounded up to a power of two, in 16..256."""
    return _power_of_two(workload.extents["D"], 16, _WIDEST)


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of softmax(Q K^T / sqrt(D)) V, head by head.

    A program takes BLOCK_M queries over all keys that they see, BLOCK_N at a time. SCHEDULE is
    the order of the blocks of queries: each head's from the first ("natural") or the last
    ("reversed"), of all heads those that see the most keys first ("heaviest"), or "persistent":
    eight warps to a multiprocessor that stride over blocks, the heaviest first. MASK is where
    scores are masked: "split" goes over blocks of keys that are all seen in a loop of their own,
    without masks; or "throughout". LOADS is through pointers or through tensor descriptors (TMA
    on Hopper), which need rows in multiples of 16 bytes; "mixed" reads only keys and values
    through them, so that queries stay in shared memory and not in registers. POLYNOMIAL of every
    four exponentials are multiplications and additions, not the special function unit's.
    """
    _, _, _, s, d, _ = extents(workload)
    low_m, width = _power_of_two(s, 16, 64), head_width(workload)
    block_m = PowerOfTwo("BLOCK_M", low_m, _power_of_two(s, low_m, 256), role="tile")
    block_n = PowerOfTwo(
        "BLOCK_N", _power_of_two(s, 16, 32), _power_of_two(s, 16, 256), role="tile"
    )
    parameters: list[Parameter] = [block_m, block_n]
    tiles = _SUMMED_TILES if d > width else _TILES
    constraints = list(_tile_laws(tiles, described=d % 8 == 0))
    if len(schedules := _schedules(workload, low_m)) > 1:
        parameters.append(Choice("SCHEDULE", schedules))
        constraints += _schedule_laws(tiles)
    masks = any(_masks_differ(workload, n) for n in block_n.values)
    if masks:
        parameters.append(Choice("MASK", ("split", "throughout")))
        constraints.append(_MASKS_DIFFER)
    if d % 8 == 0:
        parameters.append(Choice("LOADS", ("pointers", "mixed", "descriptors")))
    if d <= _LONG_HEAD:
        parameters.append(Ordered("POLYNOMIAL", (0, 1, 2) if d <= _SHORT_HEAD else (0, 1)))
        constraints += [_POLYNOMIALS_UNMASKED] if masks else []
    parameters += [
        PowerOfTwo("num_warps", low_m // 16, 16, role="warps"),
        # Heads of an odd number of elements cannot be copied asynchronously, by 4 bytes.
        Integer("num_stages", 1, 1 if d % 2 else 4, role="stages"),
    ]
    return ParameterSpace(
        parameters,
        constraints=constraints,
        default=_default(parameters, workload),
        constants={**workload.extents, "WIDTH": width},
    )


def _schedules(workload: Workload, low_m: int) -> tuple[str, ...]:
    """Returns the schedules that differ; low_m is the fewest queries of a program."""
    b, h, _, s, d, causal = extents(workload)
    schedules = ["natural"]
    if causal == CAUSAL and s > low_m:  # otherwise all blocks see as many keys
        schedules += ["reversed", "heaviest"] if b * h > 1 else ["reversed"]
    if b * h * cdiv(s, 128) * cdiv(d, head_width(workload)) > _SMS:
        schedules.append("persistent")
    return tuple(schedules)


def _masks_differ(workload: Workload, block_n: int) -> bool:
    """Whether some of several blocks of keys need masks."""
    _, _, _, s, _, causal = extents(workload)
    return s > block_n and (causal == CAUSAL or s % block_n > 0)


def _default(parameters: list[Parameter], workload: Workload) -> dict[str, int | str]:
    """Returns 128 queries by 64 keys, 16 queries a warp, two or three blocks in flight."""
    _, _, _, s, d, _ = extents(workload)
    plain = {parameter.name: parameter.values[0] for parameter in parameters}
    block_m, block_n = _power_of_two(s, 16, 128), _power_of_two(s, 16, 64)
    stages = 1 if d % 2 else min(3 if d <= 128 else 2, cdiv(s, block_n) if d <= _WIDEST else 2)
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n}
    return plain | tile | {"num_warps": block_m // 16, "num_stages": stages}


def _tile_laws(tiles: tuple[str, str], *, described: bool) -> tuple[Constraint, ...]:
    """Returns the laws on tile, warps and stages; described: there is a choice of LOADS."""
    lines, trips = tiles
    queries = " + (WIDTH if LOADS == 'descriptors' else 0)" if described else ""
    return (
        Constraint(
            "warps_have_rows",
            "BLOCK_M >= 16 * num_warps",
            "a warp multiplies 16 queries at least",
        ),
        Constraint(
            "registers_fit",
            f"BLOCK_M * (2 * WIDTH + 3 * BLOCK_N{queries}) <= 64 * min(208 * num_warps, 1664)",
            "outputs, scores, weights and queries of a tile may fill 208 of a thread's 255 "
            "registers and as much of a multiprocessor's",
        ),
        Constraint(
            "shared_fits",
            f"2 * WIDTH * ({lines}) <= {_SHARED_BYTES}",
            "the queries, and the keys and values in flight, must fit the shared memory of a "
            "program",
        ),
        Constraint(
            "stages_need_trips",
            f"num_stages == 1 or num_stages <= {trips}",
            "a loop cannot be pipelined deeper than it has blocks",
        ),
    )


def _schedule_laws(tiles: tuple[str, str]) -> tuple[Constraint, ...]:
    programs = "B * H * cdiv(S, BLOCK_M) * cdiv(D, WIDTH)"
    return (
        Constraint(
            "persistent_needs_tiles",
            f"SCHEDULE != 'persistent' or {programs} > {_SMS} * {_RESIDENT}",
            "a persistent grid needs more tiles than programs",
        ),
        Constraint(
            "persistent_fits",
            "SCHEDULE != 'persistent' or "
            f"2 * WIDTH * ({tiles[0]}) * {_RESIDENT} <= {_SHARED_BYTES}",
            "eight warps of persistent programs must fit the shared memory of a multiprocessor",
        ),
        Constraint(
            "order_needs_blocks",
            "SCHEDULE in ('natural', 'persistent') or S > BLOCK_M",
            "an order needs several blocks of queries",
        ),
    )


_MASKS_DIFFER = Constraint(
    "masks_differ",
    f"MASK == 'split' or S > BLOCK_N and (CAUSAL == {CAUSAL} or S % BLOCK_N != 0)",
    "masks are split off where some of several blocks of keys need them",
)
_POLYNOMIALS_UNMASKED = Constraint(
    "polynomials_unmasked",
    "POLYNOMIAL == 0 or MASK == 'split'",
    "polynomials save time where multiplications and additions are not spent on masks",
)


def scores(workload: Workload) -> int:
    """Returns how many scores are needed: pairs of a query and a key that it sees."""
    b, h, _, s, _, causal = extents(workload)
    return b * h * (s * (s + 1) // 2 if causal == CAUSAL else s * s)


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: Q, K, V and the output of two bytes an element, each once."""
    b, h, hk, s, d, _ = extents(workload)
    return 2 * b * s * d * (2 * h + 2 * hk)


def flops(workload: Workload) -> int:
    """Returns operations: of both products, for the scores that are needed, half if causal."""
    return 4 * workload.extents["D"] * scores(workload)


def _workload(b: int, h: int, hk: int, s: int, d: int, causal: int, source: str) -> Workload:
    extents = {"B": b, "H": h, "HK": hk, "S": s, "D": d, "CAUSAL": causal}
    return Workload("attention", "x".join(map(str, extents.values())), extents, "bfloat16", source)


_CLIP = "CLIP ViT-L/14 at 336 pixels, LLaVA-1.5's: 576 patches and a class token of 32 images"

KERNEL = Kernel(
    name="attention",
    description="softmax(Q K^T / sqrt(D)) V of every head, causal or not, grouped queries",
    workloads=(
        _workload(4, 32, 32, 2048, 64, ALL_KEYS, "Helion autotuner study, August 2026"),
        _workload(2, 16, 16, 4096, 128, CAUSAL, "Helion autotuner study, August 2026; causal"),
        _workload(1, 32, 8, 8192, 128, CAUSAL, "Llama-3-8B, prefill of a prompt of 8,192 tokens"),
        _workload(32, 16, 16, 577, 64, ALL_KEYS, _CLIP),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Weights are rounded to bfloat16 before they multiply V, by 2^-9 at most, and what they
    # weigh may cancel: simulated, outputs are off by 0.003 where a query sees few keys, by 0.0003
    # with thousands. They are rounded once more, 2^-8 of the value (2^-7 where a conversion
    # truncates, as Triton's interpreter does). One key that is missed among 8,192 moves some
    # outputs of a few heads by 0.007, 32 keys by 0.02.
    rtol=1e-2,
    atol=5e-3,
)

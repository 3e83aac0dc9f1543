"""What the search spaces of row normalisations have in common."""

from collections.abc import Mapping

from kt_lab.space import Choice, Constraint, PowerOfTwo

_SMS = 132  # multiprocessors of an H100 or H200 SXM; only scales what counts as a full wave
_SHARED_BYTES = 256 * 1024  # L1 and shared memory together; a program may use 227 KiB of it
_MAX_TILE = 64  # tile elements a thread: as float32 they fill a quarter of its 255 registers


def next_power_of_two(n: int) -> int:
    """Returns the smallest power of two >= n, for n >= 1."""
    return 1 << (n - 1).bit_length()


def row_tile(n: int, *, rows: int, narrow: int) -> tuple[PowerOfTwo, PowerOfTwo]:
    """Returns BLOCK_M in 1..rows and BLOCK_N, from `narrow` to a whole row of n elements.

    Args:
        n: Elements of a row, >= 1.
        rows: Most rows of a tile, a power of two.
        narrow: Fewest columns of a tile, a power of two; a shorter row takes fewer.
    """
    widest = min(max(next_power_of_two(n), 32), 65536)
    return (
        PowerOfTwo("BLOCK_M", 1, rows, role="tile"),
        PowerOfTwo("BLOCK_N", min(narrow, widest), widest, role="tile"),
    )


def waves(*counts: int) -> Choice:
    """Returns WAVES: 0 is one program per row block, otherwise programs per multiprocessor."""
    return Choice("WAVES", counts)


def default_tile(n: int, *, widest: int = 8192) -> Mapping[str, int]:
    """Returns one row, in one piece if it has at most `widest` elements, 16 bytes a thread."""
    block = min(max(next_power_of_two(n), 32), widest)
    return {"BLOCK_M": 1, "BLOCK_N": block, "num_warps": min(max(block // 512, 1), 16)}


def tile_constraints(
    *, tensors: int = 1, most: int = _MAX_TILE, idle: int = 1
) -> tuple[Constraint, ...]:
    """Returns the laws of a tile BLOCK_M x BLOCK_N of 16-bit elements of x[M, N].

    Args:
        tensors: Tensors that are read tile by tile, >= 1.
        most: Elements of a tile per thread, at most.
        idle: A program of so few warps may leave threads without work: for short rows.
    """
    return (
        Constraint(
            "tile_has_work",
            f"BLOCK_M * BLOCK_N >= 128 * num_warps or num_warps == {idle}",
            "a tile needs at least four elements a thread, unless it is as small as can be",
        ),
        Constraint(
            "tile_fits",
            f"BLOCK_M * BLOCK_N <= {most} * 32 * num_warps",
            f"a tile may have at most {most} elements a thread",
        ),
        Constraint(
            "rows_exist",
            "BLOCK_M <= next_power_of_two(M)",
            "a tile may not have more rows than the tensor, rounded up",
        ),
        Constraint(
            "stages_fit",
            f"(num_stages - 1) * BLOCK_M * BLOCK_N * {2 * tensors} <= {_SHARED_BYTES}",
            "the tiles in flight must fit the shared memory of a multiprocessor",
        ),
        Constraint(
            "stages_need_trips",
            "BLOCK_N >= N or num_stages <= cdiv(N, BLOCK_N)",
            "a row cannot be pipelined deeper than it has blocks",
        ),
    )


def grid_laws() -> tuple[Constraint, ...]:
    """Returns what WAVES must obey, where 0 stands for one program per row block."""
    return (
        Constraint(
            "waves_stride",
            f"WAVES == 0 or WAVES * {_SMS} < cdiv(M, BLOCK_M)",
            "a persistent grid needs fewer programs than there are row blocks",
        ),
        Constraint(
            "stages_need_a_loop",
            "num_stages == 1 or WAVES > 0 or BLOCK_N < N",
            "without a loop there is nothing to pipeline",
        ),
    )


def grid_constraints() -> tuple[Constraint, ...]:
    """Returns the same, and what keeps a space of WAVES, WEIGHT and EVICTION worth its size."""
    return (
        *grid_laws(),
        Constraint(
            "waves_take_whole_rows",
            "WAVES == 0 or BLOCK_N >= N",
            "a program gains from more rows where the next is fetched while one is at work",
        ),
        Constraint(
            "hints_need_a_second_reading",
            "EVICTION == '' or num_stages == 1 and BLOCK_N < N",
            "what is read once is never evicted too early; asynchronous copies ignore the hint",
        ),
        Constraint(
            "weights_are_kept_in_a_loop",
            "WEIGHT != 'kept' or WAVES > 0",
            "weights are kept where one program meets several rows",
        ),
    )

"""Neighbourhoods of a row: which configs are one move of an algorithm away."""

from kt_lab.space import ParameterSpace

Row = tuple[int, ...]  # value indices, hashable


def pattern_rows(space: ParameterSpace, row: Row, cap: int = -1) -> list[Row]:
    """Returns the pattern neighbourhood of a row, valid or not, without the row itself.

    All moves of one parameter by one step in slot order, then for every pair of tiles the full
    product of their moves (Helion); the first `cap` of them if cap is not negative.
    """
    steps = [p.neighbours(i, 1) for p, i in zip(space.parameters, row, strict=True)]
    rows = [
        (*row[:slot], value, *row[slot + 1 :])
        for slot, values in enumerate(steps)
        for value in values
    ]
    tiles = [i for i, p in enumerate(space.parameters) if p.role == "tile"]
    for k, one in enumerate(tiles):
        for other in tiles[k + 1 :]:
            rows += [
                (*row[:one], a, *row[one + 1 : other], b, *row[other + 1 :])
                for a in steps[one]
                for b in steps[other]
            ]
    return rows if cap < 0 else rows[:cap]

"""Neighbourhoods of a row: which configs are one move of an algorithm away."""

import random

import numpy as np

from kt_lab.space import ParameterSpace, PowerOfTwo

Row = tuple[int, ...]  # value indices, hashable
_OTHERS = 2.0  # parameters that a reshaped row changes besides, in the mean
_REACH = 3  # steps that a reshaped row's scales are away at most
_TURNS = 16  # of draws before fewer rows than asked for must do


def slots(space: ParameterSpace, role: str) -> list[int]:
    """Returns the positions of the parameters that have the role, ascending."""
    return [i for i, p in enumerate(space.parameters) if p.role == role]


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
    tiles = slots(space, "tile")
    for k, one in enumerate(tiles):
        for other in tiles[k + 1 :]:
            rows += [
                (*row[:one], a, *row[one + 1 : other], b, *row[other + 1 :])
                for a in steps[one]
                for b in steps[other]
            ]
    return rows if cap < 0 else rows[:cap]


def random_rows(
    space: ParameterSpace, row: Row, n: int, *, radius: int, rng: random.Random
) -> list[Row]:
    """Returns n random neighbours of a row, doubles, invalid ones and the row itself included.

    Each moves one random tile and num_warps by up to `radius` steps, and up to `radius` other
    parameters to a one-step neighbour (Helion's LFBOPatternSearch).
    """
    parameters = space.parameters
    tiles, warps = slots(space, "tile"), slots(space, "warps")[:1]
    near = [p.neighbours(i, 1) for p, i in zip(parameters, row, strict=True)]
    far = {i: parameters[i].neighbours(row[i], radius) for i in tiles + warps}
    movable = [i for i, values in enumerate(near) if values and i not in warps]
    others = {tile: [i for i in movable if i != tile] for tile in tiles} or {None: movable}
    drawn = []
    for _ in range(n):
        moved = list(row)
        tile = rng.choice(tiles) if tiles else None
        for slot in [tile, *warps] if tiles else warps:
            if far[slot]:
                moved[slot] = rng.choice(far[slot])
        rest = others[tile]
        for slot in rng.sample(rest, rng.randint(0, min(radius, len(rest)))):
            moved[slot] = rng.choice(near[slot])
        drawn.append(tuple(moved))
    return drawn


def mutated_rows(space: ParameterSpace, rows: np.ndarray, *, rng: np.random.Generator):
    """Returns rows changed in a few parameters, shape as `rows`; not all of them are members.

    A geometric number of parameters, three in the mean, changes: ordered ones by one or two steps,
    others to any value.
    """
    cards = np.array([p.cardinality for p in space.parameters])
    changes = 1 + rng.geometric(0.5, size=(len(rows), 1))
    changed = rng.random(rows.shape) < changes / max(1, (cards > 1).sum())
    steps = np.clip(rows + rng.choice([-2, -1, 1, 2], size=rows.shape), 0, cards - 1)
    ordered = [p.ordered for p in space.parameters]
    moved = np.where(ordered, steps, rng.integers(cards, size=rows.shape))
    return np.where(changed, moved, rows)


def reshaped_rows(
    space: ParameterSpace, parents: np.ndarray, n: int, *, rng: np.random.Generator
) -> np.ndarray:
    """Returns members that differ from a parent in scales, which are drawn, and in little else.

    Scales are the parameters with a role (tiles, warps, stages) and all powers of two: a wrong one
    costs most. They move by up to three steps: what is further off hardly works or takes long to
    compile, and a search comes there step by step. Of the others two change in the mean, to any
    value; the rest is as somebody thought it good.

    Args:
        space: A ParameterSpace.
        parents: Shape (m, parameters), m >= 1.
        n: How many; fewer, none even, come back where hardly any draw is a member.
        rng: Draws.
    """
    cards = np.array([p.cardinality for p in space.parameters])
    shape = [p.role is not None or isinstance(p, PowerOfTwo) for p in space.parameters]
    near = np.logical_and(shape, [p.ordered for p in space.parameters])
    chance = np.where(shape, 1.0, _OTHERS / max(1, (cards > 1).sum()))
    rows = parents[:0]
    for _ in range(_TURNS):
        like = parents[rng.integers(len(parents), size=n)]
        changed = rng.random(like.shape) < chance
        steps = np.clip(like + rng.integers(-_REACH, _REACH + 1, size=like.shape), 0, cards - 1)
        moved = np.where(near, steps, rng.integers(cards, size=like.shape))
        drawn = np.where(changed, moved, like)
        rows = np.concatenate([rows, drawn[space.valid(drawn)]])[:n]
        if len(rows) == n:
            break
    return rows


def offspring_rows(
    space: ParameterSpace,
    parents: np.ndarray,
    near: int,
    crossed: int,
    *,
    rng: np.random.Generator,
) -> list[np.ndarray]:
    """Returns members that descend from rows: mutated, one step from each, and crossed.

    Args:
        space: A ParameterSpace.
        parents: Shape (n, parameters), n >= 1.
        near: How many are mutated, members or not.
        crossed: How many are crossovers of two, members or not.
        rng: Draws.
    """
    chosen = parents[rng.integers(len(parents), size=near)]
    mutated = mutated_rows(space, chosen, rng=rng)
    mothers, fathers = rng.integers(len(parents), size=(2, crossed))
    mask = rng.random((crossed, len(space.names))) < 0.5
    made = mutated, np.where(mask, parents[mothers], parents[fathers])
    steps = [space.neighbour_rows(row) for row in parents]
    return steps + [rows[space.valid(rows)] for rows in made]

"""Where a search begins: uniform draws without replacement, and Helion's shrunk random configs."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from kt_lab.search.base import prior_configs
from kt_lab.space import Parameter, ParameterSpace, Space
from kt_lab.trial import Config

_BLOCK = 256  # configs per draw from a space that cannot be listed
_STALE = 8  # blocks without anything new before such a space counts as exhausted
_STALE_DRAWS = 64  # the same for a space that is no ParameterSpace, drawn from one by one
_THREADS = 32  # threads of a warp
_MAX_EXPONENT = 11  # Helion: at most 2**11 elements per thread
_MAX_ELEMENTS = 2**20  # Triton's largest tensor
_ATTEMPTS = 64  # Helion: draws per missing start before it gives up
_FEW = 5  # as many patterns run side by side: where fewer starts come, uniform ones fill up


def uniform(space: Space, *, rng: np.random.Generator) -> Iterator[Config]:
    """Yields every valid config once, in uniformly random order.

    A space that cannot be listed is sampled, and what was seen is rejected; the iterator then
    ends after 8 blocks of 256 draws without a new config: then hardly any is unseen. Spaces of
    another kind, whose draws may be slow, are drawn from one by one, and end after 64 draws
    without a config of a new key (the space's optional `key`, else the config itself).
    """
    if isinstance(space, ParameterSpace) and space.enumerable:
        rows = space.enumerate()
        for i in rng.permutation(len(rows)):
            yield space.config(rows[i].tolist())
        return
    quick = isinstance(space, ParameterSpace)
    block, patience = (_BLOCK, _STALE) if quick else (1, _STALE_DRAWS)
    key = getattr(space, "key", lambda config: config)
    seen: set[object] = set()
    stale = 0
    while stale < patience:
        before = len(seen)
        for config in space.sample(block, rng=rng):
            if key(config) not in seen:
                seen.add(key(config))
                yield config
        stale = stale + 1 if len(seen) == before else 0


def starts(
    space: ParameterSpace, n: int, *, rule: str, rng: np.random.Generator, prior=None
) -> list[Config]:
    """Returns the initial population: default config, prior, then random configs, each once.

    Args:
        space: What to draw from.
        n: How many; fewer come back when random draws coincide (as in Helion) or run out.
        rule: "helion": parameters drawn independently, tiles shrunk, invalid draws replaced; in
            a listed space where hardly any draw is valid (fewer than 5) filled up as "uniform".
            "uniform": uniform over valid configs, without replacement. "available": none.
        rng: Source of the draws.
        prior: A Prior whose configs are put right after the default, or None.
    """
    found = list(dict.fromkeys([space.default, *prior_configs(space, prior)]))
    missing = n - len(found)
    if missing <= 0 or rule == "available":
        return found[: max(n, 1)]
    if rule == "uniform":
        met = set(found)
        fresh = (c for c in uniform(space, rng=rng) if c not in met)
        return found + [c for c, _ in zip(fresh, range(missing), strict=False)]
    drawn = _helion(space, missing, set(found), rng)
    if len(drawn) < min(_FEW, missing) and space.enumerable:
        met = {*found, *drawn}
        drawn += islice((c for c in uniform(space, rng=rng) if c not in met), missing - len(drawn))
    return list(dict.fromkeys(found + drawn))


def shrunk_rows(space: ParameterSpace, n: int, *, rng: np.random.Generator) -> np.ndarray:
    """Returns n rows drawn parameter by parameter and shrunk, valid or not, doubles included."""
    return Shrink(space)(_independent(space, n, rng), rng)


def _helion(space: ParameterSpace, n: int, met: set[Config], rng) -> list[Config]:
    """Returns n valid shrunk draws.

    As in Helion 1.5: where a draw was invalid, the valid ones are made unique and filled up to n;
    where none was, they may coincide.
    """
    rows = shrunk_rows(space, n, rng=rng)
    found = space.configs(rows[space.valid(rows)])
    if len(found) == n:
        return found
    fresh = dict.fromkeys(config for config in found if config not in met)
    rows = shrunk_rows(space, _ATTEMPTS * (n - len(fresh)), rng=rng)
    for row in rows[space.valid(rows)]:  # not all as lists at once: most are never looked at
        if len(fresh) == n:
            break
        config = space.config(row.tolist())
        if config not in met:
            fresh[config] = None
    return list(fresh)


def _independent(space: ParameterSpace, n: int, rng) -> np.ndarray:
    cards = [p.cardinality for p in space.parameters]
    return rng.integers(cards, size=(n, len(cards)))


class Shrink:
    """Halves tiles until a thread holds few enough elements.

    Fully random tiles run out of resources; Helion draws a cap of m = 2**U{0..11} elements per
    thread and, while the product of the tiles exceeds min(m * 32 * num_warps, 2**20), halves every
    tile that can be halved. Spaces without a tile or without a warps parameter are left alone.
    """

    def __init__(self, space: ParameterSpace):
        """Finds the roles, and for each tile the value nearest below half of every value."""
        self._tiles = [i for i, p in enumerate(space.parameters) if p.role == "tile" and _sized(p)]
        warps = [i for i, p in enumerate(space.parameters) if p.role == "warps" and _sized(p)]
        self._warps = warps[0] if warps else None
        self._values = [np.asarray(space.parameters[i].values) for i in self._tiles]
        self._halves = [_halves(v) for v in self._values]
        if warps:
            self._threads = _THREADS * np.asarray(space.parameters[warps[0]].values)

    def __call__(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Returns the rows with smaller tiles where needed, shape (n, parameters)."""
        if self._warps is None or not self._tiles or not len(rows):
            return rows
        return self.to(rows, 2 ** rng.integers(0, _MAX_EXPONENT + 1, size=len(rows)))

    def to(self, rows: np.ndarray, per_thread: int | np.ndarray) -> np.ndarray:
        """Returns the rows with at most `per_thread` elements per thread, where tiles allow it."""
        if self._warps is None or not self._tiles or not len(rows):
            return rows
        rows = rows.copy()
        cap = np.minimum(per_thread * self._threads[rows[:, self._warps]], _MAX_ELEMENTS)
        while True:
            numel = np.prod(
                [v[rows[:, i]] for i, v in zip(self._tiles, self._values, strict=True)], axis=0
            )
            large = numel > cap
            before = rows[:, self._tiles]
            for i, halves in zip(self._tiles, self._halves, strict=True):
                rows[large, i] = halves[rows[large, i]]
            if (rows[:, self._tiles] == before).all():
                return rows


def _sized(parameter: Parameter) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in parameter.values)


def _halves(values: np.ndarray) -> np.ndarray:
    """Returns for each value index the index of the largest value <= half of it, else itself."""
    found = np.arange(len(values))
    for i, value in enumerate(values):
        below = np.flatnonzero(values <= value / 2)
        if len(below):
            found[i] = below[np.argmax(values[below])]
    return found

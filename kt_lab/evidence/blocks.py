"""Recorded blocks as arrays: one reading of each of a thousand configs in a millisecond."""

from collections.abc import Hashable, Sequence

import numpy as np

from kt_lab.landscape import Landscape
from kt_lab.trial import OK


def program(landscape: Landscape, at: int) -> Hashable:
    """Returns what the GPU executes for a config: its launch, or itself where none is known."""
    launch = landscape.launches[at]
    return launch if launch[0] else at


class Blocks:
    """Recorded blocks of all configs that ran, to be read many at a time.

    Attributes:
        seats: Row of every config here, shape (space.size,); -1: it did not run.
    """

    def __init__(self, landscape: Landscape):
        """Gathers the samples, of every visit; where a config has none, all stand for it."""
        self.ok = np.flatnonzero(landscape.status == OK)
        self.seats = np.full(landscape.space.size, -1)
        self.seats[self.ok] = np.arange(len(self.ok))
        programs = [program(landscape, i) for i in self.ok.tolist()]
        numbers = {found: i for i, found in enumerate(dict.fromkeys(programs))}
        self.group = np.array([numbers[found] for found in programs])
        self.sorted = np.argsort(self.group, kind="stable")
        recorded = ([visit[i] for visit in landscape.samples] for i in self.ok)
        filled = [[b if len(b) else np.concatenate(row) for b in row] for row in recorded]
        self.counts = np.array([[len(block) for block in row] for row in filled])
        self.samples = np.full((*self.counts.shape, self.counts.max()), np.nan)
        for (i, visit), count in np.ndenumerate(self.counts):
            self.samples[i, visit, :count] = filled[i][visit]

    def median_us(self, row: int, visits: Sequence[int]) -> float:
        """Returns the median of a config's samples in some visits."""
        return float(np.nanmedian(self.samples[row, visits]))

    def read(
        self, rows: np.ndarray, visits: Sequence[int], samples: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Returns a block median of each row, all of one visit, microseconds, shape (rows,).

        Names of one launch change their blocks among them, as in a round of `ReplayRacer`.
        """
        visit = int(rng.choice(visits))
        block = np.empty(len(self.ok), dtype=int)
        block[self.sorted] = np.lexsort((rng.random(len(self.ok)), self.group))
        block = block[rows]
        picks = rng.random((len(rows), samples)) * self.counts[block, visit][:, None]
        return np.median(self.samples[block[:, None], visit, picks.astype(np.int64)], axis=1)


def blocks_of(landscape: Landscape) -> Blocks:
    """Returns a landscape's blocks, gathered once."""
    cache = landscape.__dict__
    if "_blocks" not in cache:
        cache["_blocks"] = Blocks(landscape)
    return cache["_blocks"]

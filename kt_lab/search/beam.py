"""Beam search and greedy hill climbing over the neighbourhoods of any Space, with restarts.

Level by level: every member of the beam proposes a few of its neighbours that nobody measured, in
random order, and the fastest of old and new members are the next beam. A beam whose neighbours
are all measured stands on local optima: the next one starts elsewhere. With one member this is
hill climbing that moves to the best of a few neighbours as soon as one is faster, because the
neighbourhoods of programs (20 to 300 schedules) are too large to be measured whole at each step.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from kt_lab.search.base import Options, option
from kt_lab.search.chains import Chain, ChainSearcher
from kt_lab.trial import Config


@dataclass(frozen=True)
class BeamOptions(Options):
    """Options of `beam`."""

    width: int = option(6, "Configs that are kept from level to level.", low=1)
    branch: int = option(4, "Neighbours that each of them proposes per level.", low=1)
    min_improvement: float = option(
        0.01, "Share by which a new config must be faster to displace one.", low=0.0, high=0.9
    )
    restart: bool = option(True, "Start elsewhere once no neighbour is left.")


@dataclass(frozen=True)
class GreedyOptions(BeamOptions):
    """Options of `greedy`."""

    width: int = option(1, "Configs that are climbed from side by side.", low=1)


class BeamSearch(ChainSearcher):
    """Keeps the fastest configs; the first are the default, the prior's, then random ones."""

    name: ClassVar[str] = "beam"
    Options: ClassVar[type] = BeamOptions

    def _chain(self, rng: np.random.Generator) -> Chain:
        width, origin = self.options.width, "start"
        handicap = 1 - self.options.min_improvement  # of those kept, lest noise moves the beam
        while fresh := self._starting(width):
            left, known, beam = {}, {}, []
            while fresh:
                known |= zip(fresh, (yield origin, fresh), strict=True)
                rank = {c: value * (handicap if c in beam else 1) for c, value in known.items()}
                beam = sorted(rank, key=rank.get)[:width]
                known = {config: known[config] for config in beam}
                drawn = [c for config in beam for c in self._draw(config, left, rng)]
                fresh, origin = list(dict.fromkeys(drawn)), "neighbour"
            if not self.options.restart:
                return
            origin = "restart"

    def _draw(self, config: Config, left: dict[Config, list[Config]], rng) -> list[Config]:
        """Returns up to `branch` new neighbours and takes them out of those that are left."""
        if config not in left:
            near = self._near(config)
            left[config] = [near[i] for i in rng.permutation(len(near))]
        mine, found = left[config], []
        while mine and len(found) < self.options.branch:
            near = self._same(mine.pop())
            if self._is_new(near):
                found.append(near)
        return found


class GreedySearch(BeamSearch):
    """Climbs to the first faster neighbours until none is left, then starts elsewhere."""

    name: ClassVar[str] = "greedy"
    Options: ClassVar[type] = GreedyOptions

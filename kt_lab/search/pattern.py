"""PatternSearch: several descents over exhaustive one-step neighbourhoods.

Reproduces Helion's PatternSearch (helion 1.5.1): the default and random starts, the five best of
them descended from side by side, one shared visited set, and re-timing of everything within 1.5x
of the best reading after each batch. Invalid neighbours are dropped unmeasured (Helion's "viable"
mode). Not reproduced: finalisation (`kt_lab.confirm` does it for every searcher alike) and the
adaptive compile timeout (the runner's).
"""

from dataclasses import dataclass
from typing import ClassVar

from kt_lab.search.batches import Member
from kt_lab.search.generations import GenerationOptions, GenerationSearcher
from kt_lab.search.neighbourhood import pattern_rows


@dataclass(frozen=True)
class PatternOptions(GenerationOptions):
    """Options of `pattern`; every default is Helion's."""


class PatternSearch(GenerationSearcher):
    """Measures every unvisited neighbour of each descent, moves to the best, stops when stuck."""

    name: ClassVar[str] = "pattern"
    Options: ClassVar[type] = PatternOptions

    def _candidates(self, current: Member) -> list[Member]:
        rows = pattern_rows(self.space, current.row, self.options.neighbours_cap)
        return [self._visit(row) for row in self._fresh(rows)]

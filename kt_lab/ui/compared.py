"""Compared: the runs behind a compare panel and what was computed of them; no widgets."""

from dataclasses import dataclass

import pandas as pd

from kt_lab.comparison import incumbent_figure, target_figure, target_tables
from kt_lab.stats.intervals import RESAMPLES
from kt_lab.studies import REFERENCE
from kt_lab.study import VENUE, Drawing


@dataclass(frozen=True, slots=True)
class Shown:
    """How a comparison is shown.

    Attributes:
        lanes: Compile lanes of the runs.
        workload: Whose curves; None: those of all.
        x: "spent_trials" or "elapsed_s".
        band: "iqr", "interval" or "none".
        reference: The searcher that all others are divided by.
        within: The target, as a fraction above the optimum.
    """

    lanes: int
    workload: str | None = None
    x: str = "spent_trials"
    band: str = "iqr"
    reference: str = REFERENCE
    within: float = 0.05


class Compared:
    """Runs, and the tables that were last made of them: a new target is drawn at once.

    Attributes:
        runs: The tidy table; empty: nothing is finished yet.
        optima: From `kt_lab.comparison.optima_table`.
    """

    def __init__(self, runs: pd.DataFrame | None = None, optima: pd.DataFrame | None = None):
        """Takes finished runs, all of their searchers on all of their workloads."""
        self.runs = pd.DataFrame() if runs is None else runs
        self.optima = optima
        self._made: dict[str, tuple[object, object]] = {}

    def names(self, column: str) -> list:
        """Returns what the runs hold in a column, in order: searchers, workloads, lanes."""
        return [] if self.runs.empty else sorted(self.runs[column].unique().tolist())

    def drawings(
        self, shown: Shown, *, venue: str = VENUE, width: str = "text", resamples: int = RESAMPLES
    ) -> dict[str, Drawing]:
        """Returns the drawings "incumbents" and, where there is something to divide, "ratios".

        Args:
            shown: What of the runs.
            venue: Whose page; see `kt_lab.plots.paper`.
            width: "text" or "column".
            resamples: Of the intervals' bootstrap; fewer are quicker, and rougher.
        """
        runs = self._known("runs", shown.lanes, lambda: self._of(shown.lanes))
        page = {"venue": venue, "width": width}
        what = {"x": shown.x, "within": shown.within, "optima": self.optima}
        key = (shown.lanes, shown.workload, shown.x, shown.band)
        drawn: dict[str, Drawing] = {}
        drawn["incumbents"] = incumbent_figure(
            runs,
            workloads=None if shown.workload is None else [shown.workload],
            band=shown.band,
            bands=self._last("bands", key),
            **what,
            **page,
        )
        self._made["bands"] = key, drawn["incumbents"].points
        others = runs["searcher"].astype(str).unique()
        if shown.reference in others and len(others) > 1:
            key = (shown.lanes, shown.reference, resamples)
            what |= {"reference": shown.reference, "resamples": resamples}
            tables = target_tables(runs, known=self._last("tables", key), **what)
            self._made["tables"] = key, tables
            drawn["ratios"] = target_figure(runs, tables=tables, **page)
        return drawn

    def _of(self, lanes: int) -> pd.DataFrame:
        return self.runs[self.runs["lanes"] == lanes]

    def _last(self, name: str, key: object):
        """Returns what was made last under a name, if it was of that key."""
        made = self._made.get(name)
        return made[1] if made is not None and made[0] == key else None

    def _known(self, name: str, key: object, make):
        if self._last(name, key) is None:
            self._made[name] = key, make()
        return self._made[name][1]

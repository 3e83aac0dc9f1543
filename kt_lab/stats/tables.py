"""The laws of the tidy tables: which columns identify a run, and how a table is checked."""

from collections.abc import Callable, Iterable

import pandas as pd

from kt_lab.errors import UnknownName, UsageError
from kt_lab.trial import OK

CELL = ("gpu", "kernel", "workload")
"""What a latency belongs to: the same workload on another GPU is another cell."""

GROUP = (*CELL, "searcher", "lanes")
"""The columns that runs of different seeds share."""

RUN = (*GROUP, "seed")
"""The columns that identify one run."""

AXES = ("spent_trials", "machine_s", "elapsed_s")
"""What the progress of a run is counted in: first measurements of distinct configs, seconds of
compiling and timing, or those and the searcher's own seconds."""

UNITS = {"spent_trials": "trials", "machine_s": "s", "elapsed_s": "s"}


def check_columns(table: pd.DataFrame, columns: Iterable[str], *, what: str = "runs") -> None:
    """Raises UsageError unless the table holds every column and at least one row."""
    if table.empty:
        raise UsageError(f"the table of {what} must hold at least one row, got 0; measure more")
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise UsageError(
            f"the table of {what} must hold the columns {', '.join(columns)}; it lacks "
            f"{', '.join(missing)} and holds {', '.join(map(str, table.columns))}"
        )


def check_axis(x: str) -> str:
    """Returns x when it is one of AXES, else raises UnknownName."""
    if x not in AXES:
        raise UnknownName("axis", x, AXES)
    return x


def check_searcher(runs: pd.DataFrame, name: str) -> str:
    """Returns the searcher's name when the runs hold it, else raises UnknownName."""
    known = runs["searcher"].astype(str).unique()
    if name not in known:
        raise UnknownName("searcher of these runs", name, known)
    return name


def single_lanes(runs: pd.DataFrame) -> int:
    """Returns the one lane count of the runs; several raise UsageError.

    More lanes make every searcher faster, so runs are compared at equal lanes only.
    """
    check_columns(runs, ("lanes",))
    found = sorted(int(lanes) for lanes in runs["lanes"].unique())
    if len(found) != 1:
        raise UsageError(
            f"compared runs must share one lane count, got lanes {found}; "
            f"select one first: runs[runs.lanes == {found[0]}]"
        )
    return found[0]


def check_judged(runs: pd.DataFrame) -> None:
    """Raises UsageError for runs that nobody judged, as live ones: all would end alike."""
    check_columns(runs, ("status", "judged_us"))
    if (runs["status"] == OK).any() and runs["judged_us"].isna().all():
        raise UsageError(
            "compared runs must be judged, which live ones are not, got no judged_us; give "
            "runs.assign(judged_us=runs.latency_us) to compare what was read"
        )


def by_cell(table: pd.DataFrame, column: str, *, what: str) -> Callable[[str, str], float]:
    """Returns a look-up (gpu, workload) -> the table's value of that workload.

    Args:
        table: Columns `workload`, `column` and, where GPUs differ, `gpu`; one row per key.
        column: The column looked up.
        what: Names the table in errors.

    Raises:
        UsageError: A column is missing, a key occurs twice, or (on look-up) is absent.
    """
    keys = [name for name in ("gpu", "workload") if name in table.columns]
    check_columns(table, ("workload", column), what=what)
    frame = table[[*keys, column]].dropna(subset=[column])
    if frame.duplicated(keys).any():
        twice = frame.loc[frame.duplicated(keys), keys].iloc[0].to_dict()
        raise UsageError(f"the table of {what} must hold one row per {keys}, got two of {twice}")
    names = [frame[name].astype(str) for name in keys]
    known = dict(zip(zip(*names, strict=True), frame[column].astype(float), strict=True))

    def find(gpu: str, workload: str) -> float:
        key = (str(gpu), str(workload))[-len(keys) :]
        if key not in known:
            raise UsageError(f"the table of {what} must hold {column} of {key}, which is absent")
        return known[key]

    return find

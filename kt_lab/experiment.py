"""Experiments: a grid of runs (workload x searcher x lanes x seed), resumable, on any executor."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pandas as pd

from kt_lab.budget import Budget
from kt_lab.cells import (
    ANATOMY,
    BY_CPU,
    COSTS,
    JUDGED,
    LAUNCHES,
    NOT_REPEATABLE,
    Cell,
    columns,
    from_launches,
    judged,
    recorded,
    require_apart,
    row_name,
    row_of,
    run_cell,
    searcher_kind,
    to_launches,
    typed,
)
from kt_lab.errors import StoreError, UsageError, whole
from kt_lab.executors import as_executor, process_name, require_processes, spread
from kt_lab.provenance import provenance
from kt_lab.runners.pool import Pool
from kt_lab.store import Shared, read_table, sweep, write_table
from kt_lab.ticks import from_steps, to_steps

STEPS = "machine_steps"  # on disk: `machine_s` as ticks since the row before
SPLIT = (STEPS, LAUNCHES, "trial", "config", "repetitions")  # no dictionary makes them smaller
EARLY = 250
LATER = f"later than trial {EARLY}"
"""The first of what `compare_cell` returns where only later trials of a BY_CPU searcher differ."""
_LOOK_S = 0.2  # how often a stop is looked for while runs go on


@dataclass(frozen=True)
class Experiment:
    """A grid of replayed runs made to answer one question.

    Attributes:
        name: Of the file of its results.
        workloads: Keys of recorded workloads, or .parquet files of landscapes elsewhere.
        searchers: Row name -> registered name, or (registered name, options), or a sequence of
            these. A Searcher class may stand for a name, also one of a notebook cell: its source
            goes to wherever a run is computed, and with its hash into the facts.
        seeds: How many, from 0.
        budget: Of every run.
        lanes: Simulated compile lanes; one run per entry.
        gpu: Which GPU's landscapes; None: REFERENCE_GPU's, or the only one.
    """

    name: str
    workloads: Sequence[str]
    searchers: Mapping[str, Any] | Sequence[Any]
    seeds: int
    budget: Budget
    lanes: Sequence[int] = (16,)
    gpu: str | None = None
    _rows: dict[str, tuple[str, dict, str | None]] = field(init=False, repr=False, default=None)

    def __post_init__(self):
        """Checks names now rather than an hour into the run."""
        name = self.name if isinstance(self.name, str) else ""
        if not name.isprintable() or name[:1] in ("", ".") or set("+/\\") & set(name):
            law = "a name must have no + / \\, no line break and no . at its head"
            raise UsageError(f"{law}, got {self.name!r}")
        if not isinstance(self.budget, Budget):
            raise UsageError(f"budget must be a Budget, got {self.budget!r}; Budget(trials=...)")
        workloads = _listing("workloads", self.workloads, "['softmax/4096x640']")
        object.__setattr__(self, "workloads", list(map(str, workloads)))
        object.__setattr__(self, "seeds", whole("seeds", self.seeds, low=1))
        object.__setattr__(self, "lanes", _lanes(self.lanes))
        given = _listing("searchers", self.searchers, "['scout', 'random']")
        if not self.workloads or not given or not self.lanes:
            raise UsageError(
                "an experiment needs at least one workload, searcher and lane count, got "
                f"{len(self.workloads)}, {len(given)}, {len(self.lanes)}"
            )
        named = given.items() if isinstance(given, Mapping) else [(row_name(v), v) for v in given]
        rows = {name: row_of(v) for name, v in named}
        if len(rows) < len(named):
            raise UsageError(
                f"every row must have a name of its own, got {[name for name, _ in named]}; give "
                "a mapping from row names to searchers"
            )
        for algorithm, options, source in rows.values():
            space = recorded(self.workloads[0], self.gpu).space
            searcher_kind(algorithm, source)(space, seed=0, **options).close()
        require_apart(self.workloads, self.gpu)
        object.__setattr__(self, "_rows", rows)

    def cells(self) -> list[Cell]:
        """Lists every run, seeds outermost, so that an interrupted study is balanced."""
        return [
            Cell(
                workload=workload,
                gpu=self.gpu,
                searcher=row,
                algorithm=algorithm,
                options=tuple(sorted(options.items())),
                lanes=lanes,
                seed=seed,
                trials=self.budget.trials,
                seconds=self.budget.seconds,
                source=source,
            )
            for seed in range(self.seeds)
            for lanes in self.lanes
            for workload in self.workloads
            for row, (algorithm, options, source) in self._rows.items()
        ]

    def run(
        self,
        *,
        directory: Path | str | None = None,
        executor: Any = None,
        on_progress: Callable[[int, int], None] | None = None,
        on_run: Callable[[pd.DataFrame], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> pd.DataFrame:
        """Computes the missing runs and returns the whole table.

        Several processes may run the same experiment in one directory at once: each run is
        computed by one, each returns the whole table. Those of one that dies are taken over.

        Args:
            directory: Where journals and then `<name>.parquet` are kept; None: nowhere.
            executor: Any `concurrent.futures` executor, a `distributed.Client` or its executor;
                None: this process. Runs of workers that die are computed again; a worker whose
                kt_lab or data differ is refused.
            on_progress: Called with (runs done, runs in all).
            on_run: Called with every run's table, the journals' first; not when all is stored.
            stop: Asked between runs; once it says yes, those under way are finished, and what is
                there by then is returned, maybe an empty table; running again goes on from there.
        """
        target = None if directory is None else Path(directory) / f"{self.name}.parquet"
        frame = None
        if executor is not None:
            executor = as_executor(executor)
            require_processes(executor, {name: source for name, _, source in self._rows.values()})
        if target is None or not target.exists():
            with Shared(target, json.loads(json.dumps(self.facts()))) as shared:
                if target is None or not target.exists():  # by now: it may have been waited for
                    frame = self._share(shared, executor, on_progress, on_run, stop)
        found = load_runs(target, expect=self.facts()) if frame is None else frame
        if target is not None:  # whose it is is known by now
            sweep(target)
        return found

    def _share(self, shared: Shared, executor, on_progress, on_run, stop) -> pd.DataFrame:
        """Computes what nobody has, waits for what others have in hand, stores the table."""
        cells = {_key(c): c for c in self.cells()}
        stop = stop or (lambda: False)
        told, by = 0, Counter()

        def tell(*, progress: bool = True) -> None:
            nonlocal told
            new = islice(reversed(shared.runs.values()), len(shared.runs) - told)
            for run in reversed(list(new)):
                told += 1
                if on_run:
                    on_run(typed(pd.DataFrame(run)))
                if on_progress and progress:
                    on_progress(told, len(cells))

        tell(progress=False)
        while True:
            todo = (cells[key] for key in shared.claims(cells))
            with closing(_compute(todo, executor, stop)) as computed:
                for cell, (found, name) in computed:
                    by[name] += 1
                    shared.add(_key(cell), found)
                    tell()
            shared.look()
            tell()
            if len(shared.runs) == len(cells) or stop():
                break
            time.sleep(_LOOK_S)
        ordered = sorted(cells.values(), key=lambda c: (c.workload, c.searcher, c.lanes, c.seed))
        keys = [key for c in ordered if (key := _key(c)) in shared.runs]
        frame = _gather([shared.runs[key] for key in keys])
        frame.attrs["computed_by"] = dict(by)
        if shared.target is not None and len(keys) == len(cells):
            facts = self.facts() | {"provenance": provenance() | frame.attrs}
            with shared.alone():
                if not shared.target.exists():
                    write_table(_slim(frame, facts), shared.target, facts=facts, split=SPLIT)
        return frame

    def facts(self) -> dict[str, Any]:
        """Returns what determines the results, JSON-ready; a stored table must match it."""
        sources = {name: source for name, (_, _, source) in self._rows.items() if source}
        return ({"sources": sources} if sources else {}) | {
            "experiment": self.name,
            "workloads": list(self.workloads),
            "searchers": {k: [v[0], v[1]] for k, v in self._rows.items()},
            "seeds": self.seeds,
            "budget": asdict(self.budget),
            "lanes": list(self.lanes),
            "landscapes": {w: recorded(w, self.gpu).manifest["sha256"] for w in self.workloads},
        }


def process_pool(workers: int | None = None) -> Pool:
    """Returns a pool of fresh processes, one per core by default."""
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be >= 1, got {workers}")
    return Pool(workers)


def load_runs(path: Path | str, *, expect: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Loads a stored table of runs; with `expect`, only if it answers the same request."""
    frame, facts = read_table(path)
    if not {"workload", "gpu", "searcher", "seed", "trial", "latency_us"} <= {*frame}:
        law = "a table of runs must hold their trials, as Experiment stores them"
        raise StoreError(f"{law}, got {', '.join(frame)} in {Path(path).name}; name another")
    if expect is not None:
        wanted = json.loads(json.dumps(dict(expect)))
        different = sorted(k for k in wanted if facts.get(k) != wanted[k])
        if different:
            raise StoreError(
                f"stored runs must answer the same request, got other {', '.join(different)} in "
                f"{Path(path).name}; give another name or directory, or move the file away"
            )
    if STEPS in frame:
        frame[STEPS] = from_steps(frame[STEPS].to_numpy())
    if JUDGED not in frame:
        found = judged(frame, facts["landscapes"])
        frame.insert(frame.columns.get_loc("latency_us") + 1, JUDGED, found)
    if LAUNCHES in frame:
        frame[LAUNCHES] = from_launches(frame, facts["landscapes"])
    return typed(frame.rename(columns={STEPS: "machine_s", LAUNCHES: "measure_s"}))


def _slim(frame: pd.DataFrame, facts: Mapping[str, Any]) -> pd.DataFrame:
    """Returns what is stored: whole numbers for seconds, and nothing that shipped data repeat."""
    if not any(workload.endswith(".parquet") for workload in facts["landscapes"]):
        frame = frame.drop(columns=JUDGED)
        if (launches := to_launches(frame, facts["landscapes"])) is not None:
            frame = frame.assign(measure_s=launches).rename(columns={"measure_s": LAUNCHES})
    if (steps := to_steps(frame["machine_s"].to_numpy())) is None:
        return frame
    return frame.assign(machine_s=steps).rename(columns={"machine_s": STEPS})


def compare_cell(runs: pd.DataFrame, cell: Cell) -> list[str]:
    """Recomputes one run and returns the columns in which it differs from the stored rows.

    The columns of ANATOMY and COSTS are compared where the table was stored with them. LATER
    stands before what differs where the first EARLY trials of a searcher of BY_CPU are equal.
    """
    fresh = run_cell(cell)
    absent = list(ANATOMY) if runs["twin"].isna().any() else []
    absent += [name for name in COSTS if runs[name].isna().all()]
    fresh = fresh.drop(columns=[*absent, *NOT_REPEATABLE], errors="ignore")
    facts = ("workload", "gpu", "searcher", "lanes", "seed")
    same = pd.DataFrame({name: runs[name] == fresh[name].iloc[0] for name in facts}).all(axis=1)
    stored = runs[same].reset_index(drop=True)
    here, there = columns(fresh), columns(stored)

    def differ(most: int | None = None) -> list[str]:
        return [name for name, values in here.items() if values[:most] != there[name][:most]]

    bad = differ() if len(fresh) == len(stored) else ["trial"]
    excused = bad and cell.algorithm in BY_CPU and not differ(EARLY)
    return [LATER, *bad] if excused else bad


def _listing(name: str, given: Any, example: str) -> Sequence | Mapping:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{name} must be listed, as in {example}, got {given!r}")
    return given if isinstance(given, Mapping) else list(given)


def _lanes(given: Any) -> tuple[int, ...]:
    found = tuple(whole("lanes", lanes, low=1) for lanes in _listing("lanes", given, "(4, 16)"))
    if len(set(found)) < len(found):
        raise UsageError(f"lanes must be different counts >= 1, got {found}")
    return found


def _compute(cells: Iterable[Cell], executor: Executor | None, stop: Callable[[], bool]):
    """Yields cells with their columns and who computed them; what is queued then is cancelled."""
    if executor is not None:
        yield from spread(cells, executor, stop)
        return
    for cell in takewhile(lambda _: not stop(), cells):
        yield cell, (columns(run_cell(cell)), process_name())


def _key(cell: Cell) -> str:
    return f"{cell.workload}|{cell.searcher}|{cell.lanes}|{cell.seed}"


def _gather(runs: Sequence[dict]) -> pd.DataFrame:
    if not runs:
        return pd.DataFrame()
    # A journal that an older kt_lab began may lack columns.
    names = dict.fromkeys(name for run in runs for name in run)
    rows = [run | {n: [None] * len(run["trial"]) for n in names if n not in run} for run in runs]
    return typed(pd.DataFrame({n: pd.Series([v for run in rows for v in run[n]]) for n in names}))

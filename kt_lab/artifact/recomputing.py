"""Recomputing what an artifact publishes, and telling what differs."""

import json
import random
import shutil
from collections.abc import Collection, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.artifact.recompute import MANIFEST
from kt_lab.cells import Cell
from kt_lab.errors import UsageError, require_known
from kt_lab.experiment import compare_cell, load_runs
from kt_lab.publication import publish
from kt_lab.publication.stored import parts_of
from kt_lab.store import read_table
from kt_lab.study import apart

TOLERANCE = 1e-9  # relative: what other builds of numpy and scipy may change


def recompute(
    root: Path,
    *,
    replays: int | None = 12,
    seed: int = 0,
    only: Collection[str] | None = None,
    workers: int = 1,
) -> tuple[list[str], bool]:
    """Recomputes an unpacked artifact; `KT_LAB_DATA` must name its data.

    Args:
        root: Its folder; what is drawn anew goes to `recomputed/` in it.
        replays: How many stored runs of each table are replayed; None: all.
        seed: Chooses them.
        only: Names of figures and tables, or "none"; None: all that the artifact holds.
        workers: Processes.

    Returns:
        What was found, a sentence each, and whether everything is equal.
    """
    told, good = [], True
    studies = json.loads((root / MANIFEST).read_text(encoding="utf-8"))["studies"]
    names = ("none", *(name for settings in studies.values() for name in settings["only"]))
    require_known("figure or table", only or (), names)
    for name, settings in studies.items():
        if Path(name).name != name or name == "..":  # it names folders that are made and deleted
            raise UsageError(f"a study's name must be that of one folder, got {name!r}")
        published, fresh = root / "paper" / name, root / "recomputed" / name
        shutil.rmtree(fresh, ignore_errors=True)
        wanted = settings["only"] if only is None else [n for n in settings["only"] if n in only]
        if wanted:
            publish(name, directory=fresh, **settings | {"only": wanted}, workers=workers)
        different = {
            n: compare_tables(published / f"{n}.csv", fresh / f"{n}.csv")
            + _compare_words(published / f"{n}.tex", fresh / f"{n}.tex")
            for n in wanted
        }
        for table, said in different.items():
            told += [f"{name}/{table}: {words}" for words in said]
            good &= not said
        equal = sum(not said for said in different.values())
        told.append(
            f"{name}: the numbers of {equal} of {len(wanted)} figures and tables are equal"
        )
        for part, path in parts_of(name).items():
            said, fine = _replayed(part, path, count=replays, seed=seed)
            told += said
            good &= fine
    return told, good


def _replayed(part: str, path: Path, *, count: int | None, seed: int) -> tuple[list[str], bool]:
    """Replays runs of a stored table; returns what was found, and whether all is well."""
    lacking: dict[str, str] = {}
    found = replay_runs(path, count=count, seed=seed, left_out=lacking)
    wrong, excused = apart(found)
    told = [f"{part}: {run} differs in {', '.join(found[run])}" for run in wrong]
    equal = len(found) - len(wrong) - len(excused)
    told.append(f"{part}: {equal} of {len(found)} replayed runs are equal")
    if excused:
        told.append(
            f"{part}: {len(excused)} runs of Optuna's searchers differ, as they may on another CPU"
        )
    for searcher, why in sorted(lacking.items()):
        told.append(f"{part}: runs of {searcher} were left out: {why}")
    own = read_table(path)[1].get("sources", {})  # whose code is nowhere but where it was written
    return told, not wrong and own.keys().isdisjoint(lacking)


def compare_tables(stored: Path, fresh: Path) -> list[str]:
    """Returns in what two written tables differ, a sentence each; numbers to TOLERANCE."""
    if not stored.exists() or not fresh.exists():
        absent = stored if not stored.exists() else fresh
        return [f"{absent.name} was not written"]
    left, right = pd.read_csv(stored), pd.read_csv(fresh)
    if list(left.columns) != list(right.columns) or len(left) != len(right):
        return [f"{left.shape} rows and columns were published, {right.shape} recomputed"]
    problems = []
    for name in left.columns:
        one, two = left[name], right[name]
        if one.dtype.kind in "fi" and two.dtype.kind in "fi":
            same = np.isclose(one, two, rtol=TOLERANCE, atol=0, equal_nan=True)
        else:
            texts = [c.astype(object).where(c.notna(), "").map(str) for c in (one, two)]
            same = (texts[0] == texts[1]).to_numpy()
        if not same.all():
            at = int(np.argmin(same))
            problems.append(
                f"{int((~same).sum())} of {len(same)} values of {name} differ, first in row "
                f"{at}: {one.iloc[at]} was published, {two.iloc[at]} recomputed"
            )
    return problems


def _compare_words(stored: Path, fresh: Path) -> list[str]:
    """Returns in what line two written floats differ first, a sentence: a caption or a number."""
    if absent := [path.name for path in (stored, fresh) if not path.exists()]:
        return [f"{absent[0]} was not written"]
    texts = [path.read_text(encoding="utf-8").splitlines() for path in (stored, fresh)]
    for number, (one, two) in enumerate(zip_longest(*texts, fillvalue=""), start=1):
        if one != two:
            at = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
            words = [repr(line[max(0, at - 20) : at + 20]) for line in (one, two)]
            return [
                f"line {number} of {stored.name} differs: {words[0]} was published, {words[1]} "
                "recomputed"
            ]
    return []


def replay_runs(
    path: Path, *, count: int | None, seed: int = 0, left_out: dict[str, str] | None = None
) -> dict[str, list[str]]:
    """Replays stored runs from their landscapes.

    Args:
        path: The stored table.
        count: How many, chosen at random; None: all.
        seed: Chooses them.
        left_out: Gets the searchers that cannot be imported here, and why.

    Returns:
        Per run, as "workload searcher lanes=L seed=S", the columns that came out different; the
        searcher's own seconds are not compared. Runs of searchers that are not installed here
        are not among them.
    """
    if count is not None and count < 0:
        raise UsageError(f"runs to replay must be >= 0, or None for all, got {count}")
    if count == 0:
        return {}
    runs, facts = load_runs(path), read_table(path)[1]
    cells = [*_cells(runs, facts)]
    random.Random(seed).shuffle(cells)
    found: dict[str, list[str]] = {}
    for cell in cells:
        if count is not None and len(found) == count:
            break
        name = f"{cell.workload} {cell.searcher} lanes={cell.lanes} seed={cell.seed}"
        try:
            found[name] = compare_cell(runs, cell)
        except ImportError as error:  # a peer's package, or a module of somebody's own
            (left_out if left_out is not None else {})[cell.searcher] = str(error)
    return found


def _cells(runs: pd.DataFrame, facts: Mapping[str, Any]) -> Iterator[Cell]:
    """Yields the runs of a stored table as they were asked for."""
    keys = ["workload", "gpu", "searcher", "lanes", "seed"]
    for row in runs[keys].drop_duplicates().astype({k: str for k in keys[:3]}).itertuples():
        algorithm, options = facts["searchers"][row.searcher]
        yield Cell(
            workload=row.workload,
            gpu=row.gpu,
            searcher=row.searcher,
            algorithm=algorithm,
            options=tuple(sorted(options.items())),
            lanes=int(row.lanes),
            seed=int(row.seed),
            trials=facts["budget"]["trials"],
            seconds=facts["budget"]["seconds"],
            source=facts.get("sources", {}).get(row.searcher),
        )

"""Stored runs of a study with all that they rest on, read from files alone."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import union_categoricals

from kt_lab.cells import CATEGORIES
from kt_lab.comparison import landscapes_of
from kt_lab.comparison.figures import require_found
from kt_lab.comparison.words import asked_words
from kt_lab.errors import StoreError, UnknownName, UsageError
from kt_lab.experiment import load_runs
from kt_lab.landscape import Landscape, data_directory, landscapes
from kt_lab.origins import told
from kt_lab.plots.captions import listed
from kt_lab.stats.tables import RUN
from kt_lab.store import read_table
from kt_lab.studies import REFERENCE

_FACTS = ("searchers", "seeds", "budget", "lanes", "landscapes", "provenance")
_TOLD = ("scikit-learn", "optuna")  # packages that searchers decide with


@dataclass(frozen=True)
class StoredStudy:
    """The runs of one lane count, and where they are from.

    Attributes:
        name: Of the study, or of several that are told together ("field").
        runs: The tidy table of runs.
        reference: The searcher that the others are compared with.
        parts: Per stored table its facts: searchers, seeds, budget, lanes, landscapes, provenance.
        files: Per stored table its file.
        landscapes: What the runs replayed.
    """

    name: str
    runs: pd.DataFrame
    reference: str
    parts: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, Path]
    landscapes: Sequence[Landscape]

    @property
    def rows(self) -> dict[str, Any]:
        """Row name -> (registered name, options), as in Experiment."""
        told = [facts["searchers"].items() for facts in self.parts.values()]
        return {name: tuple(row) for rows in told for name, row in rows}

    def provenance(self) -> dict[str, Any]:
        """Returns what determines the figures, JSON-ready: nothing of this moment or machine."""
        return {
            "study": self.name,
            "lanes": int(self.runs["lanes"].iloc[0]),
            "reference": self.reference,
            "landscapes": {self._named(e): e.manifest["sha256"] for e in self.landscapes},
            "runs": {
                part: {"sha256": sha256(self.files[part])}
                | {key: facts[key] for key in ("seeds", "budget", "searchers", "provenance")}
                for part, facts in self.parts.items()
            },
        }

    def _named(self, landscape: Landscape) -> str:
        several = sum(e.workload == landscape.workload for e in self.landscapes) > 1
        return f"{landscape.workload} on {landscape.gpu}" if several else landscape.workload

    def versions(self) -> str:
        """Returns the sentences of what computed, and by which protocol it was measured."""
        made = [facts["provenance"] for facts in self.parts.values()]
        tools = _distinct(f"kt_lab {each['kt_lab']}" for each in made)
        for package in _TOLD:
            tools += _distinct(
                f"{package} {each['packages'][package]}"
                for each in made
                if each["packages"].get(package)
            )
        recorded = told(self.landscapes)["landscapes"]  # what a file does not tell is None
        protocols = _distinct(each["protocol"] or "unknown" for each in recorded.values())
        machines = _distinct(
            f"{name.rpartition(' on ')[2]} is {each['gpu']} "
            f"(driver {each['driver'] or 'unknown'}, Triton {each['triton']})"
            for name, each in recorded.items()
            if each["triton"]
        )
        measured = f" {listed(machines)}." if machines else ""
        return (
            f"Replayed by {listed(tools)} from recorded landscapes; timing protocol "
            f"{listed(protocols)}.{measured}"
        )


def _distinct(words) -> list[str]:
    return list(dict.fromkeys(words))


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def parts_of(name: str) -> dict[str, Path]:
    """Returns the stored tables that a name stands for: its own, or all that begin with it.

    "field" stands for "field_softmax" and "field_int4_gemm".

    Raises:
        StoreError: A part is not computed to its end, or is there twice.
    """
    root = data_directory() / "runs"
    paths = sorted(root.glob("*/*.parquet"))
    known = {path.stem for path in paths}
    begun = {path.stem.partition("+")[0] for path in root.glob("*/*.jsonl")} - known
    parts = {part for part in known | begun if part.startswith(f"{name}_")}
    parts = {name} if name in known | begun else parts
    if not parts:
        groups = {part.rpartition("_")[0] for part in known} - {""}
        raise UnknownName("stored study", name, {*known, *groups})
    if open_ := sorted(parts & begun):
        raise StoreError(
            f"the study {listed(open_)} is not computed to its end; run it again, it goes on"
        )
    found: dict[str, Path] = {}
    for path in paths:
        if path.stem in parts and not found.setdefault(path.stem, path).samefile(path):
            folders = listed(each.parent.name for each in paths if each.stem == path.stem)
            raise StoreError(
                f"a stored study must lie once in data/runs, got {path.name} in {folders}; move "
                "all but one out of data/runs"
            )
    return dict(sorted(found.items()))


def read_study(
    name: str, *, lanes: int | None = None, reference: str | None = None
) -> StoredStudy:
    """Reads a stored study from data/runs, with the landscapes that it replayed.

    Args:
        name: Of a stored table, or what several begin with ("field").
        lanes: Which lane count; None: the most.
        reference: A searcher; None: pattern search, under whatever name it ran, else the first.

    Raises:
        StoreError: A landscape is not the one that was replayed, or runs are missing.
    """
    files = parts_of(name)
    tables = {part: read_table(path)[1] for part, path in files.items()}
    each_runs = {part: load_runs(path) for part, path in files.items()}
    for part, facts in tables.items():
        _require_whole(part, each_runs[part], facts)
    _require_one_study(name, each_runs)
    runs = _joined([*each_runs.values()])
    require_found(runs)
    known = sorted(int(count) for count in runs["lanes"].unique())
    lanes = known[-1] if lanes is None else lanes
    if lanes not in known:
        raise UsageError(f"lanes must be one of the study's {known}, got {lanes}")
    runs = runs[runs["lanes"] == lanes].reset_index(drop=True)
    asked = {asked_words(**facts["budget"]) for facts in tables.values()}
    if len(asked) == 1:
        runs.attrs["budget"] = asked.pop()
    # Keys may be files of landscapes elsewhere: those come with no shipped manifest.
    shipped = {(e.gpu, e.workload) for e in landscapes()}
    cells = set(runs[["gpu", "workload"]].drop_duplicates().itertuples(index=False, name=None))
    if missing := sorted(cells - shipped):
        raise StoreError(
            f"a study is published with the landscapes that it replayed, got none of "
            f"{missing[0][1]} on {missing[0][0]} in data/landscapes; copy it there"
        )
    found = landscapes_of(runs)
    for part, facts in tables.items():
        own = each_runs[part].groupby("workload", observed=True)["gpu"].unique()
        for each in found:
            known = facts["landscapes"]  # by what was asked for: a key, or a landscape's file
            known = [known[each.workload]] if each.workload in known else known.values()
            alone = [*own.get(each.workload, ())] == [each.gpu]  # else it names one GPU's only
            if alone and each.manifest["sha256"] not in known:
                raise StoreError(
                    f"{part} replayed another landscape of {each.workload} than the one in "
                    "data/landscapes; run the study again"
                )
    return StoredStudy(name, runs, _reference(runs, reference), tables, files, found)


def _require_whole(part: str, runs: pd.DataFrame, facts: Mapping[str, Any]) -> None:
    """Raises StoreError unless a table holds every run that was asked for, and no other."""
    if missing := [fact for fact in _FACTS if fact not in facts]:
        raise StoreError(
            f"a stored study must tell its {', '.join(_FACTS)}, got no {', '.join(missing)} in "
            f"{part}; kt_lab.experiment.Experiment stores them"
        )
    counts = {fact: len(facts[fact]) for fact in ("searchers", "landscapes", "lanes")}
    asked = math.prod(counts.values()) * facts["seeds"]
    if (held := len(runs[list(RUN)].drop_duplicates())) != asked:
        raise StoreError(
            f"a stored study must hold all {asked:,} runs that were asked for, got {held:,} in "
            f"{part}, which was changed since; move it away and run the experiment again"
        )


def _require_one_study(name: str, parts: Mapping[str, pd.DataFrame]) -> None:
    """Raises UsageError where tables whose names begin alike are not parts of one study."""
    searchers = {part: set(runs["searcher"].astype(str)) for part, runs in parts.items()}
    keys = [runs[list(RUN)].drop_duplicates().astype(str) for runs in parts.values()]
    twice = pd.concat(keys).duplicated().any()
    if twice or len({frozenset(names) for names in searchers.values()}) > 1:
        counts = ", ".join(f"{part} ({len(names)} searchers)" for part, names in searchers.items())
        raise UsageError(
            f"parts of a study have the same searchers and no run in common, got for {name} "
            f"{counts}{', and runs in common' if twice else ''}; name one of them, or rename it"
        )


def _joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Returns tables of runs as one; names stay categories, which millions of strings are not."""
    names = {
        name: union_categoricals([part[name] for part in parts], sort_categories=True)
        for name in CATEGORIES
    }
    rest = pd.concat([part.drop(columns=[*CATEGORIES]) for part in parts], ignore_index=True)
    return rest.assign(**names)[parts[0].columns]


def _reference(runs: pd.DataFrame, given: str | None) -> str:
    """Returns the reference, if it ran."""
    names = sorted(runs["searcher"].astype(str).unique())
    if given is not None:
        if given not in names:
            raise UnknownName("searcher", given, names)
        return given
    usual = (REFERENCE, f"{REFERENCE}_tuned", *names)
    return next(name for name in usual if name in names)

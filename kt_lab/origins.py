"""Where what a figure shows comes from: the facts that `save_figure` writes beside it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from kt_lab.landscape import Landscape, landscapes
from kt_lab.manifests import read_manifest

_RUN = ("searcher", "seed", "lanes")


def told(*sources: Any) -> dict[str, Any]:
    """Returns where data come from, JSON-ready; nothing of this moment, folder or machine.

    Args:
        sources: In any number and order: landscapes, or sequences of them; tidy tables with
            `gpu` and `workload`, such as runs; results that a `kt-lab evidence` command stored.

    Returns:
        `measured`: the provenances of results, those that they were resumed with included.
        `landscapes`: by "workload on gpu", the sha256 of the recording, GPU, driver, versions and
        timing protocol; None for one that neither ships nor is given. `runs`: searchers, compile
        lanes and the number of seeds. Only the keys that the sources have something for.
    """
    found: dict[str, Any] = {"measured": [], "landscapes": {}, "runs": {}}
    for source in sources:
        if isinstance(source, pd.DataFrame):
            _add_table(found, source)
        elif isinstance(source, Mapping):
            _add_result(found, source)
        else:
            _add_landscapes(found, [source] if isinstance(source, Landscape) else source)
    return {name: facts for name, facts in found.items() if facts}


def _add_landscapes(found: dict[str, Any], given: Sequence[Landscape]) -> None:
    for each in given:
        found["landscapes"][f"{each.workload} on {each.gpu}"] = _recording(each.manifest)


def _add_table(found: dict[str, Any], table: pd.DataFrame) -> None:
    """Adds the recordings of a table's workloads, and who ran there."""
    if {*_RUN} <= {*table.columns}:
        found["runs"] = {
            "searchers": sorted(table["searcher"].astype(str).unique()),
            "lanes": sorted(int(lanes) for lanes in table["lanes"].unique()),
            "seeds": int(table["seed"].nunique()),
        }
    if {"gpu", "workload"} <= {*table.columns}:
        cells = table[["workload", "gpu"]].astype(str).drop_duplicates().sort_values("workload")
        _add_shipped(found, [tuple(cell) for cell in cells.itertuples(index=False)])


def _add_result(found: dict[str, Any], result: Mapping[str, Any]) -> None:
    """Adds what a result was measured with, or, where it does not say, what its rows searched."""
    if "provenance" in result:
        found["measured"] += [*result.get("resumed", []), result["provenance"]]
    else:
        rows = [row for row in result.get("rows", []) if {"workload", "gpu"} <= row.keys()]
        _add_shipped(found, sorted({(row["workload"], row["gpu"]) for row in rows}))


def _add_shipped(found: dict[str, Any], cells: Sequence[tuple[str, str]]) -> None:
    known = {(e.workload, e.gpu): e.path.with_suffix(".json") for e in landscapes()}
    for workload, gpu in cells:
        path = known.get((workload, gpu))
        told = None if path is None else _recording(read_manifest(path))
        found["landscapes"].setdefault(f"{workload} on {gpu}", told)


def _recording(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts of one recording; those that its file does not tell are None."""
    first = next(iter(manifest.get("facts") or []), {})
    return {
        "sha256": manifest.get("sha256"),
        "gpu": first.get("gpu", manifest["gpu"]),
        "driver": first.get("sensors", {}).get("driver"),
        "torch": first.get("torch"),
        "triton": first.get("triton"),
        "protocol": manifest.get("protocol", {}).get("name"),
    }

"""Journals of live searches: where one lies, and what makes two searches the same."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kt_lab.errors import UsageError
from kt_lab.landscape import data_directory
from kt_lab.provenance import kernel_source
from kt_lab.runners.journaled import JournaledRunner
from kt_lab.store.journal import put_aside

_LONG = 210  # bytes of a journal's name, to which others are added: file systems allow 255


def journaled(
    runner: Any,
    *,
    searcher: str,
    options: Mapping[str, Any],
    seed: int,
    known: str = "",
    directory: Path | str | None = None,
    resume: bool = True,
) -> JournaledRunner:
    """Returns an open live runner with the journal of one search: no measurement of it is lost.

    The same search on the same space goes on where an earlier part of it ended. A captured kernel
    that was edited, its space and its tolerances included, is searched anew, in another journal.

    Args:
        runner: `GpuRunner`, or one that was lent; closed with what is returned.
        searcher: Registered name of the searcher.
        options: Its options.
        seed: Its seed.
        known: Where the readings come from that the searcher starts with; empty: it has none.
        directory: The journal goes to <directory>/live; None: the folder of recorded data.
        resume: Whether to go on with the journal of an earlier part; otherwise it is put aside.

    Raises:
        StoreError: The journal is of another kernel source, GPU or Triton, or in use.
    """
    facts = live_facts(runner, searcher=searcher, options=options, seed=seed, known=known)
    path = journal_path(data_directory() if directory is None else Path(directory), facts)
    if runner.kernel.device.endswith(".py"):
        path = path.with_stem(f"{path.stem}-of{facts['kernel_source'][:6]}{facts['space'][:6]}")
    elif facts["space"] != runner.kernel.space(runner.workload).fingerprint:
        path = path.with_stem(f"{path.stem}-space{facts['space'][:8]}")
    if not resume and path.exists():
        put_aside(path)
    return JournaledRunner(runner, path, facts=facts)


def journal_path(root: Path, facts: Mapping[str, Any]) -> Path:
    """Returns where the journal of a run with these facts lies."""
    kernel, _, name = facts["workload"].partition("/")
    chosen = [f"{k}={v}" for k, v in sorted(facts["options"].items())]
    if "known" in facts:
        chosen.append(f"known{hashlib.sha256(facts['known'].encode()).hexdigest()[:8]}")
    stem = "-".join([facts["searcher"], *chosen, f"seed{facts['seed']}"]).replace("/", "_")
    if len(stem.encode()) > _LONG:  # its facts stand in the journal
        digest = hashlib.sha256(stem.encode()).hexdigest()[:16]
        stem = f"{facts['searcher']}-{digest}-seed{facts['seed']}"
    return root / "live" / kernel / facts["gpu"] / name / f"{stem}.jsonl"


def live_facts(
    runner: Any, *, searcher: str, options: Mapping[str, Any], seed: int, known: str = ""
) -> dict[str, Any]:
    """Returns what makes two live runs the same, in JSON types."""
    facts = {
        "workload": runner.workload.key,
        "space": runner.space.fingerprint,
        "kernel_source": kernel_source(runner.kernel),
        "gpu": runner.facts["slug"],
        "triton": runner.facts["triton"],
        "protocol": runner.protocol.name,
        "searcher": searcher,
        "options": dict(options),
        "seed": seed,
    } | ({"known": known} if known else {})
    try:
        return json.loads(json.dumps(facts))
    except TypeError:
        raise UsageError(
            f"options of a run that is stored must be numbers, texts or flags, got {options}"
        ) from None

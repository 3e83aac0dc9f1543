"""Storing what a session measured, in the form of the studies' runs."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kt_lab.cells import history_table
from kt_lab.errors import UsageError
from kt_lab.landscape import data_directory
from kt_lab.provenance import provenance
from kt_lab.runners.readings import config_to_json
from kt_lab.store import write_table
from kt_lab.trial import Config, History

_COLUMNS = ("workload", "kernel", "gpu", "searcher", "lanes", "seed")


def save_history(
    history: History,
    path: Path | str | None = None,
    *,
    facts: Mapping[str, Any],
    judge: Callable[[Config], float | None],
) -> Path:
    """Writes trials as a tidy table of runs and returns its path.

    One row per trial, with the columns of a study's runs and `values`, the config as JSON.
    `config` is the position in the recorded space in a replay; in a live run it numbers the
    distinct configs.

    Args:
        history: At least one trial.
        path: The file; None: a new one in `sessions` of the folder of recorded data.
        facts: Stored beside the table, with the provenance; workload, kernel, gpu, searcher,
            lanes and seed become columns.
        judge: Returns a config's latency in unseen visits; None: unknown.

    Raises:
        UsageError: There is no trial.
    """
    if not history:
        raise UsageError("a stored session must hold at least one trial, got none; start it")
    table = history_table(history, facts={name: facts.get(name) for name in _COLUMNS})
    configs = list(dict.fromkeys(t.config for t in history))
    columns = {
        "config": {config: number for number, config in enumerate(configs)},
        "judged_us": {config: judge(config) for config in configs},
        "values": {config: json.dumps(config_to_json(config)) for config in configs},
    }
    if (table["config"] >= 0).all():
        del columns["config"]
    for name, of in columns.items():
        table[name] = [of[t.config] for t in history]
    table = table.astype({"config": "int32", "judged_us": "float32"})
    stored = dict(facts) | {"provenance": provenance()}
    return write_table(table, path or _fresh_path(facts), facts=stored)


def _fresh_path(facts: Mapping[str, Any]) -> Path:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    stem = f"{facts.get('searcher')}-seed{facts.get('seed')}-{now}".replace("/", "_")
    folder = data_directory() / "sessions" / str(facts.get("workload")) / str(facts.get("gpu"))
    return folder / f"{stem}.parquet"

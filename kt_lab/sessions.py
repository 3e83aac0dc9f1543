"""Sessions on disk: what recorded configs read in another process, on another machine or day."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from kt_lab.errors import LandscapeError, UsageError
from kt_lab.landscape import Landscape, data_directory
from kt_lab.provenance import provenance
from kt_lab.store.files import replacing
from kt_lab.ticks import of_each, read_table, write_table
from kt_lab.trial import OK

SCHEMA = 2
_READABLE = (1, 2)  # 1 held the samples as floats
_COLUMNS = ("workload", "config", "status", "samples_us", "control", "order")


def save_session(
    table: pd.DataFrame,
    *,
    name: str,
    gpu: str,
    facts: Mapping[str, Any],
    rules: Mapping[str, Any],
    directory: Path | None = None,
) -> Path:
    """Writes one session by atomic replacement; returns its file.

    Args:
        table: One row per reading: workload, config (position in the space), status, samples_us
            (list, microseconds), control (bool), order (0, 1, ... as they were taken).
        name: Of the session, unique per GPU.
        gpu: The GPU's short name.
        facts: The machine, before and after.
        rules: What was timed, and how.
        directory: Default: data/sessions.
    """
    arrays = {
        "workload": pa.array(table["workload"].astype(str)).dictionary_encode(),
        "config": pa.array(table["config"], pa.int32()),
        "status": pa.array(table["status"].astype(str)).dictionary_encode(),
        "samples_us": pa.array(table["samples_us"].map(list), pa.list_(pa.float32())),
        "control": pa.array(table["control"], pa.bool_()),
        "order": pa.array(table["order"], pa.int32()),
    }
    about = {"schema": SCHEMA, "session": name, "gpu": gpu, "facts": facts, "rules": rules}
    about["provenance"] = provenance()
    path = (directory or data_directory() / "sessions") / gpu / f"{name}.parquet"
    with replacing(path) as partial:
        write_table(arrays, partial, {"kt_lab": json.dumps(about, default=str)})
    return path


def require_new(name: str, *, gpu: str, directory: Path | None = None) -> None:
    """Raises UsageError where a GPU has a session of that name: it would be written over."""
    path = (directory or data_directory() / "sessions") / gpu / f"{name}.parquet"
    if path.exists():
        raise UsageError(
            f"a session must have a name of its own, got {name}, which is stored; choose another "
            f"or delete {path}"
        )


def load_sessions(gpu: str, *, workload: str | None = None, directory=None) -> pd.DataFrame:
    """Returns every stored reading of a GPU, one row each, with the column `session` first.

    Args:
        gpu: The GPU's short name.
        workload: Only this one's; None: all.
        directory: Default: data/sessions.

    Raises:
        LandscapeError: A file is not a session of this schema.
    """
    folder = (Path(directory) if directory else data_directory() / "sessions") / gpu
    found = [_load(path, workload) for path in sorted(folder.glob("*.parquet"))]
    found = [frame for frame in found if len(frame)]
    if not found:
        return pd.DataFrame(columns=["session", *_COLUMNS]).astype({"control": bool})
    return pd.concat(found, ignore_index=True)


def _load(path: Path, workload: str | None) -> pd.DataFrame:
    try:
        table = read_table(path.read_bytes())
        about = json.loads((table.schema.metadata or {}).get(b"kt_lab", b"null"))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise LandscapeError(
            f"a session must be a Parquet file, got {path.name}: {type(error).__name__}: {error}"
        ) from None
    missing = sorted(set(_COLUMNS) - set(table.column_names))
    if not isinstance(about, dict) or about.get("schema") not in _READABLE or missing:
        raise LandscapeError(
            f"a session must hold {', '.join(_COLUMNS)} in schema {SCHEMA} or older; "
            f"{path.name} does not"
        )
    frame = table.to_pandas()
    frame["workload"], frame["status"] = frame["workload"].astype(str), frame["status"].astype(str)
    if workload is not None:
        frame = frame[frame["workload"] == workload]
    frame.insert(0, "session", about["session"])
    return frame


def log_offsets(landscape: Landscape, sessions: pd.DataFrame) -> dict[str, np.ndarray]:
    """Returns how each session's readings lie beside the recording, as logarithms.

    Args:
        landscape: The recording.
        sessions: Readings of its workload, as `load_sessions` returns them.

    Returns:
        Session name -> log(session median / recorded median) of every config of the space, shape
        (size,), NaN where the session has no reading.
    """
    kept = sessions[(sessions["workload"] == landscape.workload) & (sessions["status"] == OK)]
    kept = kept[~kept["control"]]
    out = {}
    for name, frame in kept.groupby("session", sort=True):
        found = np.full(landscape.space.size, np.nan)
        found[frame["config"].to_numpy()] = of_each(np.median, list(frame["samples_us"]))
        out[str(name)] = np.log(found / landscape.latency_us)
    return out


def draw_offset(landscape: Landscape, sessions: pd.DataFrame, *, seed: int) -> np.ndarray:
    """Returns what one day adds to every config, as a logarithm, shape (space.size,).

    The recording itself is one of the days: it adds nothing. A config that the drawn session did
    not time gets the session's median and the deviation from it of a config that it did time.

    Args:
        landscape: The recording.
        sessions: Readings of its workload; without any the answer is zeros.
        seed: Draws the session and the deviations.
    """
    offsets = list(log_offsets(landscape, sessions).values())
    rng = np.random.default_rng((seed, 3))  # its own stream beside the runner's
    drawn = int(rng.integers(len(offsets) + 1))
    if drawn == len(offsets):
        return np.zeros(landscape.space.size)
    offset = offsets[drawn]
    known = offset[np.isfinite(offset)]
    centre = float(np.median(known))
    filled = centre + rng.choice(known - centre, size=len(offset))
    return np.where(np.isfinite(offset), offset, filled)

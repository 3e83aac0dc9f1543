"""Times on disk: whole ticks, which compress where floats do not, and come back bit for bit.

CUDA reads an event in ticks of 32 ns and reports milliseconds as float32; a recorder multiplies by
1,000. Both steps are repeated here. Samples of another timer stay floats. The clocks of runs are
rounded to 0.1 ms as they are made; they are stored as what they advance by.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TICK_MS = 32e-6  # CUDA events on Hopper, driver 580
CLOCK_TICKS = 10_000  # per second of the clock of a run


def write_table(
    arrays: Mapping[str, pa.Array], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Writes columns to Parquet; `samples_us` as `samples_ticks` where ticks hold it all."""
    arrays = dict(arrays)
    split = [name for name, column in arrays.items() if _is_varied(column)]
    if (ticks := to_ticks(arrays["samples_us"])) is not None:
        at = list(arrays).index("samples_us")
        names = [*list(arrays)[:at], "samples_ticks", *list(arrays)[at + 1 :]]
        arrays = dict(zip(names, [*(arrays | {"samples_us": ticks}).values()], strict=True))
        split.append("samples_ticks.list.element")
    pq.write_table(
        pa.table(arrays, metadata=metadata),
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in arrays if name not in ("samples_ticks", *split)],
        use_byte_stream_split=split,
    )


def _is_varied(column: pa.Array) -> bool:
    """Tells whether a column is of floats that a dictionary would only make longer."""
    floats = pa.types.is_floating(column.type)
    return floats and 2 * pc.count_distinct(column).as_py() > len(column)


def read_table(raw: bytes) -> pa.Table:
    """Returns what `write_table` wrote, `samples_us` in microseconds whatever was stored."""
    table = pq.read_table(pa.BufferReader(raw))
    if "samples_ticks" not in table.column_names:
        return table
    at = table.column_names.index("samples_ticks")
    samples = from_ticks(table["samples_ticks"].combine_chunks())
    return table.set_column(at, "samples_us", samples)


def to_ticks(samples: pa.ListArray) -> pa.ListArray | None:
    """Returns timings as lists of ticks, int32, or None if they are not all whole ticks.

    Args:
        samples: Lists of microseconds, float32, as recorded.
    """
    values = samples.flatten().to_numpy()
    with np.errstate(invalid="ignore"):
        ticks = np.round(values.astype(float) / (TICK_MS * 1e3))
    if not (np.isfinite(ticks).all() and (np.abs(ticks) < 2**31).all()):
        return None
    ticks = ticks.astype(np.int32)
    if not np.array_equal(_microseconds(ticks), values):
        return None
    return pa.ListArray.from_arrays(samples.offsets, pa.array(ticks))


def from_ticks(ticks: pa.ListArray) -> pa.ListArray:
    """Returns lists of microseconds, float32, from lists of ticks."""
    values = pa.array(_microseconds(ticks.flatten().to_numpy()))
    return pa.ListArray.from_arrays(ticks.offsets, values)


def _microseconds(ticks: np.ndarray) -> np.ndarray:
    milliseconds = (ticks * TICK_MS).astype(np.float32)
    return (milliseconds.astype(float) * 1000).astype(np.float32)


def to_steps(clock_s: np.ndarray) -> np.ndarray | None:
    """Returns by how many ticks a clock advances per row, int32; None if ticks cannot hold it.

    Args:
        clock_s: Seconds, float32, rounded to CLOCK_TICKS; it may go back, to the next run.
    """
    with np.errstate(invalid="ignore"):
        steps = np.diff(np.rint(clock_s.astype(float) * CLOCK_TICKS), prepend=0)
    if not (np.isfinite(steps).all() and (np.abs(steps) < 2**31).all()):
        return None
    steps = steps.astype(np.int32)
    return steps if np.array_equal(from_steps(steps), clock_s) else None


def from_steps(steps: np.ndarray) -> np.ndarray:
    """Returns the seconds of a clock, float32, from what `to_steps` returned."""
    return (np.cumsum(steps, dtype=np.int64) / CLOCK_TICKS).astype(np.float32)


def of_each(statistic: Callable[..., np.ndarray], samples: Sequence[np.ndarray]) -> np.ndarray:
    """Returns a statistic of each config's samples, shape (len(samples),); NaN where it has none.

    As many rows at once as have the same length: tens of times as fast as one by one.

    Args:
        statistic: Of an array and an `axis` (np.median).
        samples: Of each config, any number.
    """
    found, alike = np.full(len(samples), np.nan), {}
    for at, row in enumerate(samples):
        alike.setdefault(len(row), []).append(at)
    for size, ats in alike.items():
        if size:
            found[ats] = statistic(np.array([samples[at] for at in ats]), axis=1)
    return found

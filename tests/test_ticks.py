"""Samples on disk come back bit for bit, whatever timer they are of."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kt_lab.ticks import TICK_MS, from_steps, of_each, read_table, to_steps, to_ticks, write_table


def lists(*samples):
    return pa.array(samples, pa.list_(pa.float32()))


def events(*ticks):
    """Microseconds as a recorder gets them from CUDA: float32 milliseconds times 1,000."""
    return [float(np.float32(float(np.float32(t * TICK_MS)) * 1000)) for t in ticks]


def written(tmp_path, samples):
    path = tmp_path / "table.parquet"
    write_table({"status": pa.array(["ok"] * len(samples)), "samples_us": samples}, path)
    return pq.read_schema(path).names, read_table(path.read_bytes())


def test_samples_of_the_event_timer_are_stored_as_ticks_and_come_back_exactly(tmp_path):
    rng = np.random.default_rng(0)
    samples = lists(events(*rng.integers(100, 10**6, 500)), [], events(146, 1))
    names, table = written(tmp_path, samples)
    assert names == ["status", "samples_ticks"]
    assert table.column_names == ["status", "samples_us"]
    assert table["samples_us"].combine_chunks().equals(samples)


def test_samples_of_another_timer_stay_floats(tmp_path):
    samples = lists(events(146, 150), [3.7000001])
    names, table = written(tmp_path, samples)
    assert names == ["status", "samples_us"]
    assert table["samples_us"].combine_chunks().equals(samples)


def test_floats_that_hardly_repeat_have_no_dictionary_and_come_back_exactly(tmp_path):
    rng = np.random.default_rng(0)
    varied = pa.array([None, *rng.random(199)], pa.float32())
    repeated = pa.array(np.repeat([0.1, 0.2], 100), pa.float32())
    samples = lists(*([1.0] for _ in range(200)))
    path = tmp_path / "table.parquet"
    write_table({"varied": varied, "repeated": repeated, "samples_us": samples}, path)
    group = pq.read_metadata(path).row_group(0)
    coded = {c.path_in_schema: c.encodings for c in map(group.column, range(group.num_columns))}
    assert "BYTE_STREAM_SPLIT" in coded["varied"]
    assert "RLE_DICTIONARY" in coded["repeated"]
    table = read_table(path.read_bytes())
    assert table["varied"].combine_chunks().equals(varied)
    assert table["repeated"].combine_chunks().equals(repeated)


def test_what_no_tick_can_hold_stays_a_float():
    assert to_ticks(lists([float("inf")])) is None
    assert to_ticks(lists([1e12])) is None
    assert to_ticks(lists([], [])) is not None


def test_a_clock_is_stored_as_its_steps_and_comes_back_exactly():
    rng = np.random.default_rng(0)
    runs = [np.cumsum(rng.exponential(scale, 2000)) for scale in (40.0, 0.3, 1e-4)]
    clock = np.round(np.concatenate(runs), 4).astype(np.float32)
    steps = to_steps(clock)
    assert steps.dtype == np.int32
    assert (steps < 0).sum() == 2, "back to the beginning, twice"
    assert np.array_equal(from_steps(steps), clock)


def test_a_clock_that_ticks_cannot_hold_stays_as_it_is():
    assert to_steps(np.float32([0.12345])) is None
    assert to_steps(np.float32([1.0, np.nan])) is None
    assert to_steps(np.float32([1e9])) is None
    assert to_steps(np.float32([])).size == 0


def test_a_statistic_of_samples_of_any_lengths_is_that_of_each():
    samples = [np.array(x, np.float32) for x in ([3, 1, 2], [], [5], [1, 2, 9], [4, 8])]
    found = of_each(np.median, samples)
    assert found[[0, 2, 3, 4]].tolist() == [2, 5, 2, 6]
    assert np.isnan(found[1])
    assert of_each(np.median, []).shape == (0,)

"""A landscape on two axes, and a search's way over it: nothing is lost, nothing is invented."""

import numpy as np
import pandas as pd
import pytest

from kt_lab import load_landscape, stats
from kt_lab.cells import Cell, run_cell
from kt_lab.errors import SpaceError, UnknownName, UsageError
from kt_lab.landscape import Landscape
from kt_lab.stats.slices import NO_CONFIG, UNRECORDED
from kt_lab.trial import OK


@pytest.fixture(scope="module")
def failing():
    """Of 1,180 configs 44 fail to compile or to launch."""
    return load_landscape("int4_gemm/1x2048x2048x2048", gpu="h200")


@pytest.fixture(scope="module")
def run(failing):
    cell = (failing.workload, "h200", "pattern", "pattern", (), 16, 3, 60, None)
    return run_cell(Cell(*cell))


def test_each_cell_shows_the_fastest_of_its_configs(failing):
    cells = stats.landscape_slice(failing, "BLOCK_N", "num_warps")
    space = failing.space
    configs = space.configs(space.enumerate())
    assert len(cells) == 3 * 3
    for cell in cells.itertuples():
        of = [i for i, c in enumerate(configs) if (str(c["BLOCK_N"]), str(c["num_warps"])) ==
              (cell.x, cell.y)]  # fmt: skip
        ok = [i for i in of if failing.status[i] == OK]
        assert (cell.n_configs, cell.n_ok) == (len(of), len(ok))
        if not of:
            assert (cell.status, pd.isna(cell.config)) == (NO_CONFIG, True)
            continue
        best = min(ok, key=lambda i: failing.latency_us[i])
        assert (cell.status, cell.config) == (OK, best)
        assert cell.latency_us == failing.latency_us[best]
        visits = [failing.medians_us(v)[best] for v in range(failing.visits)]
        assert (cell.low_us, cell.high_us) == (np.nanmin(visits), np.nanmax(visits))
    assert cells["n_configs"].sum() == space.size
    assert cells["ratio"].min() == 1.0


def test_fixed_values_cut_and_failures_show_by_status(failing):
    fixed = {"BLOCK_N": 256, "BLOCK_K": 128}
    cells = stats.landscape_slice(failing, "BLOCK_M", "num_stages", fixed=fixed)
    space = failing.space
    inside = [
        c["BLOCK_N"] == 256 and c["BLOCK_K"] == 128 for c in space.configs(space.enumerate())
    ]
    assert cells["n_configs"].sum() == sum(inside)
    failed = cells[~cells["status"].isin([OK, NO_CONFIG])]
    assert len(failed) == 3
    for cell in failed.itertuples():
        assert cell.n_ok == 0
        assert cell.n_configs > 0
        assert failing.status[cell.config] == cell.status
        assert pd.isna(cell.ratio)
    assert cells["fixed"].unique().tolist() == ["BLOCK_N=256, BLOCK_K=128"]
    assert (cells["ratio"].dropna() > 1.0).all(), "relative to the whole landscape, not the slice"


def test_a_config_that_nobody_recorded_is_told_from_one_that_cannot_be(failing):
    part = failing.table[failing.table["p_BLOCK_M"] > 0].reset_index(drop=True)
    half = Landscape(part, failing.manifest)
    cells = stats.landscape_slice(half, "BLOCK_M", "num_warps")
    assert set(cells.loc[cells["x"] == "64", "status"]) <= {UNRECORDED, NO_CONFIG}
    assert (cells.loc[cells["x"] == "64", "status"] == UNRECORDED).any()
    assert (cells.loc[cells["x"] == "128", "status"] == OK).any()


def test_axes_that_make_no_slice_are_refused(failing):
    with pytest.raises(UnknownName, match="BLOCK_Q"):
        stats.landscape_slice(failing, "BLOCK_Q", "num_warps")
    with pytest.raises(UsageError, match="two parameters"):
        stats.landscape_slice(failing, "num_warps", "num_warps")
    with pytest.raises(UsageError, match="not fixed"):
        stats.landscape_slice(failing, "BLOCK_N", "num_warps", fixed={"num_warps": 4})
    with pytest.raises(SpaceError, match="BLOCK_K=7"):
        stats.landscape_slice(failing, "BLOCK_N", "num_warps", fixed={"BLOCK_K": 7})


def test_a_path_tells_where_each_trial_was_and_who_led(failing, run):
    path = stats.search_path(failing, run, "BLOCK_N", "num_warps", fixed={"num_stages": 2})
    space = failing.space
    assert path["trial"].tolist() == sorted(run["trial"])
    for row in path.itertuples():
        config = space.config(space.enumerate()[row.config])
        assert space.parameters[1].values[row.x_index] == config["BLOCK_N"]
        assert row.inside == (config["num_stages"] == 2)
    for _, cell in path.groupby(["x_index", "y_index"]):
        assert cell["slot"].tolist() == list(range(len(cell)))
    curve = stats.incumbent_curves(run)
    led = path["config"].iloc[path["incumbent"].dropna().astype(int)]
    assert led.tolist() == curve["incumbent"].dropna().tolist()
    leaders = path["incumbent"].dropna().astype(int)
    assert (leaders <= leaders.index).all(), "nobody leads before it was measured"


def test_a_path_needs_one_run_of_its_landscape(failing, run):
    axes = ("BLOCK_N", "num_warps")
    with pytest.raises(UsageError, match="got 2 of"):
        stats.search_path(failing, pd.concat([run, run.assign(seed=4)]), *axes)
    with pytest.raises(UsageError, match="one run of int4_gemm"):
        stats.search_path(failing, run.assign(workload="softmax/4096x640"), *axes)
    with pytest.raises(UsageError, match=r"one run of .* on h200, got 1 of .* on h100"):
        stats.search_path(failing, run.assign(gpu="h100"), *axes)
    with pytest.raises(UsageError, match="live run"):
        stats.search_path(failing, run.assign(config=-1), *axes)

"""One config: occupancy by NVIDIA's rules, floors, neighbours, and what two configs differ in."""

import numpy as np
import pytest

from kt_lab import load_landscape, stats
from kt_lab.errors import SpaceError, UnknownName, UsageError
from kt_lab.landscape import Landscape
from kt_lab.trial import OK


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "warps", "blocks", "limited_by"),
    [
        (0, 0, 1, 32, ("blocks",)),
        (32, 0, 4, 16, ("registers", "warps")),  # 64 warps: full
        (33, 0, 4, 12, ("registers",)),  # a warp takes 1,280 registers: 12 of a quarter's 16,384
        (64, 0, 8, 4, ("registers",)),
        (255, 0, 8, 1, ("registers",)),  # 8,192 a warp: two of them in each quarter
        (255, 0, 16, 0, ("registers",)),  # does not fit
        (32, 227 * 1024, 4, 1, ("shared memory",)),  # with the reserved 1 KiB all of it
        (32, 113 * 1024, 4, 2, ("shared memory",)),
        (32, 113 * 1024 + 1, 4, 1, ("shared memory",)),
        (32, 0, 32, 2, ("registers", "warps")),
    ],
)
def test_occupancy_follows_nvidias_rules(registers, shared_bytes, warps, blocks, limited_by):
    found = stats.occupancy(registers=registers, shared_bytes=shared_bytes, warps=warps)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.warps == blocks * warps
    assert found.share == blocks * warps / 64


def test_occupancy_depends_on_the_gpu_and_refuses_what_no_kernel_has():
    ada = stats.occupancy(registers=32, shared_bytes=0, warps=1, capability="8.9")
    assert (ada.blocks, ada.most_warps) == (24, 48)
    with pytest.raises(UnknownName, match="compute capability"):
        stats.occupancy(registers=32, shared_bytes=0, warps=1, capability="7.0")
    for wrong in ({"registers": 256}, {"warps": 0}, {"shared_bytes": -1}):
        with pytest.raises(UsageError, match="got registers"):
            stats.occupancy(**{"registers": 32, "shared_bytes": 0, "warps": 1} | wrong)


@pytest.fixture(scope="module")
def landscape():
    return load_landscape("softmax/256x128256", gpu="h200")


@pytest.fixture(scope="module")
def failed(landscape):
    space = landscape.space
    return space.config(space.enumerate()[np.flatnonzero(landscape.status != OK)[0]])


def test_a_config_is_told_as_it_was_recorded(landscape):
    best = stats.inspect_config(landscape, landscape.best)
    row = landscape.table.loc[landscape.space.index(landscape.best)]
    assert (best.status, best.rank, best.latency_us) == (OK, 1, landscape.optimum_us)
    assert (best.registers, best.spills) == (row["registers"], row["spills"])
    assert best.low_us <= best.latency_us <= best.high_us
    assert len(best.visits_us) == landscape.visits
    assert best.programs == int(row["grid"])
    assert best.occupancy == stats.occupancy(
        registers=int(row["registers"]),
        shared_bytes=int(row["shared_bytes"]),
        warps=landscape.best["num_warps"],
    )
    roof = best.roofline
    assert roof.bytes_us == pytest.approx(landscape.manifest["bytes_floor_us"])
    assert roof.flops_us == pytest.approx(landscape.manifest["flops"] / 989.4e12 * 1e6)
    assert (roof.bound, roof.floor_us) == ("memory", roof.bytes_us)


def test_a_config_that_failed_says_why_and_claims_nothing(landscape, failed):
    found = stats.inspect_config(landscape, failed)
    assert found.status == "launch_error"
    assert "out of resource" in found.error
    assert (found.latency_us, found.low_us, found.rank, found.visits_us) == (None, None, None, ())
    assert stats.neighbours_table(landscape, failed)["ratio"].isna().all()
    table = stats.compare_configs(landscape, {"A": failed, "B": landscape.best})
    assert table["status"].tolist() == ["launch_error", OK]
    assert np.isnan(table["bytes_share"].iloc[0])
    assert table["to_optimum"].iloc[1] == 1.0
    with pytest.raises(SpaceError):
        stats.inspect_config(landscape, dict(failed) | {"num_warps": 1})


def test_a_neighbours_ratio_lies_within_its_own_range(landscape):
    space = landscape.space
    for at in np.flatnonzero(landscape.status == OK)[::40]:
        table = stats.neighbours_table(landscape, space.config(space.enumerate()[at]))
        known = table.dropna(subset="ratio")
        assert (known["low"] <= known["ratio"]).all()
        assert (known["ratio"] <= known["high"]).all()


def test_neighbours_are_one_step_away_and_fastest_first(landscape):
    here = landscape.space.default
    table = stats.neighbours_table(landscape, here)
    assert len(table) == len(landscape.space.neighbours(here))
    at = landscape.space.index(here)
    for row in table.itertuples():
        there = landscape.space.config(landscape.space.enumerate()[row.config])
        changed = stats.differing_parameters(here, there)
        assert changed.values.tolist() == [[row.parameter, row.before, row.after]]
        assert row.ratio == landscape.latency_us[row.config] / landscape.latency_us[at]
        assert row.low <= row.high
    ratios = table["ratio"].dropna()
    assert ratios.is_monotonic_increasing
    assert table["ratio"].iloc[: len(ratios)].notna().all(), "failures come last"
    assert stats.differing_parameters(here, here).empty


def test_nothing_stands_above_the_roof(landscape, failed):
    points = stats.roofline_points(
        landscape, {"best": landscape.best, "bad": failed, "default": landscape.space.default}
    )
    assert points["label"].tolist() == ["best", "default"]
    assert (points["flops_per_s"] <= points["intensity"] * points["peak_bytes_per_s"]).all()
    assert (points[["bytes_share", "flops_share"]] < 1).all(axis=None)


def test_what_a_gpu_or_a_manifest_does_not_tell_is_left_out(landscape):
    told = {k: v for k, v in landscape.manifest.items() if k not in ("bytes_moved", "flops")}
    told["facts"] = [told["facts"][0] | {"capability": "10.3"}]
    found = stats.inspect_config(Landscape(landscape.table, told), landscape.best)
    assert found.occupancy is None
    assert np.isnan(found.roofline.share(1.0))

import numpy as np
import pandas as pd
import pytest

from kt_lab.atlas import optima_counts
from kt_lab.landscape import Landscape, load_landscape
from kt_lab.space import ParameterSpace, PowerOfTwo
from kt_lab.stats import atlas
from tests.runners.tables import SPACE, make_landscape

# Rows are BLOCK 16..128, columns num_stages 1..4; the default is the corner (16, 1).
ADDITIVE = np.exp(np.add.outer([0.3, 0.2, 0.1, 0.0], [0.2, 0.1, 0.0, 0.1]))


def _landscape(latency, name="16"):
    """A landscape whose latencies are given exactly; NaN: it failed."""
    made = make_landscape(workload=f"toy/{name}")
    table = made.table.reset_index(drop=True)
    flat = np.asarray(latency, dtype=float).ravel()
    table["status"] = np.where(np.isfinite(flat), "ok", "compile_error")
    table["samples_us"] = [[v] * 4 if np.isfinite(v) else [] for v in flat]
    table["visit"] = [[0, 0, 1, 1] if np.isfinite(v) else [] for v in flat]
    return Landscape(pd.DataFrame(table), made.manifest)


def test_the_tail_counts_failures_as_configs_that_are_not_good():
    latency = ADDITIVE.copy()
    latency[0] = np.nan
    table = atlas.tail(_landscape(latency))
    assert len(table) == 12
    assert table["ratio"].iloc[0] == 1
    assert table["share"].iloc[-1] == pytest.approx(12 / 16)


def test_effects_that_add_up_leave_nothing_to_interactions():
    table = atlas.effects(_landscape(ADDITIVE)).set_index("parameters")["share"]
    assert table["BLOCK"] + table["num_stages"] == pytest.approx(1, abs=1e-6)
    assert table["BLOCK x num_stages"] == pytest.approx(0, abs=1e-6)


def test_a_pure_interaction_is_seen_as_one():
    board = np.indices((4, 4)).sum(axis=0) % 2 + 1.0
    table = atlas.effects(_landscape(board)).set_index("parameters")["share"]
    assert table["BLOCK"] == pytest.approx(0, abs=1e-6)
    assert table["BLOCK x num_stages"] == pytest.approx(1, abs=1e-6)


def test_a_flat_landscape_has_no_effects():
    assert (atlas.effects(_landscape(np.ones((4, 4))))["share"] == 0).all()


def test_marginals_tell_what_each_value_allows():
    latency = ADDITIVE.copy()
    latency[3, 2] = np.nan
    table = atlas.marginals(_landscape(latency)).set_index(["parameter", "value"])
    best = np.nanmin(latency)
    assert table.loc[("BLOCK", "128"), "failed"] == 0.25
    assert table.loc[("BLOCK", "64"), "best"] == pytest.approx(latency[2].min() / best, rel=1e-6)
    assert table.loc[("num_stages", "1"), "median"] == pytest.approx(
        np.median(latency[:, 0]) / best, rel=1e-6
    )


def test_a_value_that_no_config_has_does_not_fail():
    table = atlas.marginals(load_landscape("attention/1x32x8x8192x128x2", gpu="h200"))
    nobody = table[table["configs"] == 0]
    assert len(nobody)
    assert nobody["failed"].isna().all()
    assert table.loc[table["configs"] > 0, "failed"].between(0, 1).all()


def test_local_optima_are_what_no_single_step_improves():
    two = np.full((4, 4), 3.0) + 0.1 * np.indices((4, 4)).sum(axis=0)
    two[0, 0], two[3, 3] = 1.0, 2.0
    table = atlas.local_optima(_landscape(two))
    assert table["config"].tolist() == [0, 15]
    assert table["ratio"].tolist() == [1.0, 2.0]
    [counts] = optima_counts(table).to_dict("records")
    assert (counts["count"], counts["median"], counts["bad"]) == (2, 1.5, 0.5)
    assert len(atlas.local_optima(_landscape(ADDITIVE))) == 1


def test_a_funnel_correlates_with_distance_and_its_reverse_does_not():
    distance = np.add.outer(np.arange(4), np.arange(4)) / 3  # steps over the axis' length
    funnel = _landscape(1 + distance)
    assert atlas.fitness_distance(funnel)["steps"].max() == pytest.approx(2)
    assert atlas.rank_distance(funnel) == pytest.approx(1)
    trap = 3 - distance
    trap[0, 0] = 0.5  # the best is where everything else points away from
    assert atlas.rank_distance(_landscape(trap)) < 0


def test_the_best_of_one_shape_on_another():
    a, b = _landscape(ADDITIVE, "a"), _landscape(ADDITIVE[::-1], "b")
    table = atlas.carry_over([a, b], top=16).set_index(["source", "target"])
    here, there = "a on test", "b on test"
    assert table.loc[(here, here), "best_ratio"] == 1
    assert table["shared"].eq(16).all()
    assert table.loc[(here, there), "best_ratio"] == pytest.approx(np.exp(0.3), rel=1e-6)
    assert table.loc[(here, there), "top_ratio"] == pytest.approx(1)
    failed = ADDITIVE.copy()
    failed[3, 2] = np.nan
    table = atlas.carry_over([a, _landscape(failed, "c")], top=1)
    carried = table[(table["source"] == here) & (table["target"] == "c on test")]
    assert np.isinf(carried["best_ratio"].item())
    assert np.isinf(carried["top_ratio"].item())


def test_the_path_from_the_default_sets_the_best_gain_first():
    table = atlas.ablation_path(_landscape(ADDITIVE))
    assert table["changed"].tolist() == ["", "BLOCK: 16 -> 128", "num_stages: 1 -> 3"]
    assert table["gain"].tolist()[1:] == pytest.approx([np.exp(0.3), np.exp(0.2)], rel=1e-5)
    assert table["latency_us"].iloc[-1] == pytest.approx(ADDITIVE.min())


def test_the_path_takes_two_steps_at_once_where_each_alone_failed():
    latency = ADDITIVE.copy()
    latency[3, 0] = latency[0, 2] = np.nan
    table = atlas.ablation_path(_landscape(latency))
    assert table["changed"].tolist() == ["", "BLOCK: 16 -> 128, num_stages: 1 -> 3"]


def test_the_toy_space_is_the_one_these_answers_are_for():
    assert [p.cardinality for p in SPACE.parameters] == [4, 4]


def test_a_parameter_that_only_one_space_has_is_left_out_or_takes_its_default():
    wide = _landscape(ADDITIVE, "wide")
    values = np.exp(np.array([0.3, 0.2, 0.1, 0.0]))  # of BLOCK alone
    narrow = ParameterSpace([PowerOfTwo("BLOCK", 16, 128)], default={"BLOCK": 16})
    table = wide.table.reset_index(drop=True).iloc[::4].drop(columns="p_num_stages")
    table["samples_us"] = [[v] * 4 for v in values]
    facts = {"space": narrow.describe(), "fingerprint": narrow.fingerprint}
    other = Landscape(table, wide.manifest | facts | {"workload": "toy/narrow"})
    pairs = atlas.carry_over([wide, other]).set_index(["source", "target"])
    a, b = "wide on test", "narrow on test"
    assert pairs.loc[(a, b), "best_ratio"] == pytest.approx(1)
    assert pairs.loc[(a, b), "shared"] == 16
    # BLOCK = 128 with the default num_stages = 1, whose factor is exp(0.2)
    assert pairs.loc[(b, a), "best_ratio"] == pytest.approx(np.exp(0.2), rel=1e-6)
    assert pairs.loc[(b, a), "shared"] == 4


def test_shares_of_the_roof_follow_from_the_manifest():
    landscape = _landscape(np.full((4, 4), 10.0))
    told = {"bytes_moved": 1000, "bytes_floor_us": 5.0, "flops": 4000, "dtype": "float16"}
    known = landscape.manifest | told | {"baseline": {"samples_us": [20.0, 20.0]}}
    table = atlas.under_the_roof(Landscape(landscape.table.reset_index(), known))
    table = table.set_index("label")
    assert table["share"].to_dict() == {"best": 0.5, "default": 0.5, "vendor": 0.25}
    assert table["intensity"].eq(4).all()
    assert table.loc["best", "flops_per_s"] == pytest.approx(4e8)
    assert table["peak_flops_per_s"].isna().all(), "no data sheet of this GPU is known"


def test_a_summary_counts_failures_and_bad_optima():
    latency = np.full((4, 4), 3.0) + 0.1 * np.indices((4, 4)).sum(axis=0)
    latency[0, 0], latency[3, 3], latency[1, 2] = 1.0, 2.0, np.nan
    told = atlas.summary(_landscape(latency))
    assert told["failed"] == 1 / 16
    assert told["within_5_percent"] == 1 / 16
    assert told["local_optima"] == 2
    assert told["bad_optima"] == 0.5
    flat = atlas.summary(_landscape(np.ones((4, 4))))
    assert flat["main_share"] == flat["pair_share"] == 0

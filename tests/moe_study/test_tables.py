"""Each table of the study says what follows from landscapes that are known exactly."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.kernels import get_workload
from kt_lab.landscape import load_landscape
from kt_lab.moe_study import (
    claims,
    fences,
    held_out,
    layouts,
    recorded,
    same_launch,
    sharing,
    speedups,
    traffic,
    tunings,
)
from kt_lab.moe_study.picks import judged_draws, picks, ratio
from kt_lab.plots import moe_references
from kt_lab.stats.keyed import compare_keys, key_values
from tests.moe_landscapes import latency_us
from tests.moe_study.conftest import BYTES_PER_US, SHAPES


def of(landscapes, key):
    return next(x for x in landscapes if x.workload == key)


def true_us(landscape, at):
    config = landscape.space.configs(landscape.space.enumerate()[[at]])[0]
    return latency_us(config, get_workload(landscape.workload))


# -- what is recorded, and picks ------------------------------------------------------------------


def test_few_experts_and_llama_4_come_first(recorded_here):
    named = [x.workload for x in recorded_here]
    assert named[:3] == [SHAPES[0], SHAPES[1], SHAPES[2]]
    assert {x.kernel for x in recorded_here} < set(recorded.KERNELS), "what is missing is left out"
    with pytest.raises(UnknownName, match="kernel of the study"):
        recorded.open_study(["softmax"])


def test_only_gpus_that_recorded_the_study_are_offered():
    with pytest.raises(UnknownName, match=r"got 'h100'; did you mean 'h200'\? known: h200$"):
        recorded.open_study(gpu="h100")


def test_a_pick_is_judged_by_the_visit_that_did_not_choose_it(exact):
    x = of(exact, SHAPES[0])
    at = recorded.positions(x, "pr3952")
    chosen = picks(x, at)
    assert len(at) == 24
    assert len(chosen) == x.visits == 2
    best = min(true_us(x, i) for i in at)
    draws = judged_draws(x, chosen, resamples=50)
    np.testing.assert_allclose(draws, best, rtol=1e-5)
    told = ratio(draws, draws)
    assert told == {"estimate": 1.0, "low": 1.0, "high": 1.0}


def test_the_interval_holds_what_visits_disagree_about(noisy):
    x = of(noisy, SHAPES[0])
    at = recorded.default_at(x)
    draws = judged_draws(x, [at, at])
    visits = sorted(x.medians_us(v)[at] for v in range(2))
    assert visits[0] * 0.98 < draws.min() < visits[0] * 1.002
    assert visits[1] * 0.998 < draws.max() < visits[1] * 1.02


# -- E1 -------------------------------------------------------------------------------------------


def test_programs_behind_lists_are_counted(exact):
    counts = same_launch.distinct_counts(exact).set_index(["kernel", "list"])
    for name, told in {"pr3952_first": (8, 4), "pr3952": (24, 12), "original": (1, 1)}.items():
        row = counts.loc["moe_weights_atomic", name]
        assert (row["configs"], row["launches"]) == told
    assert counts.loc[("jagged_rowwise", "pr3952"), "launches"] == 8


def test_names_of_one_launch_read_alike_without_noise_only(exact, noisy):
    spread = same_launch.name_spread(exact)
    assert len(spread) > 100
    assert spread["off"].max() < 1e-6
    assert spread["stages"].any()
    assert same_launch.name_spread(noisy)["off"].median() > 0.001
    floor = same_launch.noise_floor(spread)
    assert floor["pairs"].sum() == len(spread)


# -- E2 and E3 ------------------------------------------------------------------------------------


def test_torchaos_key_shares_over_experts_and_the_mended_one_does_not(exact):
    weights = [x for x in exact if x.kernel == recorded.SCALES]
    table = sharing.regrets(weights, "pr3952").set_index(["tuned", "workload"])
    same = table.loc["1x8192x5120", "16x8192x5120"]
    assert same["shares_original"]
    assert not same["shares_mended"]
    assert not table.loc["1x8192x5120", "8x2048x1408"]["shares_original"]
    own = table[[a == b for a, b in table.index]]
    assert (own["regret"] == 0).all()
    assert (table["regret"] > -1e-6).all(), "without noise nobody beats the own pick"
    assert same["regret"] > 0.01, "the formula wants larger tiles for more experts"


def test_only_pairs_that_differ_as_asked(exact):
    jagged = [x for x in exact if x.kernel == recorded.ROWWISE]
    table = sharing.regrets(jagged, "pr3952", extents=("GROUPS", "SKEW"))
    away = table[table["tuned"] != table["workload"]]
    assert set(away["tuned"]) == {"16640x8192x1x1x1", "16640x8192x64x2x1"}


def test_keys_name_what_the_kernels_have():
    for kernel in sharing.KEYS:
        assert {"original", "mended"} <= set(sharing.keys_of(kernel))
    with pytest.raises(UnknownName):
        sharing.keys_of("tokens_transpose")


def test_the_first_shape_of_the_table_is_the_one_that_is_tuned(exact):
    one, many = (of(exact, key) for key in SHAPES[:2])
    for order in ([one, many], [many, one]):
        keys = {"one": key_values(order, sharing.KEYS[recorded.SCALES]["one for all"])}
        told = compare_keys(sharing.crossed(order, "pr3952"), keys).iloc[0]
        second = order[1].workload.partition("/")[2]
        assert told["worst_on"] == f"{second} on h200"
        assert told["worst"] > 0.01


# -- E4, E5 and E9 --------------------------------------------------------------------------------


def test_tunings_are_computed_or_read(result, data, monkeypatch):
    assert result["stored"] is False
    assert result["shapes"] == 2
    sizes = tunings.by_size(tunings.totals(result))
    assert {"8", "8, distinct", "24, fenced"} <= set(sizes["lists"])
    assert set(sizes["judged_by"]) == {"same visits", "another visit"}
    monkeypatch.setenv("KT_LAB_DATA", str(data / "elsewhere"))
    (data / "elsewhere" / "evidence").mkdir(parents=True)
    path = data / "elsewhere" / "evidence" / tunings.STORED
    path.write_text(json.dumps(result | {"shapes": 99}))
    found = tunings.tunings()
    assert found["stored"] is True
    with pytest.raises(UsageError, match=r"got gpu='a100' and stored ones of h200"):
        tunings.tunings(gpu="a100")
    assert found["shapes"] == 99


def test_cold_seconds_are_sums_over_the_list(result):
    table = tunings.cold_seconds(result)
    row = table[(table["list"] == "pr3952") & (table["workload"] == "1x8192x5120")].iloc[0]
    assert row["compile_s"] == pytest.approx(24 * 0.5)
    assert row["single_s"] == pytest.approx(0.5)
    assert row["naive_ratio"] == pytest.approx((12 + row["naive_s"]) / 0.5, rel=1e-3)
    assert row["guarded_ratio"] < row["naive_ratio"] / 4
    means = tunings.cold_by_list(result)
    assert means["configs"].is_monotonic_increasing
    assert not means["list"].str.contains("distinct").any()


def test_only_families_that_regress_are_shown_and_all_are_counted():
    rows = pd.DataFrame({
        "kernel": ["a", "b", "c"], "gpu": "h200", "list": "wide", "tuned": "x", "ran": "y",
        "cases": [2, 4, 2], "accepted": [1.0, 0.5, 0.0], "loss_regressions": [0, 3, 0],
        "loss_worst": [0.0, 0.4, 0.01], "guarded_regressions": [0, 0, 1],
        "guarded_worst": [0.0, 0.0, 0.02],
    })  # fmt: skip
    told = tunings.regressed(rows).set_index("kernel")
    assert told.index.tolist() == ["b", "c", "all 3 rows"]
    columns = ["cases", "accepted", "loss_regressions", "loss_worst", "guarded_regressions"]
    assert told.loc["all 3 rows", columns].tolist() == [8, 0.5, 3, 0.4, 1]
    assert tunings.regressed(rows[:0]).empty


def test_families_are_those_of_other_shapes(result):
    assert tunings.families(result).empty, "both shapes are of one family"


# -- E6, E7 and E8 --------------------------------------------------------------------------------


def test_fences_cost_what_the_formula_says(exact):
    costs = fences.fence_costs(exact)
    assert set(costs["kernel"]) == {recorded.SCALES}
    assert len(costs) >= 12 * 3
    np.testing.assert_allclose(costs["cost"], math.exp(0.3) - 1, rtol=1e-5)
    tiles = fences.tile_costs(costs)
    assert len(tiles) == len(costs[["workload", "BLOCK_N"]].drop_duplicates()) < len(costs)
    np.testing.assert_allclose(tiles["cost"], math.exp(0.3) - 1, rtol=1e-5)
    gains = fences.tile_gains(exact).set_index(["workload", "semantics"])
    for name in gains.index.levels[0]:
        fenced, relaxed = (gains.loc[(name, s), "gain"] for s in fences.SEMANTICS)
        assert fenced == pytest.approx(relaxed, rel=1e-4)
    assert fences.fence_costs(exact[:1])["cost"].size == 12


def test_one_familys_config_is_judged_on_every_shape(exact):
    table = held_out.losses(exact)
    assert set(table["kernel"]) == {recorded.SCALES, recorded.ROWWISE}, "others have one family"
    own = table[table["own"] & (table["list"] == "pr3952")]
    assert (own["loss"] <= 1e-6).all()
    assert (table["regressed"] == (table["loss"] > 0.01)).all()
    assert held_out.losses([of(exact, SHAPES[0])]).empty


def test_layouts_and_routes_add_up(turned):
    table = layouts.layout_table(turned)
    assert set(table["layout"]) == set(layouts.LAYOUTS.values())
    original = table[table["list"] == "original"]
    assert (original[["ratio", "low", "high"]] == 1).all(axis=None)
    routes = layouts.routes(turned)
    np.testing.assert_allclose(routes["copy_us"] + routes["scale_us"], routes["total_us"])
    assert (routes.loc[routes["route"] == "direct", "ratio"] == 1).all()
    assert len(routes) == 6
    assert layouts.routes(turned[:1]).empty


# -- tables of the pull request and of references -------------------------------------------------


def test_the_pair_is_the_sum_of_its_launches(exact):
    table = speedups.pull_request_table(exact).set_index(["kernel", "workload"])
    pair = table.loc[(speedups.PAIR, "1x8192x5120")]
    parts = [table.loc[(k, "1x8192x5120")] for k in (recorded.SCALES, recorded.CAST)]
    for name in ("single_us", "expanded_us", "floor_us"):
        assert pair[name] == pytest.approx(sum(part[name] for part in parts), rel=1e-4)
    weights, scale_bytes = 8192 * 5120, 4 * 5120
    assert pair["floor_us"] == pytest.approx((5 * weights + 2 * scale_bytes) / BYTES_PER_US)
    assert pair["published_speedup"] == pytest.approx(246.6 / 161.6)
    assert (speedups.PAIR, "16x8192x5120") not in table.index, "its cast is not recorded"
    assert np.isnan(table.loc[(recorded.SCALES, "1x8192x5120"), "published_speedup"])
    assert (table["low"] <= table["speedup"] * 1.00001).all()
    np.testing.assert_allclose(table["speedup"], table["single_us"] / table["expanded_us"])


def test_references_are_told_apart_and_compiled_ones_appear_when_stored(recorded_here, data):
    table = speedups.references(recorded_here)
    assert table["compiled_us"].isna().all()
    pair = table[table["kernel"] == speedups.PAIR].iloc[0]
    assert pair["eager_us"] == 2000, "of both launches"
    pairs = int((table["kernel"] == speedups.PAIR).sum())
    told = moe_references.caption_references(table)
    assert f"{len(table) - pairs} workloads of " in told
    assert f" and {pairs} pair" in told
    assert pair["over_eager"] == pytest.approx(2000 / pair["expanded_us"])
    folder = data / "evidence"
    folder.mkdir(exist_ok=True)
    row = {"workload": SHAPES[4], "compiled_us": [400.0, 500.0, 600.0], "kt_lab_us": [100.0]}
    (folder / "vendors-h200.json").write_text(json.dumps({"gpu": "h200", "rows": [row]}))
    table = speedups.references(recorded_here).set_index(["kernel", "workload"])
    assert table.loc[(recorded.REDUCTION, "1x8192x5120"), "compiled_us"] == 500
    assert table["compiled_us"].notna().sum() == 1


def test_what_a_part_of_the_study_lacks_is_told(recorded_here):
    part = [x for x in recorded_here if x.kernel == recorded.TRANSPOSE]
    for table in (speedups.references, sharing.compared_keys, traffic.reach, fences.fence_costs):
        with pytest.raises(UsageError, match="needs landscapes of"):
            table(part)
    jagged = [x for x in recorded_here if x.kernel == recorded.ROWWISE]
    verdicts = claims.claims(jagged, tunings.tunings(shapes=SHAPES[:2], repeats=1, workers=1))
    assert "not recorded" in set(verdicts["verdict"])


# -- traffic --------------------------------------------------------------------------------------


def test_the_second_reading_costs_two_bytes_an_element(exact):
    table = traffic.floors(exact).set_index("workload")
    row = table.loc["16640x8192x1x1x1"]
    assert row["floor5_us"] - row["floor3_us"] == pytest.approx(2 * 16640 * 8192 / BYTES_PER_US)
    assert (table["share5"] > table["share3"]).all()


def test_what_is_held_is_what_resident_programs_read(exact):
    x = of(exact, "jagged_rowwise/16640x8192x1x1x1")
    share = traffic.held(x)[recorded.default_at(x)]
    # 32 registers and 1 KiB of 4 warps: 16 programs of 32 lines each fit; there are 256 in all
    assert share == pytest.approx(256 * 32 * 16640 * 2 / (60 * 2**20))
    assert np.isnan(traffic.held(x)).sum() == (x.status != "ok").sum()


def test_tokens_first_reads_once_and_the_flags_are_paired(turned):
    told = traffic.floors(turned).set_index("layout")["bound"]
    assert told[2] == "reads once"
    assert told[1] != "reads once"
    effects = traffic.flag_effects(turned)
    assert set(effects["flag"]) == set(traffic.FLAGS)
    reach = traffic.reach(turned)
    assert reach["configs"].sum() == sum((x.status == "ok").sum() for x in turned[:2])


# -- claims ---------------------------------------------------------------------------------------


def test_every_claim_gets_a_verdict_and_what_is_missing_is_told(exact, turned, result):
    table = claims.claims([*exact, *turned], result)
    verdicts = {claims.AGREES, claims.PARTLY, claims.DIFFERS, claims.OPEN}
    assert set(table["verdict"].str.removesuffix(claims.HALF)) <= verdicts
    assert table["measured"].str.len().min() > 5
    assert not table["verdict"].str.endswith(claims.HALF).any(), "both launches are recorded"
    without = [x for x in exact if x.kernel != recorded.CAST]
    table = claims.claims([*without, *turned], result).set_index("published")
    pair = "atomic pair 1.50 to 1.59 times as fast with 24 configs"
    assert table.loc[pair, "verdict"] == claims.OPEN
    assert table["verdict"].str.endswith(claims.HALF).any()


def test_what_no_landscape_tells_of_is_neither_confirmed_nor_denied(exact, result):
    """Without a DeepSeek shape, or a list of configs, there is nothing to hold a claim against."""
    for shapes in ("16640x8192x1x1x1", "none at all"):
        some = [x for x in exact if x.workload.endswith(shapes)]
        verdicts = claims.claims(some, result).set_index("source")["verdict"]
        assert set(verdicts[["#4024, text", "#4024, table"]]) == {claims.OPEN}
        assert (verdicts["counted"] == claims.OPEN) == (not some)
    assert same_launch.distinct_counts([]).empty
    told = claims.claims(some or exact[-1:], result).set_index("published")["measured"]
    reduction = next(claim for claim in told.index if claim.startswith("reduction"))
    assert told[reduction] == "no published shape of moe_weights_reduction is recorded"


def test_speedups_are_alike_by_what_they_gain(exact, result):
    def verdict(speedup, published):
        pull = pd.DataFrame({
            "kernel": ["k"], "workload": ["w"], "speedup": [speedup],
            "published_speedup": [published],
        })  # fmt: skip
        study = claims._Study(exact, result)
        study.__dict__["pull"] = pull
        return claims._beside("k")(study)[1]

    assert verdict(1.99, 2.14) == claims.AGREES
    assert verdict(1.02, 1.00) == claims.AGREES
    assert verdict(1.14, 1.05) == claims.DIFFERS
    assert verdict(1.00, 1.20) == claims.DIFFERS


@pytest.mark.parametrize(
    ("claim", "kernel", "speedup", "verdict"),
    [
        (claims._sixteen_b, speedups.PAIR, 1 / (1 - 0.043), claims.PARTLY),
        (claims._sixteen_b, speedups.PAIR, 1 / (1 - 0.06), claims.AGREES),
        (claims._sixteen_b, speedups.PAIR, 0.95, claims.DIFFERS),
        (claims._deepseek, speedups.PAIR, 1 / 1.04, claims.PARTLY),
        (claims._deepseek, speedups.PAIR, 1 / 1.14, claims.AGREES),
        (claims._deepseek, speedups.PAIR, 1.04, claims.DIFFERS),
    ],
)
def test_the_direction_alone_agrees_in_part_where_a_size_is_published(
    claim, kernel, speedup, verdict
):
    study = claims._Study((), {})
    study.__dict__["pull"] = pd.DataFrame({
        "kernel": [kernel], "workload": ["8x2048x1408"], "family": ["DeepSeek-MoE-16B"],
        "speedup": [speedup], "low": [speedup - 0.01], "high": [speedup + 0.01],
    })  # fmt: skip
    assert claim(study)[1] == verdict


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [(1.1, claims.AGREES), (1.3, claims.PARTLY), (1.02, claims.PARTLY), (0.8, claims.DIFFERS)],
)
def test_the_route_by_a_copy_is_held_against_the_published_gain(gain, verdict):
    study = claims._Study((), {})
    study.__dict__["routes"] = pd.DataFrame({
        "list": ["wide"], "route": ["copy, then scale"], "shape": ["s"], "ratio": [1 / gain],
        "high": [1 / gain + 0.01],
    })  # fmt: skip
    assert claims._route(study)[1] == verdict


@pytest.mark.parametrize(
    ("fenced", "relaxed", "verdict"),
    [
        ([0.02, 0.03], [-0.01, -0.02], claims.AGREES),
        ([0.02, 0.03], [0.02, -0.01], claims.PARTLY),
        ([0.02, -0.01], [0.02, -0.01], claims.DIFFERS),
        ([-0.02, -0.01], [-0.02, -0.01], claims.DIFFERS),
    ],
)
def test_a_wide_tile_is_there_for_the_fences_where_it_gains_with_them_alone(
    monkeypatch, fenced, relaxed, verdict
):
    lows = {"acq_rel": fenced, "relaxed": relaxed}
    gains = pd.DataFrame(
        {"semantics": name, "workload": f"w{i}", "gain": low + 0.01, "low": low}
        for name, values in lows.items()
        for i, low in enumerate(values)
    )
    monkeypatch.setattr(fences, "tile_gains", lambda _: gains)
    assert claims._tile(claims._Study((), {}))[1] == verdict


# -- what the notebook and the README say ---------------------------------------------------------


def test_what_is_said_of_this_gpu_holds():
    found = recorded.open_study(gpu="h200")
    result = tunings.tunings()
    told = tunings.totals(result)
    rows = told[told["lists"] == "with the incumbent"]
    same = told["judged_by"] == "same visits"
    assert (rows.loc[same, "regressions"] == 0).all(), "where the original config is in the list"
    assert rows.loc[~same, "worst"].max() < 0.02, "on another visit by as much as visits differ"
    large = told[(told["lists"] == "3") & (told["tuner"] == "naive")]
    assert (large["regressing"] > 0.5).all(), "3972 dropped the config in use"
    guarded = told[told["tuner"] == "guarded"]
    assert (guarded.loc[same, "regressions"] == 0).all()
    assert guarded.loc[~same, "worst"].max() < 0.02, "the cast of one expert"
    groups = recorded.by_kernel(found)
    reduction = {
        name: sharing.regrets(groups[recorded.REDUCTION], name) for name in ("pr3952", "wide")
    }
    worst = {n: t.loc[t["shares_original"], "regret"].max() for n, t in reduction.items()}
    assert min(worst.values()) > 0.1, "experts: what 128 chose is slow with one, and the reverse"
    jagged = sharing.regrets(groups[recorded.COLWISE], "pr3952", extents=("GROUPS", "LAYOUT"))
    assert jagged.loc[jagged["shares_original"], "regret"].max() > 0.05
    assert not jagged.loc[jagged["tuned"] != jagged["workload"], "shares_mended"].any()
    families = tunings.families(result)
    assert families["loss_regressions"].sum() > 20 > 2 > families["guarded_regressions"].sum()
    assert families["guarded_worst"].max() < 0.02 < 0.5 < families["loss_worst"].max()
    pull = speedups.pull_request_table(found)
    assert (pull["low"] > 1).mean() > 0.5, "the expanded lists gain on most shapes"
    weights = [x for x in found if x.kernel in recorded.WEIGHTS]
    many = [x for x in weights if x.manifest["extents"]["E"] >= 16]
    reached = speedups.pull_request_table(many).set_index(["kernel", "workload"])["wide_share"]
    short = reached.index[reached <= 0.85].tolist()
    assert short == [("moe_weights_atomic", "16x4096x1536")], "its scales alone take 60 us"
    assert reached[speedups.PAIR, "16x4096x1536"] > 0.85
    floors = traffic.floors(found)
    features = floors[floors["layout"] == 1]
    assert features["share3"].median() == pytest.approx(0.5, abs=0.05)
    narrow = features["workload"].str.contains("x1408x")
    assert features.loc[narrow, "share3"].between(0.2, 0.3).all()
    gains = fences.tile_gains(found)
    relaxed = gains[gains["semantics"] == "relaxed"].set_index("workload")
    assert relaxed.index[relaxed["low"] <= 0].tolist() == ["16x4096x1536"], "level there"
    assert (relaxed["high"] > 0).all()


def test_what_was_recorded_beyond_the_copy_speed_stays_below_what_counts_as_one_reading():
    """Kernels that mostly read pass the floor of a copy; that must prove nothing of the jagged."""
    shares = {}
    for name in ("64x5120x8192", "128x8192x5120", "16x8192x5120"):
        x = load_landscape(f"moe_weights_atomic/{name}", gpu="h200")
        shares[name] = x.manifest["bytes_floor_us"] / x.optimum_us
    assert 1.05 < max(shares.values()) < traffic._READING


def test_the_claim_of_one_expert_is_held_against_picks_of_one_expert(exact):
    study = claims._Study(exact, {})
    told, _ = claims._experts(study)
    table = study.regrets(["moe_weights_atomic", "moe_weights_reduction"], "", ())
    table = table[table["shares_original"]]
    up = table[table["tuned"].str.startswith("1x") & ~table["workload"].str.startswith("1x")]
    assert f"at most {up['regret'].max():+.1%}" in told

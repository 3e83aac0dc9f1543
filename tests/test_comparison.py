"""Comparisons: their tables equal the statistics they gather, their figures tell all they draw."""

import shutil
from argparse import Namespace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from kt_lab import comparison, plots, stats
from kt_lab.budget import Budget
from kt_lab.cells import recorded
from kt_lab.cli import main
from kt_lab.commands import compare as compare_command
from kt_lab.comparison.figures import evidence_of
from kt_lab.errors import UsageError
from kt_lab.experiment import Experiment
from kt_lab.landscape import REFERENCE_GPU, landscapes
from kt_lab.plots.save import write_points
from tests.plots.conftest import make_runs

WORKLOADS = ("softmax/4096x640", "int4_gemm/1x1x7168x8192")
FEW = {"resamples": 200, "seed": 3}


@pytest.fixture(scope="module")
def runs():
    """Two searchers, one with a model, on two workloads with two seeds."""
    budget = Budget(trials=115)
    return Experiment("tiny", WORKLOADS, ("pattern", "lfbo_pattern"), 2, budget).run()


@pytest.fixture(scope="module")
def table(runs):
    return comparison.budget_table(runs, (25, 50, 500, None), seconds=(0.2, 2.0), **FEW)


@pytest.fixture(scope="module")
def drawings(runs, table):
    return comparison.draw_all(runs, table=table)


def test_a_workload_of_two_gpus_is_the_reference_gpus_unless_one_is_named():
    shipped = [each for each in landscapes() if each.kernel == "softmax"]
    keys = list(dict.fromkeys(each.workload for each in shipped))
    assert len(shipped) == 2 * len(keys) == 8
    asked = comparison.request(["random"], ["softmax", keys[0]])
    assert asked.workloads == keys
    assert {recorded(key, asked.gpu).gpu for key in asked.workloads} == {REFERENCE_GPU}
    other = comparison.request(["random"], ["softmax"], gpu="h100")
    assert {recorded(key, other.gpu).gpu for key in other.workloads} == {"h100"}


def test_a_budget_beyond_the_smallest_space_is_drawn_all_the_same():
    small = "moe_weights_reduction/1x5120x8192"
    runs = Experiment("small", [small], ("random",), 2, Budget(trials=600)).run()
    assert recorded(small, None).space.size < 600
    drawn = comparison.convergence_figure(runs)
    assert drawn.points["expected_random"]["draws"].max() == recorded(small, None).space.size
    assert "random search" in drawn.caption


def test_a_budget_is_told_as_it_was_asked_for():
    about = {"seeds": 1, "gpu": "h200"}
    softmax = ["softmax/4096x640"]
    timed = comparison.compare(["random"], softmax, trials=None, seconds=1.5, **about)
    assert "budget 1.5 machine seconds)" in evidence_of(timed)
    both = comparison.compare(["random"], softmax, trials=5, seconds=90.0, **about)
    assert "budget 5 trials or 90 machine seconds)" in evidence_of(both)
    for wrong in ({"searchers": "random"}, {"workloads": "softmax/4096x640"}):
        with pytest.raises(UsageError, match="must be a list of"):
            comparison.compare(**{"searchers": ["random"], "workloads": None} | wrong, trials=2)


def test_names_are_stripped_and_hold_the_reference():
    assert comparison.names_of(" random, pattern ,", reference="pattern") == ["random", "pattern"]
    assert comparison.names_of("softmax/4096x640") == ["softmax/4096x640"]
    with pytest.raises(UsageError, match=r"reference 'pattern'.* got random, tpe; add it to them"):
        comparison.names_of("random,tpe", reference="pattern")


def test_a_budget_table_gathers_the_statistics_of_the_whole_runs(runs, table):
    optima = comparison.optima_table(runs)
    for axis, budgets in (("spent_trials", (25, None)), ("elapsed_s", (0.2, 2.0))):
        at = stats.latency_at(runs, budgets, x=axis, optima=optima, **FEW)
        at = at[at.scope == "geomean"].set_index(["budget", "searcher", "reference"])
        for budget in budgets:
            when = table.budget.isna() if budget is None else table.budget == budget
            rows = table[(table.axis == axis) & when].set_index("searcher")
            best = stats.probability_best(runs, budget=budget, x=axis, **FEW)
            for unit in ("kernel", "workload"):
                tests = stats.paired_tests(runs, unit=unit, budget=budget, x=axis)
                assert rows.loc["lfbo_pattern", f"p_{unit}"] == tests.p_holm[0]
            for name, row in rows.iterrows():
                key = np.nan if budget is None else budget
                for column in ("estimate", "low", "high", "p90", "worst", "n_success"):
                    expected = at.loc[(key, name, "optimum"), column]
                    assert row[column] == pytest.approx(expected, rel=1e-12)
                ratio = at.loc[(key, name, "pattern"), ["estimate", "low", "high"]]
                drawn = row[["ratio", "ratio_low", "ratio_high"]].tolist()
                assert drawn == pytest.approx(ratio.tolist(), rel=1e-12)
            found = best.set_index("searcher").probability
            assert rows.probability_best.to_dict() == pytest.approx(found.to_dict())


def test_budgets_that_no_run_exceeds_are_left_out(runs, table):
    trials = table[table.axis == "spent_trials"].budget.drop_duplicates().tolist()
    assert trials[:2] == [25, 50]
    assert len(trials) == 3
    assert np.isnan(trials[2])
    with pytest.raises(UsageError, match="below the 115 trials"):
        comparison.budget_table(runs, (500,), seconds=())


def test_default_seconds_are_shares_of_the_references_median_run(runs):
    found = comparison.budget_table(runs, (None,), **FEW)
    seconds = found[found.axis == "elapsed_s"].budget.drop_duplicates()
    last = stats.final_latency(runs[runs.searcher == "pattern"]).elapsed_s.median()
    assert seconds.tolist() == [float(f"{share * last:.2g}") for share in (0.25, 0.5, 1, 2)]


def test_words_hold_every_budget_and_the_best_on_top(table):
    shown = comparison.display_table(table)
    assert list(shown.columns.get_level_values(0).unique()) == [
        *("25 trials", "50 trials", "end of run", "0.2 s", "2 s")
    ]
    last = table[table.budget.isna()].sort_values("estimate")
    assert list(shown.index) == [plots.searcher_style(n).label for n in last.searcher]
    assert shown.loc["Pattern", ("end of run", "p over workloads (Holm)")] == ""
    best = last.iloc[0]
    words = f"{best.estimate:.3f} [{best.low:.3f}, {best.high:.3f}]"
    assert shown.iloc[0][("end of run", "latency / optimum [95%]")] == words
    text = comparison.table_text(table)
    assert words in text
    assert "with 2 kernels no p-value over kernels can be below 0.5" in text
    assert "p over kernels" not in text


def test_of_single_runs_nothing_is_said_of_being_best(runs):
    single = runs[(runs.seed == 0) & (runs.workload == WORKLOADS[0])]
    shown = comparison.display_table(comparison.budget_table(single, (25,), seconds=(), **FEW))
    assert (shown["25 trials", "P(best)"] == "").all()
    assert not shown["25 trials", "latency / optimum [95%]"].str.contains(r"\[").any()


def test_the_curve_of_one_trial_can_be_seen(runs):
    first = runs[(runs.trial == 0) & (runs.seed == 0) & (runs.workload == WORKLOADS[0])]
    (ax,) = comparison.incumbent_figure(first).figure.axes
    marks = [line for line in ax.lines if line.get_marker() not in ("None", "")]
    assert len(marks) == first.searcher.nunique()
    assert not any(line.get_clip_on() for line in marks)  # they lie on the edge


def test_where_nothing_was_measured_that_is_said():
    with pytest.raises(UsageError, match="must hold at least one row, got 0"):
        comparison.incumbent_figure(pd.DataFrame())


def test_leaders_hold_the_reference_and_random_search():
    many = make_runs(searchers=("pattern", "lfbo_pattern", "tpe", "random"), kernels=2, seeds=3)
    best = stats.probability_best(many).set_index("searcher").astype({"probability": float})
    likeliest = best.drop(["pattern", "random"]).probability.idxmax()
    assert comparison.leaders(many, most=3) == [likeliest, "pattern", "random"]
    assert comparison.leaders(many, most=2) == ["pattern", "random"]
    assert comparison.leaders(many, most=1) == ["pattern"]
    ranked = comparison.leaders(many, reference=None, most=None)
    assert ranked == list(best.ratio.sort_values().index)
    assert comparison.leaders(many, reference=None, most=1) == [best.probability.idxmax()]


def test_leaders_stand_once_where_both_axes_hold_the_end(runs):
    table = comparison.budget_table(runs, (None,), seconds=(0.2, None), **FEW)
    assert sorted(comparison.leaders(runs, table=table)) == ["lfbo_pattern", "pattern"]


def test_significance_covers_both_units_and_all_pairs(runs):
    found = comparison.significance_table(runs, reference=None, budget=25)
    assert found.unit.tolist() == ["kernel", "workload"]
    direct = stats.paired_tests(runs, reference=None, unit="workload", budget=25)
    pd.testing.assert_frame_equal(found[1:].reset_index(drop=True), direct, rtol=1e-9)


def test_the_other_tables_have_a_row_per_searcher(runs):
    times = comparison.running_time_table(runs, within=(0.1,), resamples=20)
    assert set(times.scope) == {"workload", "geomean", "pooled"}
    scores = comparison.methodology_table(runs, resamples=20)
    assert scores.searcher.tolist() == ["lfbo_pattern", "pattern"]
    assert scores.to_trials.max() <= 115
    power = comparison.power_table(runs)
    assert set(power.searcher) == {"lfbo_pattern"}
    assert power.seed_sd.iloc[0] >= 0
    alone = comparison.power_table(runs[runs.seed == 0])
    assert len(alone) == 1
    assert "needed" not in alone
    part = runs[(runs.searcher == "pattern") | (runs.workload == WORKLOADS[0])]
    with pytest.raises(UsageError, match=f"lfbo_pattern lacks some on {WORKLOADS[1]}"):
        comparison.power_table(part)


def test_every_figure_is_saved_with_the_points_that_it_shows(drawings, tmp_path):
    assert sorted(drawings) == [
        *("anatomy", "convergence", "profiles", "quality_at_seconds", "quality_at_trials"),
        *("quality_vs_time", "ratios", "significance"),
    ]
    for name, drawing in drawings.items():
        points = drawing.points
        # As `Drawing.save` does; the command saves all the others whole, which takes seconds.
        path, _ = write_points(points, name, directory=tmp_path)
        if name == "anatomy":
            assert drawing.save(name, directory=tmp_path)["csv"] == path
        points = points if isinstance(points, dict) else {"data": points}
        for panel, read in plots.read_points(path).items():
            held = points[panel].dropna(axis=1, how="all")
            for column in held:
                same = held[column].astype(object).where(held[column].notna(), None).tolist()
                back = read[column].astype(object).where(read[column].notna(), None).tolist()
                assert [str(v) for v in back] == [str(v) for v in same] or np.array_equal(
                    np.array(back, float), np.array(same, float), equal_nan=True
                ), (name, panel, column)
        assert "2 kernels" in drawing.caption
        assert drawing.figure.get_size_inches()[0] in (3.25, 6.75)


def test_what_is_too_short_to_tell_is_counted_whole_or_refused():
    """No run of ten trials has a correlation to draw, and of a millisecond nothing at all."""
    budget = Budget(trials=10)
    runs = Experiment("short", WORKLOADS, ("scout", "random"), 2, budget, gpu="h200").run()
    drawn = comparison.anatomy_figure(runs, reference="random")
    assert evidence_of(runs) in drawn.caption
    assert "2 workloads of 2 kernels (h200, 16 compile lanes, 2 seeds" in drawn.caption
    assert "too few choices" in {t.get_text() for ax in drawn.figure.axes for t in ax.texts}
    budget = Budget(seconds=1e-3)
    none = Experiment("none", WORKLOADS[:1], ("pattern", "random"), 2, budget, gpu="h200").run()
    with pytest.raises(UsageError, match="got none of 4 runs that did; give a larger"):
        comparison.draw_all(none)


def test_every_figure_is_drawn_where_each_searcher_has_a_run_that_found_nothing(runs):
    few = runs[runs["trial"] < 3].copy()
    found = few["seed"] == 0
    few["status"] = few["status"].astype(str).where(found, "compile_error")
    few.loc[~found, ["latency_us", "judged_us"]] = np.nan
    drawn = comparison.draw_all(few)
    assert {"profiles", "ratios", "quality_vs_time", "significance"} <= set(drawn)
    assert set(drawn["profiles"].points["profile"]["share"]) == {0.0}
    for drawing in drawn.values():
        assert plots.png_bytes(drawing.figure)


def test_workloads_on_two_gpus_are_drawn_on_one_of_them_and_counted_once():
    made = make_runs(searchers=("pattern", "random"), kernels=2, workloads=1, seeds=2, n=5)
    softmax, int4_gemm = (made[made["workload"] == name] for name in made["workload"].unique())
    h100, h200 = (int4_gemm.assign(gpu=gpu, workload=WORKLOADS[1]) for gpu in ("h100", "h200"))
    parts = [softmax.assign(gpu="h200", workload=WORKLOADS[0]), h100, h200]
    for order in (parts, parts[::-1]):  # which GPU is shown does not depend on it
        mixed = pd.concat(order, ignore_index=True)
        told = comparison.convergence_figure(mixed).caption
        assert " 2 workloads of 2 kernels (h200," in told
        told = comparison.quality_figure(mixed).caption
        assert " 2 workloads of 2 kernels (h100 and h200," in told


def test_ratios_of_many_searchers_are_rows_and_of_few_are_bars(runs, drawings):
    one = runs[(runs.workload == WORKLOADS[0]) & (runs.seed == 0) & (runs.searcher == "pattern")]
    many = [one.assign(searcher=name) for name in ("pattern", *(f"s{i}" for i in range(9)))]
    fig = comparison.ratio_figure(pd.concat(many)).figure
    assert len(fig.axes[0].get_yticklabels()) == 10
    alike = [one.assign(searcher=s) for s in ("pattern", "lfbo_tree", "helion_lfbo_tree")]
    drawn = comparison.ratio_figure(pd.concat(alike))
    assert drawn.figure.axes[0].get_title() == "latency ratio"
    assert "of 2 searchers; lower is better" in drawn.caption
    assert drawings["ratios"].figure.axes[0].get_ylabel() == "latency ratio\nto Pattern"


def test_mistakes_are_told(runs):
    with pytest.raises(UsageError, match="at least two searchers"):
        comparison.budget_table(runs[runs.searcher == "pattern"])
    with pytest.raises(UsageError, match="searcher of these runs must be one of"):
        comparison.budget_table(runs, reference="tpe")
    with pytest.raises(UsageError, match="workload must be one of"):
        comparison.convergence_figure(runs, workloads=["softmax/1x1"])


def compare(*words, capsys):
    code = main(["compare", "--seeds", "2", "--trials", "12", *words])
    return code, capsys.readouterr()


def test_the_command_compares_draws_and_resumes(tmp_path, capsys):
    words = ["--searchers", "pattern", "optuna_qmc", "--workloads", *WORKLOADS]
    words += ["--directory", str(tmp_path)]
    code, first = compare(*words, "--figures", str(tmp_path / "figures"), capsys=capsys)
    assert code == 0
    assert "2 workloads of 2 kernels, 2 seeds or more each, 16 compile lanes" in first.out
    assert "QMC (Optuna)" in first.out
    assert len(list((tmp_path / "figures").glob("*.pdf"))) == 7
    again = compare(*words, capsys=capsys)[1].out
    assert again.strip() == first.out[: first.out.index("drew")].strip()


def test_the_command_takes_files_of_other_folders(tmp_path, capsys):
    entry = next(each for each in landscapes() if each.workload == WORKLOADS[0])
    for suffix in (".json", ".parquet"):
        shutil.copy(entry.path.with_suffix(suffix), tmp_path)
    words = ["--searchers", "pattern", "random", "--workloads"]
    by_key = compare(*words, WORKLOADS[0], capsys=capsys)[1].out
    by_file = compare(*words, str(tmp_path / entry.path.name), capsys=capsys)[1].out
    end = "latency / optimum [95%]"
    assert by_file.split(end)[1] == by_key.split(end)[1]  # trials; seconds are measured


def test_data_that_is_not_there_is_told_with_its_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    words = ["compare", "--searchers", "random", "pattern", "--workloads", "softmax"]
    assert main(words) != 0
    assert f"{tmp_path / 'landscapes'} holds none at all" in capsys.readouterr().err
    assert main(["list", "landscapes"]) == 0
    assert str(tmp_path / "landscapes") in capsys.readouterr().out


def test_the_command_reads_a_stored_study(capsys):
    words = ["--study", "headline", "--workloads", WORKLOADS[0], "--searchers", "pattern", "tpe"]
    assert main(["compare", *words]) == 0
    assert "30 seeds or more each" in capsys.readouterr().out


def test_the_seeds_that_are_told_are_those_of_the_searcher_with_the_fewest(capsys):
    words = ["--study", "field_softmax", "tuned_softmax", "--workloads", WORKLOADS[0]]
    assert main(["compare", *words, "--searchers", "pattern", "pattern_tuned"]) == 0
    assert "10 seeds or more each" in capsys.readouterr().out


def test_studies_with_a_run_in_common_are_not_read_together(capsys):
    words = ["--study", "headline", "headline", "ablations", "--workloads", WORKLOADS[0]]
    assert main(["compare", *words]) == 2
    assert "or do two studies share it?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("searchers", "reference"),
    [(["tpe", "random"], "tpe"), (["random", "pattern"], "pattern")],
)
@pytest.mark.parametrize("stored", [[], ["--study", "headline"]])
def test_the_reference_is_pattern_search_or_the_first(
    searchers, reference, stored, monkeypatch, capsys
):
    monkeypatch.setattr(
        "kt_lab.commands.compare.table_text", lambda t: f"against {t.reference[0]}"
    )
    end = partial(comparison.budget_table, budgets=(None,), seconds=())  # any budget tells it
    monkeypatch.setattr("kt_lab.commands.compare.budget_table", end)
    words = ["compare", "--searchers", *searchers, "--workloads", WORKLOADS[0], *stored]
    assert main(words + ([] if stored else ["--seeds", "2", "--trials", "12"])) == 0
    assert capsys.readouterr().out.endswith(f"against {reference}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--searchers", "pattern", "lfbo_tre"], "did you mean 'lfbo_tree'"),
        (["--searchers", "random", "patern"], "did you mean 'pattern'"),
        (["--searchers", "random"], "needs its reference and at least one other"),
        (["--searchers", "random", "tpe", "--reference", "scout"], "random, tpe and reference"),
        (["--workloads", "softmx"], "did you mean 'softmax'"),
        (["--workloads", "absent.parquet"], "must be a Parquet file"),
        (["--study", "headline"], "a stored study has its own --trials, --seeds"),
        (["--workers", "-1"], "workers must be >= 1, got -1"),
        (["--workloads", "a.parquet", "--gpu", "h200"], "file says its GPU, got --gpu h200 and"),
    ],
)
def test_the_commands_mistakes_are_one_sentence(words, message, capsys):
    code, told = compare(*words, capsys=capsys)
    assert code == 2
    assert told.err.startswith("kt-lab: ")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_the_rows_of_a_stored_study_are_known_by_what_they_stand_for():
    rows = compare_command._rows(Namespace(study=["headline", "tuned_softmax"]))
    algorithm, options = rows["lfbo_pattern_tuned"]
    assert algorithm == "lfbo_pattern"
    assert options
    assert rows["lfbo_pattern"] == "lfbo_pattern"

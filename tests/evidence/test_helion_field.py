"""Helion's searches against each other in its spaces: runs, races, ratios."""

import argparse
import importlib.util
from typing import ClassVar

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.evidence import helion_field
from kt_lab.evidence.helion_field_page import field_lines, report
from kt_lab.evidence.helion_field_tables import (
    DEFAULT,
    REFERENCE,
    field_ratios,
    field_runs,
    on_one_machine,
)
from kt_lab.evidence.large import as_row
from kt_lab.parameters import Integer
from kt_lab.search.random import RandomSearch
from kt_lab.space import ParameterSpace
from tests.evidence import test_large

HELION = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("helion", "torch", "triton")),
    reason="needs helion, which the extra peers installs, torch and triton",
)


def arguments(*words):
    parser = argparse.ArgumentParser()
    helion_field.add_arguments(parser)
    return parser.parse_args(words)


@HELION
@pytest.mark.parametrize("algorithm", helion_field.HELIONS.values())
def test_every_search_of_helions_runs_from_a_random_population(algorithm):
    from kt_lab.evidence.helion_search import search
    from tests.evidence.test_helion_space import opened

    kernel, _ = opened("row_sum")

    def told():
        return search(
            *(test_large.Instant(), kernel, kernel.fake_args, "quick"),
            seed=3,
            budget=Budget(trials=40),
            algorithm=algorithm,
            random_start=True,
        )[0]

    first = told()
    assert len(first) >= 20
    assert len({str(sorted(config.items())) for *_, config in first}) > 15
    assert [us for _, _, us, _ in first] == [us for _, _, us, _ in told()]


class Space:
    """Stands for Helion's space."""

    space = ParameterSpace([Integer("x", 0, 40), Integer("y", 0, 9)], default={"x": 9, "y": 9})
    seeds: ClassVar[list] = [space.config([4, 4])]

    def helion(self, config):
        return {"x": config["x"], "y": config["y"]}


class Timed(test_large.Instant):
    """A pool without processes that knows all about x, and compiles nothing twice."""

    lanes = 4
    free = 4

    def begin(self, **_):
        super().begin()
        self.now = self.waited_s = 0.0

    def submit(self, tag, config):
        from kt_lab.trial import Measurement

        self.done.append((tag, Measurement("ok", samples_us=(10.0 + abs(config["x"] - 5),))))

    def code(self, config):
        return str(config)

    def fastest(self, configs, *, timer="events"):  # noqa: ARG002
        return configs[0] if configs else None


@pytest.fixture
def lab():
    made = helion_field._Lab.__new__(helion_field._Lab)
    about = {"op": "matmul", "space": Space(), "pool": Timed(), "startup_s": 1.0}
    for name, value in (about | {"_args": arguments("--most-s", "1000")}).items():
        setattr(made, name, value)
    return made


def test_scout_has_as_many_configs_as_its_rival_and_ucb_ends_by_itself(lab):
    pytest.importorskip("helion")
    told = [(0.1, "ok", 20.0, {"x": 9}), (0.4, "ok", 12.0, {"x": 2})] * 4
    about = {"op": "matmul", "effort": "quick", "seed": 0}
    rows = [about | {"search": "helion_lfbo_pattern"} | as_row(told)]
    row = lab.do({"search": "scout", "seed": 0}, rows)
    assert (row["trials"], row["cut"], row["lanes"], row["size"]) == (8, False, 4, 410)
    assert row["elapsed_s"] >= 0.8
    assert row["waited_s"] == pytest.approx(row["elapsed_s"] / 4, abs=0.002)  # see Instant
    ucb = lab.do({"search": "ucb_pattern", "seed": 0}, rows)
    assert 30 <= ucb["trials"] <= 410
    assert ucb["config"]["x"] == 5
    with pytest.raises(UsageError, match="helion_lfbo_pattern of seed 1, which comes first"):
        lab.do({"search": "scout", "seed": 1}, rows)


def test_scout_may_have_as_many_seconds_as_pattern_search(lab):
    pytest.importorskip("helion")
    key = {"search": "scout_as_long", "seed": 0}
    with pytest.raises(UsageError, match="gets as much as helion_pattern of seed 0"):
        lab.do(key, [])
    about = {"op": "matmul", "effort": "quick", "seed": 0, "search": REFERENCE}
    row = lab.do(key, [about | {"trials": 8, "elapsed_s": 3.0}])
    assert not row["cut"]
    assert 20 <= row["trials"] <= 30  # a reading takes a tenth of a second of this clock
    assert row["config"]["x"] == 5


class Thinker(RandomSearch):
    """Thinks for as long as the lanes need, while they go on."""

    thread_s = 0.0

    def ask(self, n):
        self.thread_s += 0.1 * n  # CPU seconds, as `tune` counts them
        return super().ask(n)


def test_seconds_of_thinking_are_seconds_of_the_search(lab, monkeypatch):
    pytest.importorskip("helion")
    monkeypatch.setattr(
        helion_field, "make_searcher", lambda _, space, *, seed, **__: Thinker(space, seed=seed)
    )
    about = {"op": "matmul", "effort": "quick", "seed": 0, "search": REFERENCE}
    row = lab.do({"search": "scout_as_long", "seed": 0}, [about | {"trials": 8, "elapsed_s": 3.0}])
    assert 20 <= row["trials"] <= 30


def test_a_run_whose_time_is_over_is_told_with_what_it_held(lab):
    pytest.importorskip("helion")
    lab._args.most_s = 0.5
    row = lab.do({"search": "ucb_pattern", "seed": 0}, [])
    assert row["cut"]
    assert row["config"] == {"x": row["config"]["x"], "y": row["config"]["y"]}


class Lab(test_large.Lab):
    """Stands for a GPU."""

    did: ClassVar[list] = []

    def do(self, key, _rows):
        self.did.append((self._op, key["search"], key["seed"]))
        row = as_row([(1.0, "ok", 9.0, {"x": len(self.did)})])
        return row | {"cut": False, "lanes": 8, "size": 1e12}


def test_it_goes_on_where_it_stopped_and_races_again_what_has_come(tmp_path, monkeypatch):
    pytest.importorskip("helion")
    races = []

    def race(op, contenders, *, rounds, left_s):
        names = [c["name"] for c in contenders]
        races.append((op, len(names), left_s > 0))
        us = [float(n + 1) for n in range(len(names))]
        return {"names": names, "medians_us": {"events": us}, "wrong": {}, "rounds": rounds}

    monkeypatch.setattr(helion_field, "_Lab", Lab)
    monkeypatch.setattr(helion_field, "race", race)
    monkeypatch.setattr(Lab, "did", [])

    def run(*words):
        given = vars(arguments("--ops", "matmul", "--searches", *words))
        return helion_field.run(argparse.Namespace(**given, out=tmp_path / "field.json"))

    run("scout", "helion_pattern", "--seeds", "1")  # no rival for scout yet
    assert Lab.did == [("matmul", "helion_pattern", 0)]
    run("helion_pattern", "helion_lfbo_pattern", "scout", "--seeds", "1")
    assert Lab.did[1:] == [("matmul", "helion_lfbo_pattern", 0), ("matmul", "scout", 0)]
    assert races == [("matmul", 2, True), ("matmul", 4, True)]
    result = run("helion_pattern", "helion_lfbo_pattern", "scout", "--seeds", "1")
    assert len(Lab.did) == 3
    assert sum(row["search"] == "race" for row in result["rows"]) == 1
    full = run("helion_pattern", "--seeds", "1", "--effort", "full")
    assert len(full["rows"]) == len(result["rows"]) + 2
    hurried = run("helion_random", "--seeds", "1", "--deadline-s", "5")
    assert hurried["rows"] == full["rows"]


# -- tables ---------------------------------------------------------------------------------------


def run_row(op, search, seed, told, elapsed_s, *, cut=False):
    about = {"op": op, "effort": "full", "search": search, "seed": seed, "lanes": 14}
    return about | as_row(told) | {"elapsed_s": elapsed_s, "cut": cut, "most_s": 40}


@pytest.fixture
def result():
    rows = []
    for op, us in (("softmax", 10.0), ("matmul", 100.0)):
        pattern = [(1.0, "ok", 2 * us, {}), (8.0, "ok", us, {})]
        lfbo = [(1.0, "ok", 3 * us, {}), (4.0, "ok", us * 1.005, {})]
        rows += [
            run_row(op, REFERENCE, 0, pattern, 10.0),
            run_row(op, "helion_lfbo_pattern", 0, lfbo, 5.0),
            run_row(op, "helion_de", 0, lfbo[:1], 40.0, cut=True),
        ]
        names = ["torch", f"{REFERENCE}/0", "helion_lfbo_pattern/0", "helion_de/0"]
        race = {"op": op, "effort": "full", "search": "race", "seed": 0, "names": names}
        medians = {"events": [us / 2, us, 0.9 * us, 3 * us], "graph": [us, us, 0.8 * us, us]}
        rows.append(race | {"medians_us": medians, "wrong": {}, "rounds": 20})
    return {
        "helion": "1.4.0",
        "gpu": "NVIDIA X",
        "shared_code": False,
        "rows": rows,
        "provenance": {},
    }


def geomean(table, searcher):
    row = table[(table["scope"] == "geomean") & (table["searcher"] == searcher)]
    return float(row["estimate"].iloc[0])


def test_ratios_are_of_the_race_the_clock_and_the_first_reading_near_the_end(result):
    tables = field_ratios(result, effort="full")
    assert geomean(tables["latency"], "helion_lfbo_pattern") == pytest.approx(0.9)
    assert geomean(tables["wall_clock"], "helion_lfbo_pattern") == pytest.approx(0.5)
    assert geomean(tables["convergence_time"], "helion_lfbo_pattern") == pytest.approx(4 / 8)
    # it never reads so: no number of its seconds is enough
    assert geomean(tables["convergence_time"], "helion_de") == np.inf
    runs = field_runs(result, effort="full").set_index(["kernel", "searcher"])
    assert runs.loc[("matmul", "helion_de"), "cost_s"] == 40.0
    assert runs.loc[("matmul", REFERENCE), "target_us"] == pytest.approx(101.0)
    assert field_ratios(result, effort="quick") == {}


def test_what_was_wrong_in_the_race_is_infinitely_slow(result):
    race = result["rows"][3]
    race["names"].remove("helion_lfbo_pattern/0")
    del race["medians_us"]["events"][2]
    assert geomean(field_ratios(result, effort="full")["latency"], "helion_lfbo_pattern") == np.inf


def test_the_readme_tells_ratios_cuts_and_what_was_published(result):
    text = "\n".join(field_lines(result))
    own = "| LFBO-Pattern (Helion) | 2 | 2 | 5 | 0 of 2 | 0.900 (0.900 to 0.900) | 0.800 (0.800"
    assert own in text
    assert "| DE (Helion) | 2 | 1 | 40 | 2 of 2 | 3.000" in text
    assert "not on every kernel | 0% |" in text
    assert "latency 0.97, here 0.90 (outside); wall-clock 0.67, here 0.50 (outside)" in text
    assert "one NVIDIA X" in text
    assert "timed again, as by Helion" in text
    assert "seeds: 1, runs cut after 40 s: softmax, matmul." in text
    assert "| full | matmul | DE (Helion) | 0 | 1 | 40 | 300.00 | 100.00 |" in text
    assert report(result) == text
    assert "as many seconds" not in text
    long = [run_row("matmul", "scout_as_long", 0, [(1.0, "ok", 9.0, {})], 10.0)]
    assert "as many seconds as pattern search" in report(result | {"rows": result["rows"] + long})
    shared = "\n".join(field_lines(result | {"shared_code": True}))
    assert "not timed again" in shared
    assert report(result | {"rows": []}) == "no operation was raced yet"
    result["rows"][0]["waited_s"] = 3.4
    assert "| Pattern (Helion) | 0 | 2 | 10 | 3 | 10.00 | 10.00 |" in report(result)
    assert "| DE (Helion) | 0 | 1 | 40 | - | 300.00 | 100.00 |" in report(result)
    assert "\n".join(field_lines(result, about=False)) in report(result)


def test_the_flagship_is_told_over_what_helion_runs_by_default(result):
    assert "default of today" not in report(result)
    assert field_ratios(result, effort="full", reference=DEFAULT) == {}
    for op, us, ours in (("softmax", 10.0, 8.0), ("matmul", 100.0, 125.0)):
        result["rows"] += [
            run_row(op, DEFAULT, 0, [(1.0, "ok", us, {})], 20.0),
            run_row(op, "scout", 0, [(1.0, "ok", us, {})], 5.0),
        ]
        race = next(r for r in result["rows"] if (r["op"], r["search"]) == (op, "race"))
        race["names"] += [f"{DEFAULT}/0", "scout/0"]
        race["medians_us"]["events"] += [us, ours]
        race["medians_us"]["graph"] += [us, 2 * us]
    tables = field_ratios(result, effort="full", reference=DEFAULT)
    assert geomean(tables["latency"], "scout") == pytest.approx(1.0)
    assert geomean(tables["latency"], REFERENCE) == pytest.approx(1.0)
    assert geomean(tables["wall_clock"], "scout") == pytest.approx(0.25)
    told = report(result).split("Helion's default of today, latency: ")[1]
    assert told.startswith("Scout 1.000 (0.800 to 1.250) by events, 2.000 (2.000 to 2.000) by ")
    assert "graphs, after 0.250 (0.250 to 0.250) of the seconds (2 kernels, 0.800 to 1.250" in told
    assert "Scout, as long" not in told.splitlines()[0]


def test_seconds_are_told_again_for_runs_on_one_machine(result):
    assert "share machine" not in report(result)
    for row in result["rows"]:
        if row["search"] in (REFERENCE, "helion_lfbo_pattern"):
            row["machine"] = row["op"]  # each kernel has its own
    slow = [run_row(op, REFERENCE, 1, [(1.0, "ok", 9.0, {})], 1e4) for op in ("softmax", "matmul")]
    fast = [run_row("matmul", "scout", 1, [(1.0, "ok", 9.0, {})], 0.1) | {"machine": "other"}]
    result["rows"] += slow + fast
    tables = field_ratios(on_one_machine(result), effort="full")
    assert set(tables["wall_clock"]["searcher"]) == {REFERENCE, "helion_lfbo_pattern"}
    assert geomean(tables["wall_clock"], "helion_lfbo_pattern") == pytest.approx(0.5)
    assert geomean(tables["latency"], "helion_lfbo_pattern") == pytest.approx(0.9)
    told = report(result).split("share machine and GPU with pattern search's")[1]
    assert "(1 seed each)." in told
    table = told[: told.index("<details>")]
    assert "| LFBO-Pattern (Helion) | 2 | 2 | 5 | 0 of 2 | 0.900 (0.900 to 0.900)" in table
    assert "DE (Helion)" not in table
    assert on_one_machine(result | {"rows": slow})["rows"] == []


def test_a_race_that_failed_leaves_its_operation_out(result):
    race = result["rows"][3]
    assert race["search"] == "race"
    del race["medians_us"]
    race["error"] = "the process ended"
    assert set(field_runs(result, effort="full")["kernel"]) == {"matmul"}


def test_a_timer_that_could_not_be_used_is_left_out(result):
    for row in result["rows"]:
        row.get("medians_us", {}).pop("graph", None)
    assert field_runs(result, effort="full", timer="graph").empty
    assert "| 0.900 (0.900 to 0.900) | - | 0.500" in report(result)


def test_the_figure_draws_every_search_of_an_effort_on_every_kernel(result):
    from kt_lab.evidence.helion_field_figures import convergence_figure
    from kt_lab.evidence.helion_field_tables import field_curves

    curves = field_curves(result, effort="full")
    own = curves[(curves["kernel"] == "matmul") & (curves["searcher"] == "helion_lfbo_pattern")]
    assert own["judged_us"].tolist() == [300.0, 100.5, 100.5]
    assert own["elapsed_s"].tolist() == [1.0, 4.0, 5.0]
    drawing = convergence_figure(result)
    for words in ("softmax and matmul", "NVIDIA X", "1 seed,", "each config timed"):
        assert words in drawing.caption
    assert drawing.points["against_trials"]["searcher"].nunique() == 3


def test_kernels_can_be_drawn_apart_and_all_of_them_as_ratios(result):
    from kt_lab.evidence.helion_field_figures import convergence_figure, ratios_figure

    one = convergence_figure(result, kernels=["matmul"])
    assert set(one.points["against_seconds"]["kernel"]) == {"matmul"}
    assert "for matmul, at effort" in one.caption
    bars = ratios_figure(result)
    assert set(bars.points["measure"]) == {"latency", "wall_clock", "convergence_time"}
    assert set(bars.points["kernel"].dropna()) >= {"softmax", "matmul"}
    own = bars.points[bars.points["searcher"] == "helion_lfbo_pattern"].set_index("measure")
    own = own[own["scope"] == "geomean"]["estimate"]
    assert own["latency"] == pytest.approx(0.9)
    assert own["wall_clock"] == pytest.approx(0.5)
    told = ("to Pattern (Helion)", "timer events", "was cut: 2 runs", "DE (Helion) in 0 of 2 runs")
    for words in (*told, "(one seed has none)", "softmax and matmul", "NVIDIA X"):
        assert words in bars.caption
    assert "Geomean of" not in bars.caption
    result["rows"] = [
        row for row in result["rows"] if (row["op"], row["search"]) != ("softmax", "helion_de")
    ]
    told = "Geomean of DE (Helion) over 1 of 2 kernels."
    assert ratios_figure(result).caption.endswith(told)
    with pytest.raises(UsageError, match="nothing was raced at effort quick"):
        ratios_figure(result, effort="quick")


def test_a_kernel_with_one_search_alone_is_not_compared(result):
    from kt_lab.evidence.helion_field_figures import ratios_figure

    alone = [run_row("rope", REFERENCE, 0, [(1.0, "ok", 9.0, {})], 10.0)]
    race = {"op": "rope", "effort": "full", "search": "race", "seed": 0}
    race |= {"names": ["torch", f"{REFERENCE}/0"], "medians_us": {"events": [9.0, 9.0]}}
    more = result | {"rows": result["rows"] + alone + [race]}
    assert set(field_runs(more, effort="full")["kernel"]) == {"softmax", "matmul", "rope"}
    for name, table in field_ratios(more, effort="full").items():
        assert table.equals(field_ratios(result, effort="full")[name])
    assert "rope" not in ratios_figure(more).caption

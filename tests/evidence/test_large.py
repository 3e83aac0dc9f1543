"""Searches in Helion's spaces: the pool that measures, Helion's own search on it, the tables."""

import argparse
import importlib.util
import math
import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from kt_lab.budget import Budget, Left, Spent
from kt_lab.errors import UsageError
from kt_lab.evidence import large
from kt_lab.evidence.helion_pool import Pool, PooledRunner
from kt_lab.evidence.large_tables import (
    large_lines,
    large_table,
    raced_us,
    report,
    runs_table,
)
from kt_lab.parameters import Integer
from kt_lab.search import make_searcher
from kt_lab.space import ParameterSpace
from kt_lab.trial import Measurement
from kt_lab.tune import tune

HELION = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("helion", "torch", "triton")),
    reason="needs helion, which the extra peers installs, torch and triton",
)


@pytest.fixture
def pool(tmp_path):
    with Pool("softmax", folder=tmp_path, lanes=2, module="tests.evidence.pool_services") as made:
        yield made


def finish(pool):
    found = {}
    while pool.pending:
        tag, measurement = pool.next()
        found[tag] = measurement
    return found


def test_every_config_comes_back_once_with_its_own_end(pool):
    for tag, x in (("good", 4), ("twin", 5), ("refused", -1), ("fallen", 99), ("wrong", 14)):
        pool.submit(tag, {"x": x})
    found = finish(pool)
    assert {tag: m.status for tag, m in found.items()} == {
        "good": "ok",
        "twin": "ok",
        "refused": "compile_error",
        "fallen": "compile_error",
        "wrong": "wrong_result",
    }
    assert found["good"].samples_us == found["twin"].samples_us
    assert sum("twin" in found[tag].info for tag in ("good", "twin")) == 1
    assert "refuses -1" in found["refused"].error
    assert "fell over" in found["fallen"].error


def test_each_config_is_timed_where_code_is_not_shared(tmp_path):
    module = "tests.evidence.pool_services"
    how = {"folder": tmp_path, "lanes": 2, "share_code": False, "module": module}
    with Pool("softmax", **how) as pool:
        for tag, x in enumerate((4, 5, 5)):  # 4 and 5 are the same code
            pool.submit(tag, {"x": x})
        found = finish(pool)
    assert len({m.samples_us for m in found.values()}) == 3
    assert all(m.status == "ok" and "twin" not in m.info for m in found.values())


def test_timing_again_reads_afresh_and_a_new_run_knows_nothing(pool):
    pool.submit(0, {"x": 6})
    first = finish(pool)[0]
    pool.again(1, {"x": 6})
    again = finish(pool)[1]
    assert again.latency_us > first.latency_us
    pool.begin()
    pool.again(2, {"x": 6})
    assert finish(pool)[2].status == "launch_error"
    pool.submit(3, {"x": 6})
    assert "twin" not in finish(pool)[3].info


def test_the_fastest_is_that_which_is_fastest_when_timed_again(pool):
    for tag in range(3):
        pool.submit(tag, {"x": 2 + 2 * tag})
    finish(pool)
    pool.submit("late", {"x": 8, "slow": 0.2})
    assert pool.fastest([{"x": 6}, {"x": 2}, {"x": 4}]) == {"x": 2}
    assert pool.fastest([{"x": 99}]) is None  # it was never measured
    assert pool.fastest([]) is None
    assert pool.code({"x": 2}) != pool.code({"x": 4})


def test_what_is_under_way_at_the_end_is_unheard_and_can_be_asked_for_again(pool):
    pool.submit("told", {"x": 2})
    finish(pool)
    for tag in range(5):  # more than can be compiled at once, two of the same code
        pool.submit(tag, {"x": 4 + 2 * max(tag, 1), "slow": 0.2})
    pool.settle()
    assert (pool.pending, pool.free) == (0, pool.lanes)
    assert pool.fastest([{"x": 2}]) == {"x": 2}
    pool.submit("again", {"x": 6, "slow": 0.2})
    assert finish(pool)["again"].status == "ok"


def test_finalists_are_timed_the_more_often_the_fewer_are_left(pool, monkeypatch):
    for tag in range(12):
        pool.submit(tag, {"x": 16 + 2 * tag})
    finish(pool)
    asked = []
    again = pool.again
    monkeypatch.setattr(pool, "again", lambda *a, **k: (asked.append(a[1]["x"]), again(*a, **k)))
    assert pool.fastest([{"x": 16 + 2 * n} for n in reversed(range(12))]) == {"x": 16}
    turns = sorted(asked.count(16 + 2 * n) for n in range(12))
    assert turns == [2] * 4 + [4] * 4 + [8] * 4
    assert all(asked.count(x) == 8 for x in (16, 18, 20, 22))


def test_what_is_short_is_chosen_by_graphs_where_they_can_be_captured(pool, lab):
    def told(*xs):
        for tag, x in enumerate(xs):
            pool.submit(tag, {"x": x})
        return [(1.0, m.status, m.latency_us, {"x": xs[t]}, t) for t, m in finish(pool).items()]

    assert pool.fastest([{"x": 2}], timer="graph") is None  # it was never measured
    short = told(2, 4, 8, 9)
    assert lab.chosen(short)["x"] in (8, 9)  # which are the same code
    assert pool.fastest([{"x": 2}, {"x": 4}, {"x": 8}]) == {"x": 2}
    assert lab.chosen(told(6)) == {"x": 6}  # no graph takes it
    assert lab.chosen([]) is None
    slow = [(s, status, 9 * us, config, n) for s, status, us, config, n in short]
    assert lab.chosen(slow) == {"x": 2}


def test_what_graphs_read_is_no_reading_to_search_by(pool):
    pool.submit(0, {"x": 2})
    finish(pool)
    pool.again(1, {"x": 2}, timer="graph")
    assert finish(pool)[1].latency_us == 8.0
    assert pool._best_us > 11.0


def test_waiting_for_measurements_is_told_apart_from_what_the_search_does(pool):
    pool.submit(0, {"x": 2, "slow": 0.3})
    finish(pool)
    waited_s = pool.waited_s
    assert waited_s >= 0.3
    pool.submit(1, {"x": 4, "slow": 0.5})
    time.sleep(1.0)  # the search thinks while a worker compiles
    finish(pool)
    assert pool.now >= waited_s + 1.0
    assert pool.waited_s - waited_s < 0.5
    pool.begin()
    assert pool.waited_s == 0.0


def test_what_a_run_left_under_way_does_not_reach_the_next(pool):
    pool.submit("old", {"x": 2, "slow": 0.5})
    pool.begin()
    pool.submit("new", {"x": 4})
    assert set(finish(pool)) == {"new"}


def test_a_searcher_of_ours_runs_on_it(pool):
    class Space:
        space = ParameterSpace([Integer("x", 0, 9)], default={"x": 0})

        def helion(self, config):
            return {"x": config["x"]}

    runner = PooledRunner(pool, Space())
    searcher = make_searcher("random", Space.space, seed=0)
    history = tune(searcher, runner, budget=Budget(trials=10))
    assert sorted(trial.config["x"] for trial in history) == list(range(10))
    assert history.incumbent.config["x"] in (0, 1)
    elapsed = [trial.machine_s for trial in history]
    assert elapsed == sorted(elapsed)


class Instant:
    """A pool without processes: every config of Helion's reads what its block sizes say."""

    now = waited_s = 0.0

    def __init__(self):
        self.done, self.batches, self.retimed = deque(), 0, 0
        self.lock = threading.Lock()  # a pool of processes cannot be copied either

    def begin(self):
        self.done.clear()

    @property
    def pending(self):
        return len(self.done)

    def submit(self, tag, config):
        us = 10.0 + abs(math.log2(math.prod(config["block_sizes"])) - 6)
        self.done.append((tag, Measurement("ok", samples_us=(us,))))

    def again(self, tag, config):
        self.retimed += 1
        self.submit(tag, config)

    def next(self):
        self.now += 0.1
        self.waited_s += 0.025
        return self.done.popleft()


@HELION
def test_helions_own_search_runs_on_the_pool_and_stops_when_told():
    from kt_lab.evidence.helion_search import search
    from tests.evidence.test_helion_space import opened

    kernel, _ = opened("row_sum")
    inputs = kernel.fake_args
    whole = Budget(seconds=1e9)
    told, picked = search(Instant(), kernel, inputs, "quick", seed=0, budget=whole)
    found = large.as_row(told)
    assert found["trials"] >= 30
    assert found["statuses"] == {"ok": found["trials"]}
    assert found["bests"][-1][2] == pytest.approx(min(us for _, _, us, _ in told), abs=1e-3)
    assert "block_sizes" in picked
    same, _ = search(Instant(), kernel, inputs, "quick", seed=0, budget=whole)
    assert [us for _, _, us, _ in same] == [us for _, _, us, _ in told]
    cut, unpicked = search(Instant(), kernel, inputs, "quick", seed=0, budget=Budget(trials=12))
    assert [us for _, _, us, _ in cut] == [us for _, _, us, _ in told[:12]]
    assert unpicked is None


@pytest.fixture
def lab(pool):
    """A lab whose pool stands for a GPU; its space has a config that is refused."""

    class Space:
        numbers = [Integer("x", 0, 40), Integer("y", 0, 90)]  # noqa: RUF012
        space = ParameterSpace(numbers, default={"x": 9, "y": 9})
        seeds: ClassVar[list] = [space.config([4, 4])]

        def helion(self, config):
            return {"x": config["x"] or -1}

    parser = argparse.ArgumentParser()
    large.add_arguments(parser)
    made = large._Lab.__new__(large._Lab)
    args = parser.parse_args(["--uniform", "12", "--times", "4", "--long-s", "9"])
    for name, value in (("op", "matmul"), ("_args", args), ("space", Space()), ("pool", pool)):
        setattr(made, name, value)
    made.startup_s = 1.0
    return made


def test_runs_of_ours_follow_helions(lab):
    pytest.importorskip("helion")
    told = [(0.1, "ok", 20.0, {"x": 9}), (3.0, "ok", 12.0, {"x": 2})] * 4  # room for a busy core
    rows = [{"op": "matmul", "run": "helion", "seed": 0} | large.as_row(told)]
    found = {run: lab.do({"run": run, "seed": 0}, rows) for run in ("scout", "long", "uniform")}
    ours = found["scout"]
    assert ours["as_many"]["trials"] == 8 <= ours["trials"]
    assert ours["elapsed_s"] >= 3.0 >= ours["as_long"]["elapsed_s"]
    assert ours["as_long"]["config"]["x"] <= 9
    assert found["long"]["trials"] == 32
    assert len(found["uniform"]["readings_us"]) == found["uniform"]["trials"] == 12
    assert found["uniform"]["size"] == 41 * 91
    with pytest.raises(UsageError, match="seed 1 comes first"):
        lab.do({"run": "scout", "seed": 1}, rows)


class Lab:
    """Stands for a GPU: every run ends with a config that tells which run it was."""

    did: ClassVar[list] = []

    def __init__(self, op, _args):
        self._op = op

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def do(self, key, rows):
        self.did.append((self._op, key["run"], key["seed"]))
        told = [(1.0, "ok", 9.0, {"block_sizes": [len(rows)]})]
        return large.as_row(told) | {"size": 1e12, "lanes": 8}


def test_it_goes_on_where_it_stopped_and_races_again_what_has_come(tmp_path, monkeypatch):
    pytest.importorskip("helion")
    races = []

    def race(rows, op, rounds, _left_s):
        names = [c["name"] for c in large.contenders(rows, op)]
        races.append(names)
        us = [float(n) for n in range(len(names))]
        return {"names": names, "medians_us": {"events": us}, "wrong": {}, "rounds": rounds}

    monkeypatch.setattr(large, "_Lab", Lab)
    monkeypatch.setattr(large, "_race", race)
    monkeypatch.setattr(Lab, "did", [])
    parser = argparse.ArgumentParser()
    large.add_arguments(parser)

    def run(*words):
        given = parser.parse_args(["--ops", "matmul", *words])
        return large.run(argparse.Namespace(**vars(given), out=tmp_path / "large.json"))

    run("--seeds", "1")
    assert [run_ for _, run_, _ in Lab.did] == [
        "helion",
        "scout",
        "long",
        "uniform",
        "helion_full",
    ]
    assert len(races[-1]) == 6
    result = run("--seeds", "2")
    assert Lab.did[5:] == [("matmul", "helion", 1), ("matmul", "scout", 1)]
    assert len(races) == 2
    assert len(races[-1]) == 8
    assert sum(row["run"] == "race" for row in result["rows"]) == 1
    assert run("--seeds", "2")["rows"] == result["rows"]
    assert len(races) == 2
    none = run("--seeds", "1", "--uniform", "0")
    assert [row["run"] for row in none["rows"]] == [
        "helion",
        "scout",
        "long",
        "helion_full",
        "race",
    ]


# -- runs -----------------------------------------------------------------------------------------


def test_a_run_beside_another_is_judged_after_as_many_configs_and_after_as_many_seconds():
    told = [
        (1.0, "ok", 9.0, {"x": 0}, 0),
        (2.0, "ok", 7.0, {"x": 2}, 2),  # proposed third
        (3.0, "timeout", None, None, 1),
        (4.0, "ok", 5.0, {"x": 3}, 3),
        (6.0, "ok", 4.0, {"x": 4}, 4),
    ]
    row = large.as_row(told, trials=2, seconds=4.5)
    assert row["as_many"] == {"config": {"x": 0}, "trials": 2, "elapsed_s": 3.0}
    assert row["as_long"] == {"config": {"x": 3}, "trials": 4, "elapsed_s": 4.0}
    assert (row["trials"], row["bests"][-1]) == (5, [5, 6.0, 4.0])
    assert "config" not in row
    assert large.as_row(told)["config"] == {"x": 4}
    assert large.as_row(told, trials=2, seconds=4.5)["choose_s"] == 0.0
    nothing = large.as_row([told[2]], trials=2, seconds=0.5)
    assert nothing["as_many"] == {"config": None, "trials": 1, "elapsed_s": 3.0}
    assert nothing["as_long"] == {"config": None, "trials": 0, "elapsed_s": 0.0}


def test_choosing_an_end_takes_of_the_seconds():
    told = [(0.1 * n, "ok", 9.0 - n, {"x": n}, n) for n in range(9)]

    def choose(part):
        time.sleep(0.25)
        return part[-1][3] if part else None

    row = large.as_row(told, trials=9, seconds=0.75, choose=choose)
    assert row["as_many"]["config"] == {"x": 8}
    assert row["choose_s"] >= 0.25
    assert row["as_long"]["elapsed_s"] <= 0.75 - row["choose_s"]
    assert row["as_long"]["config"]["x"] <= 5
    assert large.as_row(told, trials=9, seconds=0.2, choose=choose)["as_long"]["config"] is None


def test_ours_has_the_seconds_that_helion_took_to_choose_too(lab):
    pytest.importorskip("helion")
    told = [(0.1, "ok", 20.0, {"x": 9}), (0.2, "ok", 12.0, {"x": 2})]
    rows = [{"op": "matmul", "run": "helion", "seed": 0, "chosen_s": 1.5} | large.as_row(told)]
    assert lab.do({"run": "scout", "seed": 0}, rows)["elapsed_s"] >= 1.2


def test_a_run_ends_when_it_has_had_the_trials_and_the_seconds():
    class Clock:
        now = 0.0

    both = large.Both(Clock, trials=2, seconds=5.0)
    Clock.now = 9.0
    assert both.left(Spent(1, 9.0)).seconds == math.inf
    first, later, second = (SimpleNamespace(proposal=SimpleNamespace(id=n)) for n in (0, 2, 1))
    both.note(first), both.note(later)  # the second is still under way
    assert both.left(Spent(2, 9.0)).seconds == math.inf
    both.note(second)
    assert both.left(Spent(3, 9.0)) == Left(0.0, 0.0)
    Clock.now = 4.9
    assert both.left(Spent(3, 9.0)).trials == math.inf


def test_ours_goes_on_until_it_has_had_what_helions_run_had(pool):
    class Space:
        space = ParameterSpace(
            [Integer("x", 0, 9), Integer("slow", 0, 9)], default={"x": 0, "slow": 0}
        )

        def helion(self, config):
            return {"x": config["x"], "slow": 0.01 * config["slow"]}

    runner = PooledRunner(pool, Space())
    both = large.Both(pool, trials=5, seconds=0.3)
    searcher = make_searcher("random", Space.space, seed=0)
    history = tune(searcher, runner, budget=both, on_trial=both.note)
    assert {trial.proposal.id for trial in history} >= set(range(5))
    assert history[-1].elapsed_s >= 0.25


# -- tables ---------------------------------------------------------------------------------------


def run_row(run, seed, told, **limits):
    row = {"op": "matmul", "run": run, "seed": seed, "size": 4e14, "lanes": 8}
    return row | large.as_row(told, **limits)


FIRST, SECOND, THIRD = ({"block_sizes": [n]} for n in (1, 2, 4))


@pytest.fixture
def result():
    own = [(2.0, "ok", 8.0, FIRST, 0), (3.0, "ok", 6.0, SECOND, 2), (12.0, "ok", 5.0, THIRD, 1)]
    rows = [
        run_row("helion", 0, [(1.0, "ok", 9.0, FIRST), (8.0, "ok", 7.0, SECOND)]),
        run_row("scout", 0, own, trials=2, seconds=9.0),
        run_row("uniform", 0, [(1, "ok", 6.0, SECOND), *3 * [(2, "timeout", None, None)]]),
    ]
    rows[2]["readings_us"] = [None, 6.0, 50.0, 5.2]
    names = ["torch", "helion/0", "scout/0", "scout/0/s", "uniform/0"]
    race = {"op": "matmul", "run": "race", "seed": 0, "names": names}
    race |= {"medians_us": {"events": [4.0, 7.1, 5.1, 6.2, 6.0]}, "wrong": {}, "rounds": 20}
    facts = {"searcher": "scout", "options": {"near": 0.9}, "times": 10, "uniform": 4}
    return facts | {"helion": "1.4.0", "rows": [*rows, race]}


def test_the_race_times_what_each_run_ended_with(result):
    result["rows"][0]["config"] = FIRST  # Helion timed its best again
    found = {c["name"]: c["config"] for c in large.contenders(result["rows"], "matmul")}
    assert found == {
        "torch": {},
        "helion/0": FIRST,
        "scout/0": THIRD,
        "scout/0/s": SECOND,
        "uniform/0": SECOND,
    }
    assert large.contenders([run_row("scout", 0, [])], "matmul")[1:] == []


def test_ratios_are_of_the_race_and_quantiles_of_the_draws(result):
    runs = runs_table(result).set_index("run")
    assert runs.loc["scout", ["end_us", "long_us"]].tolist() == [5.1, 6.2]
    assert runs.loc["scout", ["trials", "long_trials"]].tolist() == [2, 2]
    assert runs.loc["scout", "quantile"] == 0.0
    assert runs.loc["helion", "quantile"] == 0.5  # of four draws, one of which failed
    (row,) = large_table(result).to_dict("records")
    assert row["end_ratio"] == pytest.approx(5.1 / 7.1)
    assert row["equal_ratio"] == pytest.approx(6.2 / 7.1)
    assert (row["best_us"], row["best_run"]) == (5.1, "scout")
    assert row["end_ratio_low"] == row["end_ratio_high"] == pytest.approx(5.1 / 7.1)  # a seed each
    lines = large_lines(result)
    assert any("matmul" in line and "0.718" in line and "0.873" in line for line in lines)
    assert "75% to 75% of them took too long" in lines[0]
    assert "measured in 1 go," in lines[0]
    again = large_lines(result | {"resumed": [{}], "options": {}})[0]
    assert "measured in 2 goes" in again
    assert "and with" not in again


def test_ratios_of_medians_have_the_interval_of_seeds(result):
    rows, race = result["rows"], result["rows"][-1]
    for seed, (theirs, many, long) in enumerate([(7.0, 5.0, 8.0), (8.0, 6.0, 9.0)], start=1):
        rows[:0] = [
            run_row("helion", seed, [(1.0, "ok", 9.0, FIRST)]),
            run_row("scout", seed, [(1.0, "ok", 9.0, FIRST, 0)], trials=1, seconds=2.0),
        ]
        race["names"] += [f"helion/{seed}", f"scout/{seed}", f"scout/{seed}/s"]
        race["medians_us"]["events"] += [theirs, many, long]
    table = large_table(result)
    (row,) = table.to_dict("records")
    assert row["end_ratio"] == pytest.approx(5.1 / 7.1)
    low, high = row["end_ratio_low"], row["end_ratio_high"]
    assert (low, high) == pytest.approx((5.0 / 8.0, 6.0 / 7.0))
    assert row["equal_ratio_low"] < 1 < row["equal_ratio_high"]
    line = large_lines(result)[-1]
    assert "1 faster and none slower by the interval over seeds at equal configs" in line
    assert "none faster and none slower by the interval over seeds at equal seconds" in line
    assert f"{row['end_ratio']:.3f} ({row['end_ratio_low']:.2f} to " in "\n".join(
        large_lines(result)
    )


def test_the_other_timer_and_other_kernels_are_told_too(result):
    assert not any("graph timer" in line for line in large_lines(result))
    result["rows"][-1]["medians_us"]["graph"] = [4.0, 5.0, 5.5, 4.5, 6.0]
    assert "by the graph timer: matmul 0.900." in large_lines(result)[-1]
    both = large_lines(result, result)
    assert sum("| matmul |" in line for line in both) == 2
    assert any("no default was fitted to" in line for line in both)


def test_a_winner_that_turns_out_wrong_ends_with_nothing(result):
    race = result["rows"][-1]
    race["names"], race["medians_us"] = ["torch", "helion/0"], {"events": [4.0, 7.0]}
    assert runs_table(result).set_index("run").loc["scout", "end_us"] == np.inf
    assert raced_us(result, "matmul") == {"torch": 4.0, "helion/0": 7.0}


def test_without_a_race_there_is_no_table(result):
    unraced = result | {"rows": result["rows"][:-1]}
    assert runs_table(unraced).empty
    assert large_table(unraced).empty
    assert "matmul/scout/0" in report(unraced)

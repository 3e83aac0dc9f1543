"""Searches in Helion's spaces: the pool that measures, Helion's own search on it, the tables."""

import argparse
import importlib.util
import math
from collections import deque
from typing import ClassVar

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.evidence import large
from kt_lab.evidence.helion_pool import Pool, PooledRunner
from kt_lab.evidence.large_tables import (
    held_us,
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

    now = 0.0

    def __init__(self):
        self.done, self.batches, self.retimed = deque(), 0, 0

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
        "helion_full",
        "uniform",
    ]
    assert len(races[-1]) == 6
    result = run("--seeds", "2")
    assert Lab.did[5:] == [("matmul", "helion", 1), ("matmul", "scout", 1)]
    assert len(races) == 2
    assert len(races[-1]) == 8
    assert sum(row["run"] == "race" for row in result["rows"]) == 1
    assert run("--seeds", "2")["rows"] == result["rows"]
    assert len(races) == 2


# -- tables ---------------------------------------------------------------------------------------


def run_row(run, seed, bests, *, elapsed_s, readings=None):
    readings = readings or [us for _, _, us, _ in bests]
    configs = [config for *_, config in bests]
    good = sum(us is not None for us in readings)
    return {
        "op": "matmul",
        "run": run,
        "seed": seed,
        "trials": len(readings),
        "elapsed_s": elapsed_s,
        "statuses": {"ok": good, "timeout": len(readings) - good},
        "readings_us": readings,
        "bests": [best[:3] for best in bests],
        "config": configs[-1] if configs else None,
        "size": 4e14,
        "lanes": 8,
    }


@pytest.fixture
def result():
    first, second, third = ({"block_sizes": [n]} for n in (1, 2, 4))
    rows = [
        run_row("helion", 0, [[1, 1.0, 9.0, first], [5, 8.0, 7.0, second]], elapsed_s=9.0),
        run_row("scout", 0, [[1, 2.0, 8.0, first], [4, 12.0, 5.0, third]], elapsed_s=12.5),
        run_row("uniform", 0, [[2, 1, 6.0, second]], elapsed_s=5, readings=[None, 6.0, 50.0, 5.2]),
    ]
    names = ["torch", "helion/0", "scout/0", "uniform/0"]
    race = {"op": "matmul", "run": "race", "seed": 0, "names": names}
    race |= {"medians_us": {"events": [4.0, 7.1, 5.1, 6.0]}, "wrong": {}, "rounds": 20}
    facts = {"searcher": "scout", "options": {"near": 0.9}, "times": 10, "uniform": 4}
    return facts | {"helion": "1.4.0", "rows": [*rows, race]}


def test_the_race_times_what_each_run_ended_with(result):
    result["rows"][0]["picked"] = {"block_sizes": [1]}  # Helion timed its best again
    found = {c["name"]: c["config"] for c in large.contenders(result["rows"], "matmul")}
    assert found == {
        "torch": {},
        "helion/0": {"block_sizes": [1]},
        "scout/0": {"block_sizes": [4]},
        "uniform/0": {"block_sizes": [2]},
    }
    assert large.contenders([run_row("scout", 0, [], elapsed_s=0.0)], "matmul")[1:] == []


def test_ratios_are_of_the_race_and_of_equal_seconds_and_quantiles_of_the_draws(result):
    runs = runs_table(result).set_index("run")
    assert runs.loc["scout", ["equal_us", "helion_us"]].tolist() == [8.0, 7.0]  # after 9 s
    assert runs.loc["scout", "quantile"] == 0.0
    assert runs.loc["helion", "quantile"] == 0.5  # of four draws, one of which failed
    (row,) = large_table(result).to_dict("records")
    assert row["end_ratio"] == pytest.approx(5.1 / 7.1)
    assert row["equal_ratio"] == pytest.approx(8 / 7)
    assert (row["best_us"], row["best_run"]) == (5.1, "scout")
    assert any("matmul" in line and "0.718" in line for line in large_lines(result))
    assert "measured in 1 go," in large_lines(result)[0]
    again = large_lines(result | {"resumed": [{}], "options": {}})[0]
    assert "measured in 2 goes" in again
    assert "and with" not in again


def test_what_was_held_is_nothing_before_the_first_reading(result):
    held = [held_us(result["rows"][1], seconds) for seconds in (1.9, 2.0, 12.5)]
    assert held == [np.inf, 8.0, 5.0]


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

"""Live tuning with a simulated GPU: search, confirm, store, resume, recheck."""

import argparse
import json
import os
import signal
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from kt_lab import cli, live, transfer
from kt_lab.budget import Budget
from kt_lab.commands import recheck as recheck_command
from kt_lab.commands import tune as tune_command
from kt_lab.commands.tune import told
from kt_lab.decisions import load_winner, save_winner
from kt_lab.dispatching import stored_dispatch
from kt_lab.errors import StoreError, UsageError
from kt_lab.evidence.duels import twins, upper_limit
from kt_lab.journals import journal_path, live_facts
from kt_lab.live import best_launches, confirm_found, tune_live, winner_of
from kt_lab.prior import Prior, PriorReading
from kt_lab.runners.gpu import facts
from kt_lab.runners.gpu.protocols import GRAPH_L2
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.search import get_searcher
from kt_lab.space import Integer, ParameterSpace
from kt_lab.store import Journal, read_journal
from kt_lab.transfer import run_prior
from kt_lab.trial import Config, History, Measurement, Proposal, Trial
from tests.runners import live_fakes as fakes
from tests.test_decisions import make

BUDGET = Budget(trials=40)


@pytest.fixture
def runner(monkeypatch, tmp_path):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    with GpuRunner(
        fakes.WORKLOAD, kernel=fakes.CALM, services=fakes.SERVICES, compile_workers=2
    ) as made:
        yield made


def measured(path):
    records = read_journal(path)
    return [json.dumps(r["config"], sort_keys=True) for r in records if "status" in r]


def tuned(runner, tmp_path, *, budget=BUDGET, **changes):
    options = {"searcher": "random", "seed": 3, "directory": tmp_path} | changes
    return tune_live(runner, budget=budget, **options)


def test_the_winner_is_confirmed_and_stored(runner, tmp_path):
    result = tuned(runner, tmp_path)
    fastest = min(fakes.latency_us(t.config) for t in result.history if t.status == "ok")
    assert result.confirmation.incumbent == runner.space.default
    winner = load_winner("fake/16", directory=tmp_path / "winners")
    assert winner == result.winner
    # The default is the fastest config there is, so nothing may replace it.
    assert winner.config == runner.space.default
    assert fakes.latency_us(winner.config) <= fastest
    assert winner.ratio is None
    assert winner.trials == 40
    assert winner.provenance["gpu"] == "NVIDIA Fake"
    before, after = winner.provenance["sensors"]  # clocks and power, null without a GPU
    assert before["at_s"] <= after["at_s"]
    assert {"sm_mhz", "temperature_c", "power_w"} <= after.keys()
    assert 0 < result.startup_s <= result.search_s <= result.elapsed_s
    assert "stored in" in told(result)


def test_a_faster_config_replaces_a_slow_default(monkeypatch, runner, tmp_path):
    slow = {"FAULT": "none", "VARIANT": 9, "PROGRAMS": 2}
    monkeypatch.setattr(runner.space, "default", runner.space.config(runner.space.row(slow)))
    result = tuned(runner, tmp_path)
    assert result.confirmation.replaced
    best = min(result.history.readings.values(), key=lambda t: t.latency_us)
    assert result.winner.config == best.config
    assert result.winner.ratio == pytest.approx(best.latency_us / fakes.latency_us(slow))
    assert result.winner.apparent_ratio == pytest.approx(result.winner.ratio)
    assert result.winner.finalists[0] == best.config


WRONG = {"FAULT": "wrong_result", "VARIANT": 0, "PROGRAMS": 1}  # as fast as any, and wrong


def test_a_default_that_is_wrong_does_not_stay_however_fast_it_is(monkeypatch, runner, tmp_path):
    monkeypatch.setattr(runner.space, "default", Config(WRONG))
    result = tuned(runner, tmp_path)
    best = best_launches(result.history, 1)[0]
    assert result.winner.config == best != result.winner.default
    assert best["FAULT"] == "none"
    assert result.confirmation.describe().endswith("replaces the incumbent: the incumbent failed.")
    assert (result.winner.ratio, result.winner.default_us) == (None, None)


def test_a_config_that_failed_when_it_was_measured_last_does_not_win(runner):
    best, other = Config(runner.space.default), Config(runner.space.default, VARIANT=3)
    ok, crashed = Measurement("ok", samples_us=(1.0,)), Measurement("crashed")
    slower = Measurement("ok", samples_us=(2.0,))
    read = [(best, ok), (other, slower), (best, crashed)]
    history = History([Trial(i, Proposal(i, c), m) for i, (c, m) in enumerate(read)])
    assert best_launches(history, 9) == [other]
    facts = live_facts(runner, searcher="random", options={}, seed=0)
    assert winner_of(runner, facts, history, None, {}, 0.0).config == other


def test_where_nothing_ran_there_is_no_winner(runner, tmp_path):
    """The default least of all: it was tried too."""
    space = fakes.CALM_SPACE
    broken = [Config(space.default, FAULT=f) for f in ("compile_error", "wrong_result")]
    runner.turn_to(fakes.WORKLOAD, space=space.only(space.rows(broken)))
    with pytest.raises(UsageError, match=r"fake/16 must have run, .* 2 trials \['(comp|wrong)"):
        tuned(runner, tmp_path)
    assert not (tmp_path / "winners").exists()
    assert len(list((tmp_path / "live").rglob("*.jsonl"))) == 1, "what was tried is kept"
    with pytest.raises(UsageError, match=r"finalists must be .*>= 1, got finalists=0"):
        tuned(runner, tmp_path, finalists=0)
    with pytest.raises(UsageError, match=r"registered name, got <class .*; register it"):
        tuned(runner, tmp_path, searcher=get_searcher("random"))


def test_a_confirmation_in_another_process_knows_what_the_search_read(
    monkeypatch, runner, tmp_path
):
    """Which configs are wrong, and how slow they are: a race checks nothing and has a limit."""
    monkeypatch.setattr(runner.space, "default", Config(WRONG))
    limits, ask = [], runner._pipeline.ask

    def told(task, *, timeout_s):
        limits.append(timeout_s)
        return ask(task, timeout_s=timeout_s)

    monkeypatch.setattr(runner._pipeline, "ask", told)
    right = [Config(runner.space.default, FAULT="none", VARIANT=v) for v in (3, 4)]
    slow = Measurement("ok", samples_us=(3e6,))  # three seconds
    read = [(runner.space.default, Measurement("wrong_result")), *((c, slow) for c in right)]
    history = History([Trial(i, Proposal(i, c), m) for i, (c, m) in enumerate(read)])
    about = {"searcher": "random", "options": {}, "seed": 0, "directory": tmp_path}
    found = confirm_found(runner, history, **about)
    assert found.winner.config == right[0]
    assert runner.tally.timed == 0, "nothing is measured twice"
    assert limits[0] > 2 * 8 * 10 * 3.0, "two configs, eight rounds of ten launches"


def test_a_winner_that_was_not_confirmed_serves_no_table(monkeypatch, runner, tmp_path):
    slow = {"FAULT": "none", "VARIANT": 9, "PROGRAMS": 2}
    monkeypatch.setattr(runner.space, "default", Config(slow))
    with monkeypatch.context() as patch:
        patch.setattr(live, "confirm", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
        winner = tuned(runner, tmp_path).winner
    assert winner.config != winner.default
    now = {"kernel_source": winner.kernel_source, "gpu": "fake", "arch": None}
    now |= {"triton": None, "driver": None}
    table = partial(stored_dispatch, fakes.CALM, directory=tmp_path / "winners", **now)
    with pytest.raises(StoreError, match="got the winner of fake/16 on fake from a run"):
        table()
    again = tuned(runner, tmp_path).winner
    assert table().config(fakes.WORKLOAD, again.default) == again.config != again.default


def test_finalists_are_different_launches(runner, tmp_path):
    history = tuned(runner, tmp_path, budget=Budget(trials=110)).history
    kept = best_launches(history, 100)
    launches = {
        (t.measurement.info["code_hash"], t.measurement.info["grid"])
        for t in history
        if t.status == "ok"
    }
    assert len(kept) == len(launches)
    latencies = [fakes.latency_us(c) for c in kept]
    assert latencies == sorted(latencies)
    for a, b in twins(history):
        assert a != b
        assert {a["VARIANT"], b["VARIANT"]} == {18, 19}


def test_running_again_goes_on_and_measures_nothing_twice(runner, tmp_path):
    first = tuned(runner, tmp_path, budget=Budget(trials=20))
    timed = runner.tally.timed
    again = tuned(runner, tmp_path, budget=Budget(trials=20))
    assert runner.tally.timed == timed
    assert {t.config for t in again.history} == {t.config for t in first.history}
    assert again.search_s >= first.history[-1].machine_s, "the seconds of all parts"
    assert again.winner.elapsed_s >= again.search_s
    longer = tuned(runner, tmp_path, budget=Budget(trials=35))
    configs = measured(longer.journal)
    assert len(configs) == len(set(configs)) >= 35
    assert {t.config for t in first.history} <= {t.config for t in longer.history}
    afresh = tuned(runner, tmp_path, budget=Budget(trials=5), resume=False)
    assert len(measured(afresh.journal)) in (5, 6)  # with the default, if it was not among them


def test_a_journal_that_another_run_is_writing_is_not_put_aside(runner, tmp_path):
    first = tuned(runner, tmp_path, budget=Budget(trials=3))
    path = first.journal
    with Journal(path), pytest.raises(StoreError, match=r"one writer, got .*, which another run"):
        tuned(runner, tmp_path, budget=Budget(trials=3), resume=False)
    assert list(path.parent.iterdir()) == [path]


def test_what_is_refused_leaves_the_journals_as_they_are(runner, tmp_path):
    path = tuned(runner, tmp_path, budget=Budget(trials=3)).journal
    before = path.read_bytes()
    for wrong in ({"budget": 5}, {"searcher": "nonsense"}, {"options": {"nonsense": 1}}):
        with pytest.raises(UsageError):
            tuned(runner, tmp_path, **({"budget": Budget(trials=3), "resume": False} | wrong))
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == before


def test_measurements_that_another_run_left_under_way_are_none_of_this_one(runner, tmp_path):
    clean = tuned(runner, tmp_path / "clean", budget=Budget(trials=12))
    wanted = [Proposal(n, t.config, cutoff_us=1e-3) for n, t in enumerate(clean.history)]
    runner.submit(wanted)
    again = tuned(runner, tmp_path / "again", budget=Budget(trials=12))
    assert not any(t.status == "censored" for t in again.history)
    assert not runner.pending


def test_an_edited_kernel_of_the_users_begins_a_journal_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    text = Path(fakes.__file__).read_text()

    def run(edited="", **changes):
        source = tmp_path / f"own{len(edited)}.py"
        source.write_text(text + edited)
        kernel = replace(fakes.CALM, device=str(source), **changes)
        how = {"kernel": kernel, "services": fakes.SERVICES, "compile_workers": 2}
        with GpuRunner(fakes.WORKLOAD, **how) as own:
            found = tuned(own, tmp_path, budget=Budget(trials=5))
            return found.journal, own.tally.timed

    first, timed = run()
    assert timed
    parameters = [*fakes.CALM_SPACE.parameters[:2], Integer("PROGRAMS", 1, 3)]
    larger = ParameterSpace(parameters, default=fakes.CALM_SPACE.default)
    others = [run("# edited\n"), run(atol=1.0), run(rtol=1.0), run(space=lambda _: larger)]
    assert len({first, *(journal for journal, _ in others)}) == 5
    assert all(fresh for _, fresh in others), "no status of another kernel answers for it"
    assert run() == (first, 0), "what was measured of the first one is known still"


def test_what_is_known_beforehand_is_tried_first_and_makes_another_search(runner, tmp_path):
    best = Config(runner.space.default, VARIANT=17)
    elsewhere = [(best, 1.0), *((Config(best, VARIANT=n), 5.0 + n) for n in range(10))]
    prior = run_prior({("fake/32", "fake"): elsewhere}, workload="fake/16", gpu="fake")
    how = {"searcher": "scout", "seed": 0, "budget": Budget(trials=12)}
    warm = tuned(runner, tmp_path, prior=prior, **how)
    cold = tuned(runner, tmp_path, **how)
    assert best in [trial.config for trial in warm.history][:3]
    assert "-known" in warm.journal.stem
    assert warm.journal != cold.journal
    assert "fake/32 on fake" in warm.journal.read_text()
    again = tuned(runner, tmp_path, prior=prior, **how)
    assert again.journal == warm.journal
    assert {t.config for t in again.history} == {t.config for t in warm.history}


def test_priors_with_other_readings_are_other_searches(runner, tmp_path):
    def journal(us, provenance):
        read = (PriorReading(runner.space.default, us, "fake/32", "fake"),)
        prior = Prior(read, provenance) if us else None
        return tuned(runner, tmp_path, prior=prior, budget=Budget(trials=2)).journal

    told = [(1.0, ""), (2.0, ""), (1.0, "a run"), (2.0, "a run"), (None, "")]
    assert len({journal(*each) for each in told}) == len(told)


@pytest.mark.parametrize("searcher", ["lfbo_tree", "max_q"])
def test_a_search_with_every_option_told_has_a_journal(runner, tmp_path, searcher):
    options = asdict(get_searcher(searcher).Options())
    made = partial(tuned, runner, tmp_path, searcher=searcher, budget=Budget(trials=3))
    first, other = made(options=options), made(options=options, seed=4)
    again, afresh = made(options=options), made(options=options, resume=False)
    assert first.journal == again.journal == afresh.journal != other.journal
    assert searcher in first.journal.stem


def test_an_option_more_is_another_journal_however_long_its_name(tmp_path):
    facts = {"workload": "k/1", "gpu": "h200", "searcher": "long", "seed": 0}
    many = {f"option_with_a_long_name_{n}": n for n in range(9)}
    paths = {journal_path(tmp_path, facts | {"options": many | {"last": n}}) for n in range(3)}
    assert len(paths) == 3
    assert all(len(path.name) < 100 for path in paths)


def test_the_command_tells_what_it_knows_and_searches_cold_where_that_is_nothing(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    opened = partial(GpuRunner, kernel=fakes.CALM, services=fakes.SERVICES, compile_workers=2)
    monkeypatch.setattr(tune_command, "GpuRunner", lambda _, **__: opened(fakes.WORKLOAD))
    known = run_prior(
        {("fake/32", "fake"): [(fakes.CALM_SPACE.default, 2.0)]}, workload="fake/16", gpu="fake"
    )
    parser = argparse.ArgumentParser()
    tune_command.add_arguments(parser)
    asked = ["fake/16", "--searcher", "scout", "--trials", "4", "--directory", str(tmp_path)]
    assert tune_command.run(parser.parse_args([*asked, "--known", "nearby"])) == 0
    assert "nothing is known of other shapes of fake" in capsys.readouterr().out
    monkeypatch.setattr(transfer, "known_prior", lambda *_, **__: known)
    assert tune_command.run(parser.parse_args([*asked, "--known", "shapes"])) == 0
    assert "knows 1 readings of fake/32 on fake" in capsys.readouterr().out
    assert tune_command.run(parser.parse_args(asked)) == 0
    assert "know" not in capsys.readouterr().out


def test_the_command_without_a_gpu_is_one_plain_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    services = fakes.SERVICES | {"timing": f"{fakes.__name__}:no_gpu"}
    opened = partial(GpuRunner, kernel=fakes.CALM, services=services, compile_workers=2)
    monkeypatch.setattr(tune_command, "GpuRunner", lambda _, **__: opened(fakes.WORKLOAD))
    assert cli.main(["tune", "fake/16"]) == 2
    assert "OSError: no GPU 0 here; see kt-lab doctor" in capsys.readouterr().err
    monkeypatch.setattr(tune_command, "GpuRunner", GpuRunner)
    monkeypatch.setattr(facts, "gpu_arch", lambda _: None)
    monkeypatch.setattr(facts, "_counted", lambda: 0)
    assert cli.main(["tune", "softmax/4096x640"]) == 2
    told = capsys.readouterr().err
    assert "needs a GPU, got no GPU with index 0; " in told
    assert "kt-lab compare" in told
    assert "Error" not in told


def test_ctrl_c_keeps_and_stores_the_best_so_far(runner, tmp_path):
    def interrupt(trial):
        if trial.number == 9:
            os.kill(os.getpid(), signal.SIGINT)

    result = tuned(runner, tmp_path, on_trial=interrupt)
    assert result.interrupted
    assert 9 <= len(result.history) <= 11
    assert result.path.exists()
    resumed = tuned(runner, tmp_path)
    assert not resumed.interrupted
    assert resumed.history.trials_spent == 40
    configs = measured(resumed.journal)
    assert len(configs) == len(set(configs))


def test_a_second_run_on_an_open_runner_has_a_clock_of_its_own(runner, tmp_path):
    first = tuned(runner, tmp_path)
    second = tuned(runner, tmp_path, seed=4)
    assert first.history[0].machine_s >= first.startup_s
    assert second.elapsed_s <= runner.now - first.elapsed_s
    assert runner.on_measurement is None


def test_a_winner_whose_kernel_is_not_registered_is_not_counted_as_lost(tmp_path, capsys):
    save_winner(make(kernel="sigmoid"), tmp_path)
    assert cli.main(["recheck", "--directory", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "sigmoid/4096x640: not checked, its kernel is not registered" in said
    assert "captures it with --from" in said
    assert "0 of 0 winners hold, 1 not checked" in said


def test_recheck_wants_a_winner_that_is_stored(tmp_path):
    args = type(
        "Args",
        (),
        {"source": None, "workloads": ["softmax/9"], "gpu": None, "directory": tmp_path},
    )
    with pytest.raises(StoreError, match="softmax/9"):
        recheck_command.run(args)
    args.workloads = []
    with pytest.raises(StoreError, match="got none; stored: none; kt-lab tune stores"):
        recheck_command.run(args)
    save_winner(make(), directory=tmp_path)
    args.gpu = "h999"
    with pytest.raises(StoreError, match=r"got none of h999; stored: softmax/.* \(h100\);"):
        recheck_command.run(args)


def test_the_exact_upper_limit():
    assert upper_limit(0, 59) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert upper_limit(3, 3) == 1.0


def test_recheck_reports_a_winner_that_holds_and_one_that_does_not(
    monkeypatch, runner, tmp_path, capsys
):
    slow = runner.space.config(runner.space.row({"FAULT": "none", "VARIANT": 9, "PROGRAMS": 2}))
    monkeypatch.setattr(runner.space, "default", slow)
    winner = tuned(runner, tmp_path).winner
    monkeypatch.setattr(recheck_command, "REGISTRY", {"fake": "fake"})
    monkeypatch.setattr(recheck_command, "get_kernel", lambda _: fakes.CALM)
    opened = []

    def opens(*_, **how):
        opened.append(how)
        return nullcontext(runner)

    monkeypatch.setattr(recheck_command, "GpuRunner", opens)
    places = {"gpu": None, "directory": tmp_path / "winners", "device": 0, "wait": 0.0}
    args = argparse.Namespace(workloads=["fake/16"], source=None, **places)
    assert recheck_command.run(args) == 0
    assert "1 of 1 winners hold" in capsys.readouterr().out
    # What was stored as the winner gives wrong results now: it must lose to the default.
    broken = dict(winner.config) | {"FAULT": "wrong_result"}
    save_winner(replace(winner, config=Config(broken)), tmp_path / "winners")
    assert recheck_command.run(args) == 1
    assert "0 of 1 winners hold" in capsys.readouterr().out
    # What was found by another timing protocol is judged by that one.
    for name in (GRAPH_L2.name, "stopwatch"):
        save_winner(replace(winner, protocol=name), tmp_path / "winners")
        recheck_command.run(args)
    assert [how["protocol"] for how in opened] == ["events", "events", "graph", "events"]
    assert "and was stopwatch when this winner was found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "budget"),
    [
        ("", Budget(trials=200)),
        ("--seconds 600", Budget(seconds=600.0)),
        ("--trials 30", Budget(trials=30)),
        ("--trials 30 --seconds 600", Budget(trials=30, seconds=600.0)),
    ],
)
def test_the_command_stops_at_the_limits_that_it_is_given(words, budget):
    parser = argparse.ArgumentParser()
    tune_command.add_arguments(parser)
    assert tune_command.budget_of(parser.parse_args(["fake/16", *words.split()])) == budget

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.joint import JointRunner, joint_space
from kt_lab.kernels import get_workload
from kt_lab.keys import Key
from kt_lab.landscape import load_landscape
from kt_lab.many import portfolio, tune_many
from kt_lab.parameters import Choice, Integer, Ordered, PowerOfTwo
from kt_lab.runners.replay import ReplayRunner
from kt_lab.space import Constraint, ParameterSpace
from kt_lab.stats.keyed import crossings, key_values
from kt_lab.trial import Config, Proposal
from kt_lab.workload import Workload
from tests.runners.tables import SPACE, config
from tests.stats.exact_landscapes import RISING, exact

FLAT = np.full(16, 10.0)


def board(**latency):
    """10 us everywhere but for some configs: at5=5.0."""
    out = FLAT.copy()
    for name, value in latency.items():
        out[int(name.removeprefix("at"))] = value
    return out


# Config 5 is best of all for two, 10 for the third; 15 is a compromise.
BOARDS = {
    "a": board(at5=5.0, at15=6.0),
    "b": board(at5=5.0, at15=6.0),
    "c": board(at10=5.0, at15=6.0, at5=20.0),
}


def landscapes(boards=BOARDS):
    return [exact(b, n, M=16 * (i + 1), N=8) for i, (n, b) in enumerate(boards.items())]


# -- from landscapes ------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["geomean", "minimax"])
def test_one_config_for_all_is_the_compromise_and_two_cost_nothing(objective):
    found = portfolio(landscapes(), k=1, objective=objective)
    assert set(found.dispatch.values()) == {config(15)}
    assert found.table["regret"].tolist() == pytest.approx([0.2] * 6)
    assert found.table["default_regret"].tolist() == pytest.approx([1.0] * 6)
    found = portfolio(landscapes(), k=2, objective=objective)
    assert list(found.dispatch.values()) == [config(5), config(5), config(10)]
    assert found.table["regret"].eq(0).all()
    assert not found.table["default"].any()


def test_workloads_with_one_key_value_share_a_config():
    made = landscapes()
    values = key_values(made, Key(("N",)))
    found = portfolio(crossings(made), k=3, values=values)
    assert found.dispatch == {(8,): config(15)}


def test_a_default_that_nothing_beats_stays_and_a_failure_falls_back_to_it():
    boards = {"a": board(at5=5.0), "b": FLAT, "c": board(at5=np.nan)}
    found = portfolio(landscapes(boards), k=1)
    assert list(found.dispatch) == ["a on test"]
    assert found.table.groupby("workload")["default"].all().to_dict() == {
        "a on test": False,
        "b on test": True,
        "c on test": True,
    }
    alone = portfolio(landscapes(boards), k=1, fallback=False)
    assert set(alone.dispatch.values()) == {config(0)}, "the first that runs on all"


def test_a_portfolio_is_judged_by_what_it_did_not_read():
    lucky = [exact(board(at3=1.0), "a", other=board(at3=12.0, at4=9.0))]
    table = portfolio(lucky, k=1).table.set_index("visit")
    assert table["config"].to_dict() == {0: config(3), 1: config(4)}
    assert table["regret"].eq(0).all(), "tuning alone was as lucky"
    assert table["optimum_regret"].tolist() == pytest.approx([12 / 6.5 - 1, 10 / 6.5 - 1])


def test_recorded_shapes_lose_little_by_three_configs_and_nothing_by_four():
    found = [
        load_landscape(f"embedding_backward/{n}", gpu="h200")
        for n in ("128256x8192x2048", "151936x4096x896", "30522x512x768", "50257x16384x768")
    ]
    table = crossings(found)
    cost = {k: portfolio(table, k=k).table["regret"].mean() for k in (1, 3, 4)}
    assert cost[4] == 0
    assert cost[3] < 0.01 < cost[1] < 0.03


def test_a_workload_on_which_nothing_runs_has_its_rows_too():
    table = crossings(landscapes())
    table.loc[table["workload"] == "c on test", ["latency_us", "judged_us"]] = np.nan
    found = portfolio(table, k=1)
    dead = found.table[found.table["workload"] == "c on test"]
    assert list(dead["status"]) == ["failed"] * len(dead)
    assert len(dead) == found.table["visit"].nunique() > 0
    assert np.isinf(dead["regret"]).all()


def test_what_a_portfolio_lacks_is_told():
    with pytest.raises(UsageError, match="landscapes of one kernel, got none"):
        portfolio([], k=1)
    made = landscapes()
    with pytest.raises(UsageError, match=r"got none for \['b on test', 'c on test'\]"):
        portfolio(made, k=1, values={"a on test": 1})


# -- by a search ----------------------------------------------------------------------------------


def tuned(boards=BOARDS, **how):
    made = {n: x for n, x in zip(boards, landscapes(boards), strict=True)}
    works = [Workload("toy", n, x.manifest["extents"], "float16") for n, x in made.items()]
    given = {"searcher": "random", "budget": Budget(trials=48), "key": Key(("M",))} | how
    return tune_many(
        works,
        runner_for=lambda w: ReplayRunner(made[w.name], seed=0),
        space_of=lambda w: made[w.name].space,
        **given,
    )


@pytest.mark.parametrize("objective", ["geomean", "minimax"])
def test_a_search_over_everything_finds_what_the_landscapes_know(objective):
    one = tuned(objective=objective, budget=Budget(trials=16))
    assert one.dispatch.configs == dict.fromkeys([(16,), (32,), (48,)], config(15))
    assert one.costs == pytest.approx([0.6] * 3)
    two = tuned(objective=objective, k=2)
    assert two.dispatch.configs == {(16,): config(5), (32,): config(5), (48,): config(10)}
    assert [h.trials_spent for h in two.histories] == [16, 16]
    assert two.machine_s > one.machine_s > 0
    shared = tuned(objective=objective, k=2, key=Key(("N",)))
    assert shared.dispatch.configs == {(8,): config(15)}


def test_nothing_is_dispatched_where_nothing_beats_the_defaults():
    found = tuned({"a": FLAT, "b": board(at5=12.0)}, k=2)
    assert (found.configs, dict(found.dispatch.configs)) == ((), {})
    assert found.costs.tolist() == [1, 1]


def test_the_budget_is_shared_by_the_searches():
    found = tuned(k=3, budget=Budget(trials=10))
    assert [h.trials_spent for h in found.histories] == [3, 3, 4]
    seconds = tuned(budget=Budget(trials=16)).machine_s
    enough, short = (tuned(budget=Budget(seconds=f * seconds)) for f in (1.01, 0.9))
    assert [len(found.histories[0]) for found in (enough, short)] == [16, 0]
    assert (len(short.readings), short.configs) == (0, ())  # what ended too late does not count
    for k, share in ((2, 1.8), (3, 2.9)):
        late = tuned(k=k, budget=Budget(seconds=share * seconds))
        told = [t.config for history in late.histories for t in history]
        assert set(late.readings) == set(told)
    for bad in ({"k": 0}, {"objective": "mean"}):
        with pytest.raises(UsageError):
            tuned(**bad)


def test_the_same_seed_searches_alike():
    runs = [tuned(searcher="pattern", budget=Budget(trials=8), seed=s) for s in (1, 1)]
    assert runs[0].dispatch == runs[1].dispatch
    first, again = ([(t.config, t.measurement) for t in run.histories[0]] for run in runs)
    assert first == again


def joint(boards, objective="geomean"):
    made = landscapes(boards)
    works = [Workload("toy", x.workload, x.manifest["extents"], "float16") for x in made]
    by = dict(zip(works, made, strict=True))
    return JointRunner(
        works,
        spaces=[x.space for x in made],
        runner_for=lambda w: ReplayRunner(by[w], seed=0),
        objective=objective,
    )


def read(runner, *at):
    runner.submit([Proposal(i, config(n)) for i, n in enumerate(at)])
    found = [runner.next()[1] for _ in at]
    assert runner.pending == 0
    return found


def test_a_reading_is_what_a_config_adds_to_the_defaults():
    runner = joint(
        {"a": board(at5=5.0, at6=20.0, at7=40.0), "b": board(at5=20.0, at6=30.0, at7=np.nan)}
    )
    assert runner.default_us.tolist() == [10, 10]
    five, six, seven = read(runner, 5, 6, 7)
    assert five.latency_us == pytest.approx(10 * np.sqrt(0.5)), "b keeps its default"
    assert six.latency_us == pytest.approx(20), "worse everywhere, by a factor of 2 at least"
    assert seven.latency_us == pytest.approx(40)
    assert five.info["costs"] == [0.5, 2.0]
    assert seven.info["costs"] == [4.0, None]
    runner.base = np.array([0.5, 1.0])
    assert read(runner, 5)[0].latency_us == pytest.approx(10 * np.sqrt(0.5)), "adds nothing"


def test_a_group_does_not_outvote_a_workload_on_which_its_config_fails():
    fast = {f"g{i}": board(at5=2.0) for i in range(20)}
    one = tuned(fast | {"bad": board(at5=np.nan)}, key=Key(("N",)), budget=Budget(trials=16))
    assert dict(one.dispatch.configs) == {}, "config 5 fails on one that shares the key"
    apart = tuned(fast | {"bad": board(at5=np.nan)}, budget=Budget(trials=16))
    assert list(apart.dispatch.configs.values()) == [config(5)] * 20


def test_what_a_workload_does_not_hold_is_a_miss_there_and_costs_its_default():
    made = landscapes({f"g{i}": board(at5=2.0) for i in range(20)})
    works = [Workload("toy", x.workload, x.manifest["extents"], "float16") for x in made]
    by = dict(zip(works, made, strict=True))
    part = made[-1].space.only(made[-1].space.rows([config(0), config(1)]))
    spaces = {w: x.space for w, x in by.items()} | {works[-1]: part}
    found = tune_many(
        works,
        searcher="random",
        budget=Budget(trials=16),
        key=Key(("N",)),
        runner_for=lambda w: ReplayRunner(by[w], seed=0),
        space_of=spaces.__getitem__,
    )
    assert list(found.dispatch.configs.values()) == [config(5)]
    assert found.costs.tolist() == [0.2] * 19 + [1.0]
    last = works[-1]
    assert found.dispatch.config(last, config(0), space=spaces[last]) == config(0)


def test_the_worst_case_is_read_as_nearly_the_largest():
    runner = joint({"a": board(at5=5.0), "b": board(at5=8.0)}, "minimax")
    (five,) = read(runner, 5)
    assert five.latency_us == pytest.approx(8 * 0.5 ** (1 / 16), rel=1e-3)


def test_what_runs_nowhere_is_a_failure_and_a_default_must_run():
    runner = joint({"a": board(at5=np.nan), "b": board(at5=np.nan)})
    assert read(runner, 5)[0].status == "compile_error"
    runner.submit([Proposal(0, Config(BLOCK=48, num_stages=1))])
    assert runner.next()[1].status == "invalid"
    with pytest.raises(UsageError, match="the default of every workload must run, got compile"):
        joint({"a": board(at0=np.nan)})


class Live(ReplayRunner):
    """A live runner that notes when it is opened and closed."""

    live = True

    def __init__(self, landscape, log):
        super().__init__(landscape, seed=0, compile_lanes=2)
        self.name, self.log = landscape.workload, log
        log.append(f"open {self.name}")

    def close(self):
        self.log.append(f"close {self.name}")


class Turning(Live):
    """A live runner that can go on with another workload."""

    def turn_to(self, workload, *, space):  # noqa: ARG002 - a landscape has its own
        self.name = f"toy/{workload.name}"
        self.log.append(f"turn to {self.name}")
        self.__dict__.update(vars(ReplayRunner(self.boards[self.name], seed=0)))


@pytest.mark.parametrize("kind", [Live, Turning])
def test_a_live_runner_turns_to_the_next_workload_or_is_closed_for_it(kind):
    """The defaults, then a batch: one is open at a time, and the one that is open goes first."""
    log, made = [], {x.workload: x for x in landscapes()}
    Turning.boards = made
    works = [Workload("toy", n, made[f"toy/{n}"].manifest["extents"], "float16") for n in "abc"]
    found = tune_many(
        works,
        searcher="random",
        budget=Budget(trials=16),
        runner_for=lambda w: kind(made[f"toy/{w.name}"], log),
        space_of=lambda w: made[f"toy/{w.name}"].space,
    )
    assert found.costs == pytest.approx([0.6] * 3), "config 15, read on every workload"
    if kind is Turning:
        assert log == ["open toy/a", *(f"turn to toy/{n}" for n in "bcab"), "close toy/b"]
    else:
        assert log == [f"{what} toy/{n}" for n in "abcab" for what in ("open", "close")]


def test_a_runner_that_fails_at_the_start_holds_no_gpu_any_more():
    """Ctrl-C while the defaults are measured: nobody else has the runner to close it."""
    log = []

    class Interrupted(ReplayRunner):
        live = True

        def next(self):
            raise KeyboardInterrupt

        def close(self):
            log.append("closed")

    landscape = landscapes()[0]
    name = landscape.workload.partition("/")[2]
    with pytest.raises(KeyboardInterrupt):
        tune_many(
            [Workload("toy", name, landscape.manifest["extents"], "float16")],
            searcher="random",
            budget=Budget(trials=4),
            runner_for=lambda _: Interrupted(landscape, seed=0),
            space_of=lambda _: landscape.space,
        )
    assert log == ["closed"]


# -- the joint space ------------------------------------------------------------------------------


def test_a_joint_space_holds_what_any_of_its_spaces_holds():
    small = ParameterSpace(
        [
            PowerOfTwo("BLOCK", 16, 64),
            Choice("ORDER", ("a", "b")),
            Integer("num_warps", 1, 3),
        ],
        constraints=[Constraint("few", "BLOCK < N", "few")],
        default={"BLOCK": 16, "ORDER": "b", "num_warps": 1},
        constants={"N": 64},
    )
    large = ParameterSpace(
        [PowerOfTwo("BLOCK", 64, 256), Integer("num_warps", 8, 8), PowerOfTwo("SPLIT", 1, 2)],
        default={"BLOCK": 64, "num_warps": 8, "SPLIT": 2},
    )
    found = joint_space([small, large])
    assert found.size == small.size + large.size == 12 + 6
    assert found.default == {"BLOCK": 16, "num_warps": 1, "SPLIT": 2, "ORDER": "b"}
    by = {p.name: p for p in found.parameters}
    assert by["BLOCK"] == PowerOfTwo("BLOCK", 16, 256)
    assert by["num_warps"] == Ordered("num_warps", (1, 2, 3, 8))
    assert Config(BLOCK=256, num_warps=8, SPLIT=1, ORDER="b") in found.configs(found.enumerate())
    assert joint_space([SPACE, SPACE]).fingerprint == SPACE.fingerprint


def test_rising_boards_need_no_other_config():
    assert tuned({"a": RISING, "b": RISING}).costs.tolist() == [1, 1]


def test_more_configs_than_trials_are_refused_before_anything_is_opened():
    work = get_workload("rms_norm/8192x4096")
    with pytest.raises(UsageError, match="k=3 and trials=2"):
        tune_many([work], k=3, budget=Budget(trials=2), runner_for=None)

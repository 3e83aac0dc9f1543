"""Deep Q-learners: exact values, the game they play, what they promise, and stored policies."""

import functools
import subprocess
import sys

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.errors import StoreError, UsageError
from kt_lab.programs.operators import get_operator
from kt_lab.programs.space import ScheduleSpace
from kt_lab.search import LEARNERS, get_searcher, make_searcher, searchers
from kt_lab.search.conformance import CHECKS, check_searcher
from kt_lab.search.conformance_cases import bowl, drive, small_space
from kt_lab.search.deep_q.network import MoveNetwork, Offer, frozen_values, pairs
from kt_lab.search.deep_q.policy import Policy
from kt_lab.search.deep_q.replay import EpisodeLearner
from kt_lab.search.max_reward import Episode, MaxQLearner, Table, Transition
from kt_lab.trial import Measurement
from tests.search.words import Schedules, Words

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.numpy")

SMALL = {"hidden": 8, "layers": 1, "batch": 8, "updates": 1}
CHAIN = (1.0, 0.0, 0.0, 5.0, 0.0)  # rewards of the moves out of 0, 1, .., 4


def space(longest=3):
    operator = get_operator("row_sum")
    return ScheduleSpace(operator.program(operator.tiny), longest=longest)


@functools.cache
def shared():
    return space(longest=2)


def network(width, seed=0, hidden=32):
    rng = np.random.default_rng(seed)
    plain = np.zeros(width), np.ones(width)
    return MoveNetwork(*plain, hidden=hidden, layers=2, rate=3e-3, rng=rng)


def made_up(of):
    """Latencies that follow from the text: vectors and streamed stores are good together only."""

    def evaluate(config):
        text = of.key(config)
        vector, streamed, tail = ":v" in text, " nt" in text, text.count("|") / 8
        speed = 1 + 0.3 * vector - 0.5 * streamed + 4 * (vector and streamed) + tail
        return Measurement("ok", (100.0 / speed,))

    return evaluate


# -- promises -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "where"), [("max_q_dqn", small_space), ("dqn", Schedules), ("max_q_dqn", shared)]
)
def test_learners_keep_every_promise(name, where):
    assert len(check_searcher(get_searcher(name), space=where, **SMALL)) == len(CHECKS)


def test_max_q_keeps_its_promises_where_schedules_share_programs():
    assert len(check_searcher(get_searcher("max_q"), space=Schedules)) == len(CHECKS)


def test_learners_are_made_by_name_and_leave_torch_alone_until_they_learn():
    assert not set(LEARNERS) & set(searchers())
    code = (
        "import sys, kt_lab; from kt_lab.search import make_searcher\n"
        "from kt_lab.search.conformance_cases import small_space\n"
        "make_searcher('max_q_dqn', small_space(), seed=0).ask(1)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_torchs_global_state_and_threads_are_left_alone():
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    drive(make_searcher("dqn", small_space(), seed=0, **SMALL), bowl(small_space()), trials=20)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_a_missing_torch_is_told_with_the_next_step(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"need the package torch.*\[programs\]"):
        network(2)


# -- exact values ---------------------------------------------------------------------------------


def chain_moves(steps=1, rule="max"):
    """The transitions of one walk down the chain; a move is known by both of its ends."""
    eye, episode, found = np.eye(6), Episode(n=steps, gamma=0.9, rule=rule), []
    for at, reward in enumerate(CHAIN):
        last = at + 1 == len(CHAIN)
        after = eye[at + 2][None] if not last else np.zeros((0, 6))
        found += episode.step(pairs(eye[at], eye[at + 1][None], 0.0)[0], reward,
                              Offer(eye[at + 1], after, 0.0))  # fmt: skip
    return found + episode.end()


@pytest.mark.parametrize(("rule", "value"), [("max", 3.645), ("sum", 4.645)])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_chain_has_the_exact_value_of_its_rule(rule, value, steps):
    moves = chain_moves(steps, rule)
    more = {"rng": np.random.default_rng(0), "rule": rule, "margin": 10.0}
    exact = MaxQLearner(Table(), rate=1, **more)
    exact.remember(moves)
    for _ in range(6):
        exact.learn()
    first = moves[0].x[None]
    assert exact.values(first)[0] == pytest.approx(value, abs=1e-12)

    deep = EpisodeLearner(network(6), best_share=0.0, rate=0.1, batch=5, **more)
    deep.remember(moves)
    for _ in range(600):
        deep.learn()
    assert deep.targets(moves)[0] == pytest.approx(value, abs=0.06)
    assert deep.values(first)[0] == pytest.approx(value, abs=0.06)


def value_iteration(rewards, near, gamma):
    """V*(s): the best discounted reward of the moves out of every state."""
    values = dict.fromkeys(near, 0.0)
    for _ in near:
        for state, after in near.items():
            best = (max(rewards[c], gamma * values[c]) for c in after)
            values[state] = max(best, default=0.0)
    return values


def test_a_small_kernel_is_learned_to_the_exact_optimum():
    of, gamma = ScheduleSpace(get_operator("multiply").program({"elements": 4}), longest=3), 0.9
    searcher = make_searcher(
        "max_q_dqn", of, seed=1, budget=Budget(trials=300), gamma=gamma, moves=4, actors=1,
        hidden=64, layers=2, batch=32, updates=1, target_rate=0.05, epsilon_share=1.0,
    )  # fmt: skip
    evaluate = made_up(of)
    proposals = drive(searcher, evaluate, trials=300)
    states = {c: searcher._offer(c)[0] for c in searcher._values}
    assert 20 < len(states) <= 200
    assert len({of.key(c) for c in states}) == len(states)  # every program, each once
    assert {c for after in states.values() for c in after} <= set(states)
    assert len(proposals) == len(states)
    rewards = {c: searcher._reward(searcher._values[c]) for c in states}
    exact = value_iteration(rewards, states, gamma)

    table = MaxQLearner(Table(), rng=np.random.default_rng(0), rate=1, batch=10**4)
    moves = {
        (s, a): searcher._features([s, a]).ravel() for s, near in states.items() for a in near
    }
    every = [
        Transition(x, rewards[a], gamma, np.stack([moves[a, b] for b in states[a]]))
        for (_, a), x in moves.items()
    ]
    table.remember(every)
    for _ in range(12):
        table.learn()
    start = of.default
    learned = table.values(np.stack([moves[start, a] for a in states[start]])).max()
    assert learned == pytest.approx(exact[start], abs=1e-9)

    for move in every:  # it played some of the moves only; now it is told all, early in a game
        x, choices = np.append(move.x, 0.0), np.pad(move.choices, ((0, 0), (0, 1)))
        searcher.learner.remember([Transition(x, move.best, gamma, choices)])
    for _ in range(250):
        searcher.learner.learn()
    at, best = start, 0.0
    for step in range(4):
        near, features = searcher._offer(at)
        [state] = searcher._features([at])
        q = searcher.learner.model.predict(pairs(state, features, 0.0))
        if step and q.max() < rewards[at]:
            break
        at = near[int(np.argmax(q))]
        best = max(best, gamma**step * rewards[at])
    assert best == pytest.approx(exact[start], abs=1e-9)


# -- the game -------------------------------------------------------------------------------------


def test_random_moves_are_drawn_by_their_kind_first():
    of = ScheduleSpace(get_operator("softmax").program({"rows": 64, "cols": 64}), longest=4)
    searcher = make_searcher("max_q_dqn", of, seed=0)
    near = of.neighbours(of.default)
    kinds = [of.kind(of.default, c) for c in near]
    rng = np.random.default_rng(0)
    drawn = [kinds[searcher._drawn(of.default, near, list(range(len(near))), rng)]
             for _ in range(400)]  # fmt: skip
    even = 400 / len(set(kinds))
    assert kinds.count("split") / len(kinds) > 2 / len(set(kinds))
    assert drawn.count("split") < 1.6 * even
    assert of.kind(near[0], of.default) == "undo"


def test_an_episode_passes_known_configs_but_never_one_twice_and_ends_at_failures():
    def evaluate(config):
        if config["word"].endswith("c"):
            return Measurement("compile_error", error="c")
        return Measurement("ok", (1.0 + config["word"].count("a"),))

    class Spied(get_searcher("max_q_dqn")):
        episodes = ()

        def _play(self, config, rng):
            self.episodes = (*self.episodes, [config])
            yield from super()._play(config, rng)

        def _choose_from(self, config, moved, seen, rng):
            found = super()._choose_from(config, moved, seen, rng)
            self.episodes[-1].append(found)
            return found

    searcher = Spied(Words(), seed=0, actors=1, start="default", moves=5, **SMALL)
    proposals = drive(searcher, evaluate, trials=60, batch=1)
    assert len(proposals) == 60
    played = [[c for c in episode if c is not None] for episode in searcher.episodes]
    assert all(len(set(episode)) == len(episode) <= 6 for episode in played)
    assert not any(c["word"].endswith("c") for episode in played for c in episode[:-1])
    known = [c for episode in played for c in episode]
    assert len(known) > len(set(known)) + len(played)  # through known configs too


def test_values_are_within_the_ceiling_and_best_episodes_are_replayed_more():
    learner = EpisodeLearner(network(1), best_share=0.5, rng=np.random.default_rng(0), batch=8)
    nothing = np.zeros((0, 3))
    moves = [Transition(np.full(3, n), float(n), 0.9, nothing) for n in range(40)]
    for move in moves:
        learner.remember([move])
        learner.ended([move], move.best)
    seen = []
    learner.update = seen.append
    for _ in range(50):
        learner.learn()
    counts = [sum(move in batch for batch in seen) for move in moves]
    assert min(counts[-2:]) > 2 * max(counts[:-2])
    assert learner.ceiling == pytest.approx(1.1 * 39)
    learner.model.predict = lambda x: np.full(len(x), 1e3)
    assert learner.values(np.zeros((2, 3))).tolist() == [learner.ceiling] * 2


def test_episodes_are_ranked_among_those_of_their_workload():
    learner = EpisodeLearner(network(1), best_share=0.5, rng=np.random.default_rng(0), batch=8)
    nothing, seen = np.zeros((0, 3)), []
    moves = [Transition(np.full(3, n), float(n), 0.9, nothing) for n in range(40)]
    for move in moves:  # those of the matrix product are a hundred times as fast as at its start
        workload = ("softmax", "matmul")[int(move.best) % 2]
        learner.remember([move])
        learner.ended([move], move.best * 100 ** (workload == "matmul"), workload=workload)
    learner.update = seen.append
    for _ in range(50):
        learner.learn()
    counts = [sum(move in batch for batch in seen) for move in moves]
    assert min(counts[-2:]) > 2 * max(counts[:-2])  # the best of either


def test_a_learner_ranks_by_the_space_that_an_episode_was_played_in():
    searcher = make_searcher("max_q_dqn", Schedules(), seed=0, **SMALL)
    drive(searcher, bowl(Schedules()), trials=40)
    assert set(searcher.learner._best) == {Schedules().fingerprint}


# -- policies -------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    of = Schedules()
    searcher = make_searcher("max_q_dqn", of, seed=0, **SMALL)
    drive(searcher, bowl(of), trials=40)
    path = tmp_path / "policy.safetensors"
    searcher.trained(operators=["words"], seed=0).save(path)
    return searcher, path


def test_a_policy_is_stored_with_its_facts_and_plays_frozen(stored):
    searcher, path = stored
    policy = Policy.load(path)
    assert policy.facts["operators"] == ["words"]
    assert (policy.facts["encoder"], policy.facts["width"]) == ("", 4)
    x = np.random.default_rng(0).normal(size=(9, 9))
    again = MoveNetwork.of(policy.weights, rate=1e-3)
    np.testing.assert_array_equal(again.predict(x), searcher.learner.model.predict(x))
    np.testing.assert_allclose(frozen_values(policy.weights, x), again.predict(x), rtol=1e-4)

    of = Schedules()
    frozen = make_searcher(
        "max_q_dqn", of, seed=1, policy=str(path), learning=False, epsilon_end=0.0, **SMALL
    )
    drive(frozen, bowl(of), trials=20)
    for name, weight in frozen.learner.model.weights().items():
        np.testing.assert_array_equal(weight, policy.weights[name])
    onward = make_searcher("max_q_dqn", of, seed=1, policy=str(path), **SMALL)
    drive(onward, bowl(of), trials=20)
    changed = onward.learner.model.weights()
    assert any(not np.array_equal(changed[n], w) for n, w in policy.weights.items())


def test_policies_that_do_not_fit_are_refused(stored, tmp_path):
    _, path = stored
    for options, law in (
        ({"gamma": 0.5}, "gamma must be 0.98, got gamma=0.5"),
        ({"rule": "sum"}, "rule must be 'max'"),
    ):
        with pytest.raises(UsageError, match=law):
            make_searcher("max_q_dqn", Schedules(), seed=0, policy=str(path), **options)
    with pytest.raises(UsageError, match="width must be 4"):
        make_searcher("max_q_dqn", small_space(), seed=0, policy=str(path))
    with pytest.raises(UsageError, match="encoder must be ''"):
        make_searcher("max_q_dqn", shared(), seed=0, policy=str(path))
    with pytest.raises(StoreError, match="whole file"):
        make_searcher("max_q_dqn", Schedules(), seed=0, policy=str(tmp_path / "none"))


def test_damaged_and_foreign_files_are_refused_whatever_is_wrong(stored, tmp_path):
    _, path = stored
    whole, other = path.read_bytes(), tmp_path / "other.safetensors"
    policy = Policy.load(path)
    rng = np.random.default_rng(0)
    damaged = [whole[:n] for n in (0, 7, 100, len(whole) - 4)] + [b"\x80\x04\x95pickle"]
    for _ in range(60):  # within the header, where everything is checked
        at = int(rng.integers(600))
        damaged.append(
            whole[:at] + bytes([whole[at] ^ 1 << int(rng.integers(7))]) + whole[at + 1 :]
        )
    refused = 0
    for data in damaged:
        other.write_bytes(data)
        try:
            Policy.load(other)
        except StoreError:
            refused += 1
    assert refused >= 5
    for weights, facts in (
        (policy.weights, {"width": 4}),
        (policy.weights, dict(policy.facts) | {"width": 5}),
        (dict(policy.weights) | {"bias0": np.full(8, np.nan, np.float32)}, policy.facts),
        (dict(policy.weights) | {"weight0": np.zeros((8, 3), np.float32)}, policy.facts),
        ({"center": policy.weights["center"]}, policy.facts),
    ):
        Policy(weights, facts).save(other)
        with pytest.raises(StoreError, match="whole file"):
            Policy.load(other)
    safetensors.save_file(dict(policy.weights), other)
    with pytest.raises(StoreError, match=r"facts .* are missing"):
        Policy.load(other)

"""The Max-Q core: exact values where they are known, each rule by itself."""

import itertools
import pickle

import numpy as np
import pytest

from kt_lab.errors import UsageError
from kt_lab.search.approximators import KernelRidge, Network
from kt_lab.search.max_reward import Episode, Epsilon, MaxQLearner, Table, Transition

GAMMA = 0.9
REWARDS = (1.0, 0.0, 0.0, 5.0, 0.0)
EXACT = (3.645, 4.05, 4.5, 5.0, 0.0)  # .9^3 * 5, .9^2 * 5, .9 * 5, 5, 0
NONE = np.zeros((0, 1))


def move(*which):
    """Features of numbered moves."""
    return np.asarray(which, dtype=float)[:, None]


def chain(n=1):
    """The transitions of one walk along the chain, one move per state."""
    episode, found = Episode(n=n, gamma=GAMMA), []
    for at, reward in enumerate(REWARDS):
        choices = move(at + 1) if at + 1 < len(REWARDS) else NONE
        found += episode.step(move(at)[0], reward, choices)
    return found


def learner(model=None, **options):
    return MaxQLearner(model or Table(), rng=np.random.default_rng(0), **{"rate": 1.0} | options)


def test_the_chain_has_its_exact_values():
    made = learner()
    for _ in range(len(REWARDS)):
        made.remember(chain())
        made.update(chain())
    assert made.values(move(*range(5))).tolist() == pytest.approx(EXACT, abs=1e-12)
    assert made.values(move(0))[0] != pytest.approx(4.645)  # what a sum would give


def test_replay_finds_the_same_values_with_a_slow_copy_and_a_learning_rate():
    made = learner(Table(alpha=0.5), rate=0.2, batch=8)
    made.remember(chain())
    for _ in range(600):
        made.learn()
    assert made.values(move(*range(5))).tolist() == pytest.approx(EXACT, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 99])
def test_steps_of_any_length_have_the_same_fixed_point_and_long_ones_need_one_sweep(n):
    made = learner()
    sweeps = 0
    while not np.allclose(made.values(move(*range(5))), EXACT, rtol=0, atol=1e-12):
        made.remember(chain(n))
        made.update(chain(n))
        sweeps += 1
    assert sweeps == {1: 4, 2: 2, 3: 2, 4: 1, 99: 1}[n]


def test_a_transition_of_n_steps_holds_the_best_discounted_reward_of_its_steps():
    found = chain(n=3)
    assert [t.best for t in found] == pytest.approx([1.0, 0.81 * 5, 0.9 * 5, 5.0, 0.0])
    assert [t.discount for t in found[:2]] == pytest.approx([GAMMA**3] * 2)
    assert [len(t.choices) for t in found] == [1, 1, 0, 0, 0]
    assert [t.x[0] for t in found] == [0, 1, 2, 3, 4]


def test_an_episode_that_is_broken_off_bootstraps_from_where_it_stood():
    episode = Episode(n=3, gamma=GAMMA)
    assert episode.step(move(0)[0], 1.0, move(1)) == []
    assert episode.step(move(1)[0], 2.0, move(2, 7)) == []
    first, second = episode.end()
    assert (first.best, first.discount) == pytest.approx((1.8, 0.81))
    assert (second.best, second.discount) == pytest.approx((2.0, 0.9))
    assert first.choices.tolist() == second.choices.tolist() == [[2.0], [7.0]]
    assert episode.end() == []


@pytest.mark.parametrize(("n", "target"), [(1, 4.5), (3, 1.0)])
def test_steps_that_were_played_badly_pull_a_value_down_unless_it_is_one(n, target):
    first, good, bad = move(0)[0], move(1)[0], move(2)[0]  # a; then b (5) or c (0)

    def played(second, reward):
        episode = Episode(n=n, gamma=GAMMA)
        return episode.step(first, 1.0, move(1, 2)) + episode.step(second, reward, NONE)

    made = learner()
    for _ in range(3):
        for episode in (played(good, 5.0), played(bad, 0.0)):
            made.remember(episode)
            made.update(episode)
    assert made.values(move(1, 2)).tolist() == [5.0, 0.0]
    assert made.values(move(0))[0] == pytest.approx(target)  # Q* is 4.5


def graph(seed, states=30):
    """A random game: per state its moves, each a (next state, reward), acyclic."""
    rng = np.random.default_rng(seed)
    return {
        s: [
            (int(t), float(rng.integers(0, 9)))
            for t in rng.integers(s + 1, states + 1, size=rng.integers(1, 4))
        ]
        for s in range(states)
    }


def best_path(game, state, at):
    """The largest discounted reward over all paths from a move on, by brute force."""
    to, reward = game[state][at]
    onward = [best_path(game, to, i) for i in range(len(game.get(to, ())))]
    return max([reward, *(GAMMA * v for v in onward)])


@pytest.mark.parametrize("double", [False, True])
def test_every_value_of_a_random_game_is_its_best_path(double):
    game = graph(3, states=12)
    name = {(s, i): 10.0 * s + i for s, moves in game.items() for i in range(len(moves))}
    made = learner(double=double, rate=0.5, batch=64)
    for s, moves in game.items():
        for i, (to, reward) in enumerate(moves):
            choices = move(*[name[to, j] for j in range(len(game.get(to, ())))])
            episode = Episode(gamma=GAMMA)
            made.remember(episode.step(move(name[s, i])[0], reward, choices.reshape(-1, 1)))
    for _ in range(300):
        made.learn()
    for (s, i), label in name.items():
        assert made.values(move(label))[0] == pytest.approx(best_path(game, s, i), abs=1e-9)


def test_the_operator_contracts_by_gamma():
    rng = np.random.default_rng(0)
    batch = [
        Transition(move(i)[0], float(rng.random()), GAMMA, move(*rng.integers(40, size=3)))
        for i in range(40)
    ]
    for _ in range(20):
        models = Table(), Table()
        for model in models:
            model.fit(move(*range(40)), rng.random(40) * 3)
        made = [learner(model, margin=100.0) for model in models]
        for one in made:
            one.remember(batch)
        apart = np.abs(models[0].predict(move(*range(40))) - models[1].predict(move(*range(40))))
        found = np.abs(made[0].targets(batch) - made[1].targets(batch))
        assert found.max() <= GAMMA * apart.max() + 1e-12


def test_double_lets_q_choose_and_the_copy_value():
    online = Table()
    online.fit(move(1, 2), [0.5, 0.4])
    step = Transition(move(0)[0], 0.1, GAMMA, move(1, 2))
    for double, expected in ((True, 0.9 * 0.2), (False, 0.9 * 0.8)):
        made = learner(online, rate=0.5, double=double)
        made._frozen.fit(move(1, 2), [0.2, 0.8])
        made.remember([Transition(move(9)[0], 1.0, GAMMA, NONE)])
        assert made.targets([step])[0] == pytest.approx(expected)


def test_targets_of_a_mixed_batch_keep_their_order():
    model = Table()
    model.fit(move(1, 2, 3), [4.0, 5.0, 6.0])
    made = learner(model, margin=10.0)
    batch = [
        Transition(move(0)[0], 1.0, 0.5, move(1, 2)),
        Transition(move(0)[0], 2.0, 0.5, NONE),
        Transition(move(0)[0], 3.0, 0.5, move(3)),
        Transition(move(0)[0], 4.0, 0.5, move(3)),
    ]
    made.remember(batch)
    assert made.targets(batch).tolist() == [2.5, 2.0, 3.0, 4.0]
    assert made.targets([batch[1]]).tolist() == [2.0]


def test_no_value_exceeds_what_the_largest_reward_allows():
    model = Table()
    model.fit(move(1, 2), [100.0, -5.0])
    made = learner(model)
    step = Transition(move(0)[0], 2.0, GAMMA, move(1))
    assert made.values(move(1)).tolist() == [0.0]  # no reward was seen
    made.remember([step])
    assert made.ceiling == pytest.approx(2.2)
    assert made.values(move(1, 2)).tolist() == pytest.approx([2.2, 0.0])
    assert made.targets([step])[0] == pytest.approx(2.0)  # max(2, .9 * 2.2 = 1.98)
    assert made.values(NONE).tolist() == []


def test_negative_rewards_are_refused():
    with pytest.raises(UsageError, match="rewards must be >= 0, got -1"):
        learner().remember([Transition(move(0)[0], -1.0, GAMMA, NONE)])


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"margin": 0.5}, {"batch": 0}, {"capacity": 0}])
def test_learners_outside_their_law_are_refused(wrong):
    with pytest.raises(UsageError):
        learner(**wrong)


def test_the_oldest_transitions_go_first():
    made = learner(capacity=3)
    made.remember(Transition(move(i)[0], float(i), GAMMA, NONE) for i in range(5))
    assert made.transitions == 3
    assert sorted(t.best for t in made._memory) == [2.0, 3.0, 4.0]


def test_a_batch_is_everything_until_there_is_more_and_then_a_random_part_without_doubles():
    made, batches = learner(batch=4), []
    made.update = lambda batch: batches.append(list(batch))
    for i in range(6):
        made.remember([Transition(move(i)[0], float(i), GAMMA, NONE)])
        made.learn()
    drawn = [sorted(t.best for t in batch) for batch in batches]
    assert drawn[:4] == [[0.0], [0.0, 1.0], [0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 3.0]]
    assert [len(set(batch)) for batch in drawn[4:]] == [4, 4]


def test_learning_from_nothing_does_nothing():
    made = learner()
    made.learn()
    assert made.values(move(0)).tolist() == [0.0]


def test_epsilon_falls_linearly_and_stays():
    epsilon = Epsilon(1.0, 0.1, 90)
    assert [epsilon(s) for s in (0, 45, 90, 1000)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert Epsilon(0.5, 0.1, 0)(1) == pytest.approx(0.1)


def test_a_table_learns_by_its_rate_and_follows_another():
    table, other = Table(alpha=0.25, initial=2.0), Table(initial=2.0)
    table.fit(move(1), [6.0])
    assert table.predict(move(1, 5)).tolist() == [3.0, 2.0]
    other.follow(table, 0.5)
    assert other.predict(move(1)).tolist() == [2.5]


# -- models that generalise -----------------------------------------------------------------------


def features(at, n=5):
    return np.eye(n)[at]


def walk_in_features():
    episode, found = Episode(gamma=GAMMA), []
    for at, reward in enumerate(REWARDS):
        choices = features([at + 1] if at < 4 else [])
        found += episode.step(features(at), reward, choices)
    return found


def test_kernel_regression_is_the_stated_formula():
    rng = np.random.default_rng(0)
    x, y, new = rng.normal(size=(9, 3)), rng.normal(size=9), rng.normal(size=(4, 3))
    model = KernelRidge(scale=0.7, ridge=0.2)
    assert (model.predict(new) == 0).all()
    model.fit(x, y)

    def k(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=2) / (2 * 3 * 0.7**2))

    weights = np.linalg.inv(k(x, x) + 0.2 * np.eye(9)) @ (y - y.mean())
    assert model.predict(new) == pytest.approx(y.mean() + k(new, x) @ weights, abs=1e-9)


def test_fitted_iteration_on_everything_finds_the_exact_values_of_the_chain():
    made = learner(KernelRidge(scale=0.05, ridge=1e-9))
    made.remember(walk_in_features())
    for _ in range(5):
        made.learn()
    assert made.values(features(range(5))).tolist() == pytest.approx(EXACT, abs=1e-6)


def network(seed=0, **options):
    return Network(3, rng=np.random.default_rng(seed), **options)


def test_a_step_goes_against_the_gradient_of_the_huber_loss_in_every_weight():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20) * 2
    net = network(hidden=(5, 4), rate=1e-6)
    net._weights[2][:] = rng.normal(size=(4, 1))  # it starts at zero, which hides the others

    def loss():
        error = np.abs(net.predict(x) - y)
        return np.where(error <= 1, 0.5 * error**2, error - 0.5).mean()

    slopes = []
    for weight in net._weights:
        for at in itertools.product(*map(range, weight.shape)):
            kept = weight[at]
            high, low = [(weight.__setitem__(at, kept + d), loss())[1] for d in (1e-6, -1e-6)]
            weight[at] = kept
            slopes.append((high - low) / 2e-6)
    before = np.concatenate([w.ravel() for w in net._weights])
    net.fit(x, y)
    after = np.concatenate([w.ravel() for w in net._weights])
    slopes = np.asarray(slopes)
    clear = np.abs(slopes) > 1e-4
    assert clear.mean() > 0.6
    # Adam's first step is the rate times the sign of the gradient.
    assert (after - before)[clear] == pytest.approx(-1e-6 * np.sign(slopes[clear]), rel=1e-2)


def test_a_network_learns_a_bent_function():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = np.abs(x[:, 0]) + 0.5 * x[:, 1]
    net = network(rate=3e-3)
    assert (net.predict(x) == 0).all()
    for _ in range(400):
        at = rng.integers(400, size=64)
        net.fit(x[at], y[at])
    assert np.abs(net.predict(x) - y).mean() < 0.1


def test_equal_seeds_are_equal_networks_and_following_closes_the_gap():
    x = np.random.default_rng(0).normal(size=(10, 3))
    one, two, three = network(1), network(1), network(2)
    for net in (one, two, three):
        net.fit(x, x[:, 0])
    assert (one.predict(x) == two.predict(x)).all()
    assert (one.predict(x) != three.predict(x)).any()
    three.follow(one, 1.0)
    assert three.predict(x) == pytest.approx(one.predict(x), abs=1e-12)
    assert (pickle.loads(pickle.dumps(one)).predict(x) == one.predict(x)).all()


def test_a_network_learns_the_chain():
    net = Network(5, rng=np.random.default_rng(0), rate=0.01)
    made = learner(net, rate=0.05, batch=3)
    made.remember(walk_in_features())
    for _ in range(1000):
        made.learn()
    assert made.values(features(range(5))).tolist() == pytest.approx(EXACT, abs=0.1)

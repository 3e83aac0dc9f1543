"""The game: what its states, actions and rewards are, and that Gymnasium takes it."""

import math
import subprocess
import sys

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from kt_lab.errors import ProgramError, UsageError
from kt_lab.game import STOP, Met, ProgramGame
from kt_lab.programs.operators import get_operator
from kt_lab.programs.schedule import legal_moves, replay
from kt_lab.programs.text import to_text


class Clock:
    """Measures 100 us per nest of the program, and counts how often it is asked."""

    def __init__(self, failing=()):
        self.asked, self.failing = [], failing

    def __call__(self, program):
        self.asked.append(to_text(program))
        if len(program.body) in self.failing:
            return None
        return 100.0 * len(program.body)


def start(name="row_sum"):
    operator = get_operator(name)
    return operator.program(operator.tiny)


def make(clock=None, **options):
    return ProgramGame(start(), clock or Clock(), **options)


def action_of(info, kind):
    return 1 + next(n for n, record in enumerate(info["moves"]) if record.split()[0] == kind)


@pytest.mark.filterwarnings("ignore:.*alternative render modes")
@pytest.mark.parametrize("mode", [None, "ansi"])
def test_gymnasium_checks_the_game(mode):
    check_env(make(render_mode=mode))


def test_states_are_texts_and_actions_are_the_legal_moves():
    game = make(max_moves=64)
    observation, info = game.reset(seed=0)
    assert observation in game.observation_space
    assert observation["program"] == to_text(start())
    assert info["moves"] == tuple(map(str, legal_moves(start())))
    mask = observation["action_mask"]
    assert mask.shape == (65,)
    assert mask.sum() == 1 + len(info["moves"])
    assert all(mask[: mask.sum()])
    assert int(game.action_space.sample(mask)) <= len(info["moves"])
    for action in (1, len(info["moves"])):
        game.reset()
        observation, *_, after = game.step(action)
        moved = replay(start(), info["moves"][action - 1])
        assert observation["program"] == to_text(moved)
        assert after["schedule"] == info["moves"][action - 1]
        assert after["moves"] == tuple(map(str, legal_moves(moved)))


def test_rewards_are_the_latency_of_the_start_over_that_of_the_state():
    game = make()
    _, info = game.reset()
    nests = len(start().body)
    assert info["latency_us"] == 100.0 * nests
    _, reward, terminated, truncated, info = game.step(action_of(info, "fuse"))
    assert reward == pytest.approx(nests / (nests - 1))
    assert (terminated, truncated) == (False, False)
    _, again, *_ = game.step(action_of(info, "split"))
    assert again == reward  # absolute: a step that changes no latency is worth the state
    observation, last, terminated, truncated, info = game.step(STOP)
    assert last == reward
    assert (terminated, truncated) == (True, False)
    assert info["schedule"].count(";") == 1
    assert observation in game.observation_space


def test_an_illegal_action_changes_nothing_and_costs_a_step():
    game = make(steps=2)
    before, info = game.reset()
    after, reward, terminated, truncated, told = game.step(len(info["moves"]) + 1)
    assert after["program"] == before["program"]
    assert told["illegal"]
    assert (reward, terminated, truncated) == (0.0, False, False)
    *_, truncated, told = game.step(1)
    assert not told["illegal"]
    assert truncated


def test_a_program_is_measured_once_and_the_best_is_kept_over_episodes():
    clock = Clock()
    game = make(clock)
    assert game.best is None
    for _ in range(2):
        _, info = game.reset()
        *_, info = game.step(action_of(info, "fuse"))
        game.step(action_of(info, "fission"))  # back to the start program
    assert len(clock.asked) == len(set(clock.asked)) == game.evaluations == 2
    assert game.best == Met(info["schedule"], 100.0 * (len(start().body) - 1))
    assert clock(replay(start(), game.best.schedule)) == game.best.latency_us


def test_the_budget_of_evaluations_ends_episodes_but_known_programs_stay_free():
    game = make(evaluations=2)
    _, info = game.reset()
    fuse = action_of(info, "fuse")
    *_, truncated, info = game.step(fuse)
    assert not truncated
    _, reward, terminated, truncated, info = game.step(action_of(info, "split"))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["latency_us"] is None
    assert game.evaluations == 2
    game.reset()
    _, reward, _, truncated, _ = game.step(fuse)
    assert reward > 1
    assert not truncated


def test_what_cannot_be_measured_is_worth_nothing():
    nests = len(start().body)
    game = make(Clock(failing=[nests - 1]))
    _, info = game.reset()
    _, reward, terminated, truncated, info = game.step(action_of(info, "fuse"))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["latency_us"] is None
    assert math.isfinite(game.best.latency_us)
    with pytest.raises(UsageError, match="start program must have a latency > 0 and finite"):
        make(Clock(failing=[nests])).reset()


@pytest.mark.parametrize("bad", [math.nan, -3.0, 0.0])
def test_a_reading_that_is_no_latency_is_a_failure(bad):
    readings = iter([10.0, bad, 5.0])
    game = make(lambda _: next(readings))
    game.reset()
    rewards = [game.step(1)[1] for _ in range(2)]
    assert rewards == [0.0, 2.0]
    assert game.best.latency_us == 5.0


def test_a_game_that_is_not_begun_or_not_exact_is_told():
    with pytest.raises(UsageError, match="reset before its first step"):
        make().step(1)
    whole = get_operator("softmax")
    inexact = "vectorise 4.0"
    for exact in (False, True):
        game = ProgramGame(whole.program(whole.tiny), Clock(), exact_only=exact)
        if not exact:
            assert game.reset(options={"schedule": inexact})[1]["schedule"] == inexact
        else:
            with pytest.raises(ProgramError, match=r"starts from exact ones, .* vectorise 4\.0"):
                game.reset(options={"schedule": inexact})


def test_an_episode_may_start_from_a_schedule():
    game = make()
    _, info = game.reset()
    first = info["moves"][0]
    observation, info = game.reset(options={"schedule": first})
    assert observation["program"] == to_text(replay(start(), first))
    assert info["schedule"] == first
    with pytest.raises(ProgramError, match="split 0 1000"):
        game.reset(options={"schedule": "split 0 1000"})
    with pytest.raises(UsageError, match="'schedule', got"):
        game.reset(options={"speed": 1})


def test_moves_and_texts_beyond_the_spaces_are_left_out():
    game = make(max_moves=2, max_text=40)
    observation, info = game.reset()
    assert observation in game.observation_space
    assert observation["program"] == to_text(start())[:40]
    assert len(info["moves"]) == 2
    assert info["left_out"] == len(list(legal_moves(start()))) - 2
    np.testing.assert_array_equal(observation["action_mask"], [1, 1, 1])


def test_limits_are_checked_and_text_is_rendered():
    for name in ("steps", "evaluations", "max_moves", "max_text"):
        with pytest.raises(UsageError, match=f"{name} must be >= 1, got {name}=0"):
            make(**{name: 0})
    with pytest.raises(UsageError, match="render_mode"):
        make(render_mode="human")
    game = make(render_mode="ansi")
    game.reset()
    assert game.render() == f"{to_text(start())}# start\n"
    assert make().render() is None


def test_without_gymnasium_the_message_tells_what_to_install():
    code = "import sys; sys.modules['gymnasium'] = None; import kt_lab.game"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert 'pip install -c requirements.lock -e ".[programs]"' in done.stderr

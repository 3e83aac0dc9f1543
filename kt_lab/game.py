"""The game of programs: a Gymnasium environment whose moves cannot change what is computed.

    game = ProgramGame(program, latency_us)
    observation, info = game.reset(seed=0)
    observation, reward, terminated, truncated, info = game.step(action)

State: the canonical text of the program. Action 0 stops; action k >= 1 is the k-th legal move of
the state (`info["moves"][k - 1]`), in the order of `kt_lab.programs.schedule.legal_moves`. States
differ in how many moves they have, so the action space is Discrete(1 + max_moves) and the
observation holds a mask of the actions that are legal now: `game.action_space.sample(mask)` draws
one of them. An illegal action changes nothing, is rewarded with 0 and costs a step.

Reward: T_ref / T(s'), the latency of the start program over that of the program reached, as in
PerfDojo: absolute and not relative to the step before. It is above 0, 1 at the start, and 0 for
what cannot be measured. Every program is measured once, so that rewards are deterministic. The
outcome of a run is the fastest program met anywhere (`game.best`), not the last one.
"""

import math
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kt_lab.errors import ProgramError, UsageError, install
from kt_lab.programs.ir import Program
from kt_lab.programs.moves import Move
from kt_lab.programs.schedule import (
    apply_move,
    legal_moves,
    parse_schedule,
    replay,
    schedule_text,
)
from kt_lab.programs.space import ScheduleSpace
from kt_lab.programs.surgery import canonical
from kt_lab.programs.text import to_text
from kt_lab.trial import Config

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise UsageError(
        "kt_lab.game needs the package gymnasium, which is not installed; "
        f"install it: {install('programs')}"
    ) from error

STOP = 0
Observation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Met:
    """A program that was measured.

    Attributes:
        schedule: Moves that lead to it from the start program.
        latency_us: Microseconds.
    """

    schedule: str
    latency_us: float


class ProgramGame(gymnasium.Env):
    """Episodes of legal moves from one start program.

    Observations are dictionaries: `program`, the canonical text (its first `max_text` characters),
    and `action_mask`, int8 of shape (1 + max_moves,), 1 where an action is legal.

    The `info` of every step holds `moves` (records of the legal moves), `schedule` (the episode's
    moves), `latency_us` (None: not measured), `illegal`, `evaluations` (programs measured so far)
    and `left_out` (legal moves beyond `max_moves`, which no action stands for).

    Attributes:
        best: The fastest program met in all episodes (Met), or None before the first `reset`.
        evaluations: Programs measured so far, the start program included.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        program: Program,
        latency_us: Callable[[Program], float | None],
        *,
        steps: int = 32,
        evaluations: int | None = None,
        exact_only: bool = False,
        max_moves: int = 512,
        max_text: int = 20_000,
        render_mode: str | None = None,
    ):
        """Takes the start program; nothing is measured before the first `reset`.

        Args:
            program: The start program, legal.
            latency_us: Measures a program in microseconds; None or inf: it failed. Asked once for
                every program (by its text).
            steps: Actions of an episode at most; it is then truncated.
            evaluations: Programs measured at most, in all episodes together; a step to one more
                truncates the episode and is rewarded with 0. None: no limit.
            exact_only: Leave out moves that re-associate floating-point sums.
            max_moves: Legal moves that actions stand for, the first ones.
            max_text: Characters of the observed text at most.
            render_mode: "ansi": `render` returns the text. None: it returns nothing.
        """
        limits = {"steps": steps, "max_moves": max_moves, "max_text": max_text}
        for name, value in {**limits, "evaluations": evaluations}.items():
            if value is not None and value < 1:
                raise UsageError(f"{name} must be >= 1, got {name}={value}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UsageError(f"render_mode must be None or 'ansi', got {render_mode!r}")
        program = canonical(program)
        self._start, self._measure, self.render_mode = program, latency_us, render_mode
        self._steps, self._budget, self._exact_only = steps, evaluations, exact_only
        self._known: dict[str, float] = {}  # microseconds by text; inf: failed
        self.best: Met | None = None
        self._program, self._schedule, self._taken = program, (), 0
        self._moves: tuple[Move, ...] = ()
        self._left_out: int | None = None  # legal moves without an action; None: not begun
        self.action_space = gymnasium.spaces.Discrete(1 + max_moves)
        self.observation_space = gymnasium.spaces.Dict(
            {
                "program": gymnasium.spaces.Text(max_text, charset=string.printable),
                "action_mask": gymnasium.spaces.MultiBinary(1 + max_moves),
            }
        )

    @property
    def evaluations(self) -> int:
        """Programs measured so far, in all episodes."""
        return len(self._known)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; the first one measures the start program.

        Args:
            seed: Of Gymnasium's generator; the game itself draws nothing.
            options: {"schedule": "..."} starts from where that schedule leads.

        Raises:
            UsageError: The start program cannot be measured, or an option is unknown.
            ProgramError: The schedule is not legal.
        """
        super().reset(seed=seed)
        unknown = set(options or {}) - {"schedule"}
        if unknown:
            raise UsageError(f"options of reset are 'schedule', got {sorted(unknown)}")
        reference = self._latency(self._start, ())
        if not (reference and math.isfinite(reference)):
            raise UsageError(
                f"the start program must have a latency > 0 and finite, got {reference} us"
            )
        schedule = parse_schedule((options or {}).get("schedule", ""))
        program = replay(self._start, schedule)
        if self._exact_only and schedule:
            exact = ScheduleSpace(self._start, longest=len(schedule), exact_only=True)
            if not exact.contains(Config(schedule=schedule_text(schedule))):
                raise ProgramError(
                    "a game of exact moves starts from exact ones, got a schedule that "
                    f"re-associates sums: {schedule_text(schedule)}"
                )
        self._schedule, self._program = schedule, program
        self._taken = 0
        self._arrive()
        return self._observation(), self._info(self._latency(self._program, self._schedule))

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Takes an action: see the module.

        Returns:
            Observation, reward, whether the player stopped or no move is left, whether a budget
            is spent, and info.
        """
        if self._left_out is None:
            raise UsageError("a game must be reset before its first step; call reset()")
        self._taken += 1
        illegal = not 0 <= action <= len(self._moves)
        if action != STOP and not illegal:
            move = self._moves[action - 1]
            self._program = apply_move(self._program, move)
            self._schedule = (*self._schedule, move)
            self._arrive()
        latency = self._latency(self._program, self._schedule)
        reward = 0.0 if illegal or not latency else self._known[to_text(self._start)] / latency
        ended = action == STOP or not self._moves
        spent = self._taken >= self._steps or latency is None
        info = self._info(latency) | {"illegal": illegal}
        return self._observation(), float(reward), ended, spent and not ended, info

    def render(self) -> str | None:
        """Returns the program's text and the schedule that led to it."""
        if self.render_mode is None:
            return None
        return f"{to_text(self._program)}# {schedule_text(self._schedule) or 'start'}\n"

    def _arrive(self) -> None:
        found = tuple(legal_moves(self._program, exact_only=self._exact_only))
        self._left_out = max(0, len(found) - int(self.action_space.n) + 1)
        self._moves = found[: int(self.action_space.n) - 1]

    def _latency(self, program: Program, schedule: tuple[Move, ...]) -> float | None:
        """Returns microseconds, inf for a failure, None when no evaluation is left."""
        text = to_text(program)
        if text not in self._known:
            if self._budget is not None and self.evaluations >= self._budget:
                return None
            found = self._measure(program)
            us = math.inf if found is None else float(found)
            self._known[text] = us if us > 0 else math.inf  # NaN too: a reading that failed
            if self.best is None or self._known[text] < self.best.latency_us:
                self.best = Met(schedule_text(schedule), self._known[text])
        return self._known[text]

    def _observation(self) -> Observation:
        mask = np.zeros(int(self.action_space.n), dtype=np.int8)
        mask[: 1 + len(self._moves)] = 1
        space = self.observation_space["program"]
        return {"program": to_text(self._program)[: space.max_length], "action_mask": mask}

    def _info(self, latency: float | None) -> dict[str, Any]:
        return {
            "moves": tuple(map(str, self._moves)),
            "schedule": schedule_text(self._schedule),
            "latency_us": latency if latency is not None and math.isfinite(latency) else None,
            "illegal": False,
            "evaluations": self.evaluations,
            "left_out": self._left_out,
        }

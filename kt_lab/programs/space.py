"""The schedules of a program as a search space: lists of moves that replay.

    space = ScheduleSpace(get_operator("softmax").program({"M": 512, "N": 1024}))
    history = tune(make_searcher("evolution", space, seed=0), runner, budget=Budget(trials=200))

A config is `Config(schedule="fuse 0; split 0.1 8")`; the empty schedule is the start program. Two
schedules may lead to the same program, so `key` is the program's text, and what this module makes
never goes in a circle: a schedule that comes back to an earlier program is cut there.

Two neighbourhoods: `neighbours` are one legal move away, or one undone (the graph of programs);
`mutate` and `cross` change the list anywhere and replay it, skipping what became illegal (the
sequences). Kinds of moves are drawn first, then an instance, because the many factors of a split
would swamp all else.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kt_lab.errors import ProgramError, UsageError
from kt_lab.programs.encoders import DEFAULT, get_encoder
from kt_lab.programs.ir import Program
from kt_lab.programs.moves import KINDS, Move
from kt_lab.programs.schedule import apply_move, parse_schedule, schedule_text
from kt_lab.programs.surgery import canonical
from kt_lab.programs.text import to_text
from kt_lab.trial import Config

Moves = tuple[Move, ...]

_EDITS = ("append", "append", "undo", "remove", "replace", "insert")  # of a mutation, drawn evenly
_TRIES = 8  # mutations, or crosses, drawn until one is another program


class ScheduleSpace:
    """All legal schedules of a program of at most `longest` moves; a `kt_lab.space.Space`.

    Attributes:
        program: The start program.
        longest: Moves of a schedule at most.
        exact_only: Whether moves that re-associate floating-point sums are left out.
        default: The empty schedule.
        encoder: Name of what `encode` sees; no part of the fingerprint.
        fingerprint: Hash of the others and of the kinds of moves (16 hex digits).
    """

    def __init__(
        self,
        program: Program,
        *,
        longest: int = 32,
        exact_only: bool = False,
        encoder: str = DEFAULT,
        remembered: int = 20_000,
    ):
        """Takes a start program.

        Args:
            program: The start program.
            longest: Moves of a schedule at most, >= 1.
            exact_only: Leave out moves that re-associate floating-point sums.
            encoder: Name of what `encode` sees; see `kt_lab.programs.encoders`.
            remembered: How many programs, and a tenth as many lists of moves, are kept in memory;
                what they are does not depend on it.
        """
        if longest < 1:
            raise UsageError(f"longest must be >= 1 moves, got {longest}")
        program = canonical(program)
        self.program, self.longest, self.exact_only = program, longest, exact_only
        self.default = Config(schedule="")
        self.encoder = encoder
        get_encoder(encoder)
        facts = "\n".join([to_text(program), str(longest), str(exact_only), *sorted(KINDS)])
        self.fingerprint = hashlib.sha256(facts.encode()).hexdigest()[:16]
        self._remembered = remembered
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """Pickles without what is remembered."""
        kept = ("program", "longest", "exact_only", "default", "encoder", "fingerprint")
        kept += ("_remembered",)
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Starts with nothing remembered."""
        self.__dict__.update(state)
        self._forget()

    def _forget(self) -> None:
        self._programs = _Memory(self._remembered)  # by schedule, None where it does not replay
        self._texts = _Memory(self._remembered)  # by schedule
        self._legal = _Memory(self._remembered // 10 + 1)  # by text
        self._encoded = _Memory(self._remembered)  # by text

    # -- what a space is ----------------------------------------------------------------------

    def contains(self, config: Mapping[str, Any]) -> bool:
        """Whether the config is a schedule that replays, in the form that `Config`s here have."""
        if set(config) != {"schedule"} or not isinstance(config["schedule"], str):
            return False
        try:
            moves = parse_schedule(config["schedule"])
        except ProgramError:
            return False
        plain = schedule_text(moves) == config["schedule"]
        return plain and len(moves) <= self.longest and self._at(moves) is not None

    def replayed(self, config: Mapping[str, Any]) -> Program:
        """Returns the program that a schedule makes, or raises ProgramError."""
        return self._program(parse_schedule(config["schedule"]))

    def key(self, config: Mapping[str, Any]) -> str:
        """Returns the canonical text of the program that a schedule makes."""
        return self._text(parse_schedule(config["schedule"]))

    def sample(self, n: int, *, rng: np.random.Generator) -> list[Config]:
        """Returns n random legal walks of a random length each, from none to the longest.

        At every step a kind of move is drawn, then one of its legal moves. Programs are not drawn
        uniformly: nobody can count them.
        """
        return [self._walked(int(rng.integers(self.longest + 1)), rng) for _ in range(n)]

    def neighbours(self, config: Config, *, radius: int = 1) -> list[Config]:
        """Returns the schedules with one legal move more, or with the last one undone.

        Each is another program. A move that leads back to an earlier program of the schedule,
        as the inverses of its last moves do, gives the schedule of that program.

        Args:
            config: A member.
            radius: 1: one move.
        """
        if radius != 1:
            raise UsageError(f"schedules have neighbours of radius 1, got radius={radius}")
        moves = parse_schedule(config["schedule"])
        found = {self._text(moves[:n]): moves[:n] for n in range(len(moves) + 1)}
        near = {self._text(moves[:-1]): moves[:-1]}
        for move in self._legal_after(moves):
            text = self._text((*moves, move))
            near.setdefault(text, found.get(text, (*moves, move)))
        near.pop(self._text(moves), None)
        return [_config(m) for m in near.values() if len(m) <= self.longest]

    def kind(self, config: Config, near: Config) -> str:
        """Returns the kind of the move from a config to a neighbour; "undo" for the way back."""
        moves = parse_schedule(near["schedule"])
        longer = len(moves) > len(parse_schedule(config["schedule"]))
        return moves[-1].kind if longer else "undo"

    def encode(self, configs: Sequence[Config]) -> np.ndarray:
        """Returns the features of the programs, shape (n, columns); see `kt_lab.programs`."""
        rows, encode = [], get_encoder(self.encoder)
        for config in configs:
            moves = parse_schedule(config["schedule"])
            text = self._text(moves)
            rows.append(self._encoded.get(text, lambda m=moves: encode(self._program(m))))
        return np.stack(rows) if rows else np.empty((0, len(encode(self.program))))

    # -- what searchers of schedules use too --------------------------------------------------

    def mutate(self, config: Config, *, rng: np.random.Generator) -> Config:
        """Returns the schedule after one random edit, if one is found that changes the program.

        An edit appends a legal move, takes the last one away, or removes, replaces or inserts one
        anywhere; what follows is replayed, without what became illegal.
        """
        moves = parse_schedule(config["schedule"])

        def edited() -> Moves:
            edit, at = _EDITS[rng.integers(len(_EDITS))], int(rng.integers(len(moves) + 1))
            if edit == "append":
                return (*moves, *self._drawn(moves, rng))
            if edit == "undo":
                return moves[:-1]
            new = () if edit == "remove" else self._drawn(moves[:at], rng)
            return self._lenient(moves[:at], (*new, *moves[at + (edit != "insert") :]))

        return self._other(edited, {self._text(moves)}) or config

    def cross(self, a: Config, b: Config, *, rng: np.random.Generator) -> Config:
        """Returns the first moves of one schedule and the last of another, as far as they replay.

        `a` itself where no cut gives a program that is neither parent.
        """
        head, tail = (parse_schedule(config["schedule"]) for config in (a, b))

        def child() -> Moves:
            cuts = rng.integers([len(head) + 1, len(tail) + 1])
            return self._lenient(head[: cuts[0]], tail[cuts[1] :])

        return self._other(child, {self._text(head), self._text(tail)}) or a

    # -- how ----------------------------------------------------------------------------------

    def _other(self, draw: Callable[[], Moves], known: Iterable[str]) -> Config | None:
        """Returns the first of some draws that makes another program than those known."""
        for _ in range(_TRIES):
            moves = self._straight(draw())
            if len(moves) <= self.longest and self._text(moves) not in known:
                return _config(moves)
        return None

    def _at(self, moves: Moves) -> Program | None:
        """Returns the program after the moves; None if one of them is not legal."""
        if not moves:
            return self.program
        return self._programs.get(moves, lambda: self._after(self._at(moves[:-1]), moves[-1]))

    def _after(self, program: Program | None, move: Move) -> Program | None:
        if program is None or (self.exact_only and not _is_exact(program, move)):
            return None
        try:
            return apply_move(program, move)
        except ProgramError:
            return None

    def _program(self, moves: Moves) -> Program:
        program = self._at(moves)
        if program is None:
            at = next(n for n in range(len(moves)) if self._at(moves[: n + 1]) is None)
            apply_move(self._at(moves[:at]), moves[at])  # raises, naming the law
            raise ProgramError(f"moves of this space re-associate no sum; got {moves[at]}")
        return program

    def _text(self, moves: Moves) -> str:
        return self._texts.get(moves, lambda: to_text(self._program(moves)))

    def _legal_after(self, moves: Moves) -> Moves:
        def listed() -> Moves:
            program, legal = self._program(moves), []
            for kind in KINDS.values():
                for move in kind.find(program):
                    if self.exact_only and not kind.is_exact(program, move):
                        continue
                    result, _ = kind.attempt(program, move)
                    if result is not None:
                        self._programs.get((*moves, move), lambda made=result: made)
                        legal.append(move)
            return tuple(legal)

        return self._legal.get(self._text(moves), listed)

    def _straight(self, moves: Moves) -> Moves:
        """Returns a legal schedule without what led back to an earlier program of its own."""
        texts = [self._text(moves[:n]) for n in range(len(moves) + 1)]
        last = {text: n for n, text in enumerate(texts)}
        kept, at = [], last[texts[0]]
        while at < len(moves):
            kept.append(moves[at])
            at = last[texts[at + 1]]
        return tuple(kept)

    def _lenient(self, moves: Moves, more: Iterable[Move]) -> Moves:
        """Returns the moves and those further ones that are legal in their turn."""
        for move in more:
            if len(moves) < self.longest and self._at((*moves, move)) is not None:
                moves = (*moves, move)
        return moves

    def _drawn(self, moves: Moves, rng: np.random.Generator) -> Moves:
        """Returns a random legal move after others, of a random kind; nothing where none is."""
        program, kinds = self._program(moves), list(KINDS)
        if len(moves) == self.longest:
            return ()
        for kind in rng.permutation(kinds):
            found = list(KINDS[kind].find(program))
            for at in rng.permutation(len(found)):
                if self._at((*moves, found[at])) is not None:
                    return (found[at],)
        return ()

    def _walked(self, length: int, rng: np.random.Generator) -> Config:
        moves: Moves = ()
        for _ in range(length):
            moves = self._straight((*moves, *self._drawn(moves, rng)))
        return _config(moves)


class _Memory:
    """The values of the latest keys asked for, made when they are missing."""

    def __init__(self, size: int):
        self._size, self._kept = size, OrderedDict()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        value = self._kept[key] = make()
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return value


def _config(moves: Moves) -> Config:
    return Config(schedule=schedule_text(moves))


def _is_exact(program: Program, move: Move) -> bool:
    return move.kind not in KINDS or KINDS[move.kind].is_exact(program, move)

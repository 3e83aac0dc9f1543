"""Players of the dojo: searchers on the schedules of an operator, with or without the expert pass.

A player is the name of a registered searcher (`annealing`), or `expert+` and that name: then its
prior holds the schedule of the expert pass, from which it starts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.evidence.dojo_tables import best_so_far
from kt_lab.prior import Prior, PriorReading
from kt_lab.programs.expert import ASLEEP_US, AWAKE_US, expert_schedule
from kt_lab.programs.operators import Operator, get_operator
from kt_lab.programs.schedule import parse_schedule
from kt_lab.programs.space import ScheduleSpace
from kt_lab.provenance import provenance
from kt_lab.runners.c import CRunner, Protocol
from kt_lab.search import get_searcher, make_searcher
from kt_lab.trial import OK, Config, History, Measurement, Proposal, Trial
from kt_lab.tune import tune_whole
from kt_lab.workload import Workload

EXPERT = "expert"
SIZES = ("cache", "memory", "tiny")
LIMIT_S = 0.2  # of a reading in a search: slow programs get fewer samples
_LONGEST = 32  # moves of a schedule at most, or the expert's and _MORE
_MORE = 16
_SLOW = 3.0  # times the expert's latency, from which on a comparison stops timing early


@dataclass(frozen=True)
class Field:
    """What players play on.

    Attributes:
        runner: Measures; readings are shared by all who play on it.
        space: The schedules.
        expert: The expert pass's schedule.
        expert_us: Its latency in microseconds.
    """

    runner: CRunner
    space: ScheduleSpace
    expert: Config
    expert_us: float


def sized(operator: Operator | str, size: str) -> Workload:
    """Returns a workload of an operator: in a core's cache, in memory, or of a test's size."""
    found = get_operator(operator) if isinstance(operator, str) else operator
    if size not in SIZES:
        raise UsageError(f"a size is one of {', '.join(SIZES)}; got {size!r}")
    if size != "tiny":
        return found.workloads[SIZES.index(size)]
    name = "x".join(map(str, found.tiny.values()))
    return Workload(found.name, name, found.tiny, "float32", "a test's size")


def shaped(key: str) -> Workload:
    """Returns a workload of any extents by its key, such as softmax/2048x256."""
    name, _, extents = key.partition("/")
    operator, sizes = get_operator(name), extents.split("x")
    if len(sizes) != len(operator.tiny) or not all(s.isdecimal() and int(s) for s in sizes):
        names = "x".join(operator.tiny)
        raise UsageError(f"a shape of {name} is {name}/{names} in whole numbers, got {key!r}")
    named = dict(zip(operator.tiny, map(int, sizes), strict=True))
    return Workload(name, extents, named, "float32", "asked for")


def open_field(runner: CRunner, *, threads: int) -> Field:
    """Measures the expert pass and returns what players need.

    Raises:
        UsageError: What the expert pass made is wrong or fails, which must not happen.
    """
    region_us = AWAKE_US if runner.awake else ASLEEP_US
    machine = {"threads": threads, "region_us": region_us, "vectors": runner.vectors}
    schedule = expert_schedule(runner.start, **machine)
    expert = Config(schedule=schedule)
    found = measured(runner, expert)
    if found.status != OK:
        raise UsageError(
            f"the expert pass must be right, got {found.status} of {runner.workload.key} on "
            f"{threads} threads: {found.error}; where that is a timeout, end what else keeps the "
            "machine busy, or give a larger timeout_s"
        )
    longest = max(_LONGEST, len(parse_schedule(expert["schedule"])) + _MORE)
    space = ScheduleSpace(runner.start, longest=longest)
    return Field(runner, space, expert, found.latency_us)


def measured(runner: CRunner, config: Config) -> Measurement:
    """Returns the reading of one config on an idle runner."""
    runner.submit([Proposal(0, config)])
    return runner.next()[1]


def play(
    player: str,
    field: Field,
    *,
    budget: int,
    seed: int,
    cutoff_us: float | None = None,
    options: Mapping[str, Any] | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> History:
    """Lets a player measure `budget` different programs.

    Args:
        player: A searcher's name, `expert+` before it or not; `expert` alone measures one program.
        field: What it plays on.
        budget: Programs measured at most, failures included.
        seed: Of the player.
        cutoff_us: What is slower is not timed to the end; None: everything is.
        options: Of the searcher.
        on_trial: Called with every trial.
    """
    if player == EXPERT:
        proposal = Proposal(0, field.expert, origin=EXPERT)
        return History([Trial(0, proposal, measured(field.runner, field.expert))])
    helped, _, name = player.rpartition("+")
    if helped not in ("", EXPERT):
        raise UsageError(f"a player is a searcher, or expert+SEARCHER; got {player!r}")
    key = field.runner.workload.key
    known = (PriorReading(field.expert, field.expert_us, key, "cpu"),) if helped else ()
    limit = Budget(trials=budget)
    prior = Prior(known, "the expert pass")
    more = options or {}
    searcher = make_searcher(name, field.space, seed=seed, budget=limit, prior=prior, **more)
    runner = Impatient(field.runner, cutoff_us)
    return tune_whole(searcher, runner, budget=limit, on_trial=on_trial)


def runs(players: Sequence[str], seeds: int) -> Iterator[tuple[str, int]]:
    """Yields every player with every seed; the expert pass, which draws nothing, once."""
    for player in players:
        for seed in range(1 if player == EXPERT else seeds):
            yield player, seed


def played(
    field: Field, players: Sequence[str], *, budget: int, seeds: int = 1
) -> tuple[list[dict[str, Any]], list[History]]:
    """Lets the expert pass and players play; none waits long for what is hopelessly slow.

    Returns:
        What each run came to: player, seed, programs, failed, latency_us (its least reading, null
        where nothing was right); and the histories.
    """
    _require_known(players)
    told, histories, cutoff_us = [], [], _SLOW * field.expert_us
    for player, seed in runs((EXPERT, *players), seeds):
        history = play(player, field, budget=budget, seed=seed, cutoff_us=cutoff_us)
        readings = [t.latency_us for t in history if t.status == OK]
        failed = sum(t.status not in (OK, "censored") for t in history)
        best = min(readings, default=None)
        row = {"player": player, "seed": seed, "programs": len(history), "failed": failed}
        told.append(row | {"latency_us": best})
        histories.append(history)
    return told, histories


def _require_known(players: Sequence[str]) -> None:
    """Raises UnknownName before anything is measured."""
    for player in players:
        if player != EXPERT:
            get_searcher(player.rpartition("+")[2])


def short_game(
    workload: str,
    players: Sequence[str],
    *,
    threads: int = 1,
    budget: int,
    seeds: int = 1,
    timeout_s: float = 1.0,
) -> dict[str, Any]:
    """Lets players play on one workload, as `kt-lab evidence players` does on several.

    Args:
        workload: Key of a workload of an operator.
        players: See `play`.
        threads: Of every program.
        budget: Different programs that each measures.
        seeds: Runs of each.
        timeout_s: Of a program's check: what computes a sum again for every element takes long.

    Returns:
        `rows`, as `kt_lab.evidence.dojo_tables.players_table` takes them, and `provenance`.
    """
    _require_known(players)
    rows = []
    quick = {"protocol": Protocol(limit_s=LIMIT_S), "timeout_s": timeout_s}
    with CRunner(workload, threads=threads, **quick) as runner:
        field = open_field(runner, threads=threads)
        for player, seed in runs(players, seeds):
            history = play(player, field, budget=budget, seed=seed)
            points = best_so_far([trial.latency_us for trial in history])
            rows.append({"workload": workload, "player": player, "seed": seed, "points": points})
    return {"rows": rows, "provenance": provenance()}


def finalists(histories: Sequence[History], space: ScheduleSpace, count: int) -> list[Config]:
    """Returns the fastest programs of some runs, one schedule of each, the fastest first."""
    found: dict[str, tuple[float, Config]] = {}
    for trial in (t for history in histories for t in history if t.status == OK):
        key, reading = space.key(trial.config), (trial.latency_us, trial.config)
        found[key] = min(found.get(key, reading), reading, key=lambda pair: pair[0])
    return [config for _, config in sorted(found.values(), key=lambda pair: pair[0])[:count]]


class Impatient:
    """A runner that stops timing what is hopelessly slow; all else is the other's."""

    def __init__(self, runner: CRunner, cutoff_us: float | None):
        """Takes a runner and microseconds; None: it waits for everything."""
        self._runner, self._cutoff_us = runner, cutoff_us

    def __getattr__(self, name: str):
        """Returns the other's."""
        return getattr(self._runner, name)

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Asks for what the other measures, with the cut-off."""
        self._runner.submit([replace(p, cutoff_us=self._cutoff_us) for p in proposals])

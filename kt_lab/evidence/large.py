"""Helion's own spaces, of 10^11 configs and more: the flagship beside Helion's LFBOTree, live.

Both choose configs of Helion's kernel, and both have them generated, compiled, checked and timed
by the same workers (`kt_lab.evidence.helion_pool`): what differs is the search. Helion's runs as
its users get it, its class with its effort profile, its priors and its generator of configs; it
says when it is done. Ours of that seed goes on until it has had as many configs and as many
seconds, and is judged by what it held at each. No optimum is known: the reference is the best of
all runs, of two runs of ten times the budget among them, and of uniform draws. All that won is
timed in alternation in one process in the end. The GPU is the first that CUDA_VISIBLE_DEVICES
names.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from typing import Any

from kt_lab.budget import Budget, Left, Spent
from kt_lab.errors import UsageError
from kt_lab.evidence.beside_helion import OPERATIONS
from kt_lab.evidence.helion_lab import HelionLab, race
from kt_lab.evidence.large_tables import report
from kt_lab.evidence.resuming import Rows
from kt_lab.provenance import provenance
from kt_lab.search import make_searcher
from kt_lab.trial import OK, Trial
from kt_lab.tune import tune_whole

__all__ = ["add_arguments", "report", "run"]

_DEFAULT_OPS = ("int4_gemm", "matmul", "layer_norm", "swiglu")
_DRAW_S = 3.0  # the most that compiling a uniform draw may take: hundreds of them take longer
_LEAST_S = {"helion": 45, "scout": 45, "options": 45, "race": 40}  # a run that gets less waits
_RACE_S = 60  # kept for the race after a long run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is searched, how often, and how long it may take."""
    parser.add_argument("--ops", nargs="+", choices=OPERATIONS, default=list(_DEFAULT_OPS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--searcher", default="scout", help="kt_lab's")
    parser.add_argument("--options", type=json.loads, default={}, help="of runs of their own")
    parser.add_argument("--long-s", type=float, default=100, help="of each long run, at most")
    parser.add_argument("--times", type=int, default=10, help="budget of the two long runs")
    parser.add_argument(
        "--uniform", type=int, default=1000, help="draws from the whole space, or 0"
    )
    parser.add_argument("--uniform-s", type=float, default=180, help="for them, at most")
    parser.add_argument("--lanes", type=int, help="compile workers; default: cores but two")
    parser.add_argument("--rounds", type=int, default=20, help="of the final race")
    parser.add_argument("--deadline-s", type=float, default=540, help="for the whole command")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Does what is not stored yet and fits the deadline."""
    facts = {name: getattr(args, name) for name in ("searcher", "options", "times", "uniform")}
    rows = Rows(args.out, facts | {"helion": version("helion")}, provenance(), again=False)
    rows.result["rows"] = [row for row in rows.result["rows"] if "error" not in row]
    ends = time.monotonic() + args.deadline_s
    for op in args.ops:
        wanted = _wanted(args)
        if all(rows.has({"op": op} | key) for key in wanted):
            continue
        with ExitStack() as stack:
            lab = None
            for key in wanted:
                long_s = args.uniform_s if key["run"] == "uniform" else args.long_s
                least_s = _LEAST_S.get(key["run"], long_s + _RACE_S)
                if rows.has({"op": op} | key) or ends - time.monotonic() < least_s:
                    continue
                done = rows.result["rows"]
                if key["run"] == "race":
                    stack.close()  # its processes give the GPU back
                    do = partial(_race, done, op, args.rounds, ends - time.monotonic())
                else:
                    lab = lab or stack.enter_context(_Lab(op, args))
                    do = partial(lab.do, key, done)
                    raced = {"op": op, "run": "race"}.items()  # without this run
                    rows.result["rows"] = [row for row in done if not raced <= row.items()]
                rows.once({"op": op} | key, do)
    return rows.result


def _wanted(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the rows of an operation in the order in which they are done."""
    each = ("helion", "scout", *(["options"] if args.options else []))
    pairs = [{"run": run_, "seed": seed} for seed in range(args.seeds) for run_ in each]
    once = ("long", *(["uniform"] if args.uniform else []), "helion_full", "race")
    return pairs + [{"run": run_, "seed": 0} for run_ in once]


class _Lab(HelionLab):
    """One operation and what is asked of it."""

    def __init__(self, op: str, args: argparse.Namespace):
        super().__init__(op, lanes=args.lanes, purpose="large")
        self._args = args

    def do(self, key: Mapping[str, Any], rows: Sequence[Mapping]) -> dict[str, Any]:
        """Does one run; returns its row."""
        kind, seed = key["run"], key["seed"]
        helion = {"op": self.op, "run": "helion", "seed": seed}.items()
        rival = next((row for row in rows if helion <= row.items()), None)
        began = time.perf_counter()
        if kind == "helion":
            found = self._helions("quick", Budget(seconds=self._args.long_s), seed)
        elif rival is None:
            raise UsageError(f"{self.op}: Helion's run of seed {seed} comes first, found none")
        elif kind == "helion_full":
            times = self._args.times * rival["trials"]
            found = self._helions("full", Budget(times, self._args.long_s), seed)
        else:
            found = self._ours(kind, rival, seed)
        return found | self.facts() | {"seconds": round(time.perf_counter() - began, 2)}

    def _helions(self, effort: str, budget: Budget, seed: int) -> dict[str, Any]:
        from kt_lab.evidence.helion_search import search

        told, picked = search(self.pool, self.bound, self.inputs, effort, seed=seed, budget=budget)
        row = as_row(told) | {"chosen_s": round(self.pool.now, 3)}
        return row | ({"config": picked} if picked else {})

    def _ours(self, kind: str, rival: Mapping[str, Any], seed: int) -> dict[str, Any]:
        """Runs a searcher of kt_lab; it knows what Helion's compiler would try first."""
        from kt_lab.evidence.helion_pool import PooledRunner

        args, limits = self._args, {}
        paired, drawn = kind in ("scout", "options"), kind == "uniform"
        if paired:
            seconds = rival.get("chosen_s", rival["elapsed_s"])  # older rows lack the former
            limits = {"trials": rival["trials"], "seconds": seconds}
            budget = Both(self.pool, **limits)
        elif drawn:
            budget = Budget(args.uniform, args.uniform_s)
        else:
            budget = Budget(args.times * rival["trials"], args.long_s)
        searcher = make_searcher(
            "random" if drawn else args.searcher,
            self.space.space,
            seed=seed,
            prior=self.prior(),
            **(args.options if kind in ("options", "long") else {}),
        )
        runner = PooledRunner(self.pool, self.space, most_s=_DRAW_S if drawn else None)
        note = budget.note if paired else None
        history = tune_whole(searcher, runner, budget=budget, on_trial=note)
        told = [self.told(trial) for trial in history]
        self.pool.settle()  # or the end would be chosen beside what is still compiled
        row = as_row(told, **limits, choose=self.chosen)
        if drawn:
            row["readings_us"] = [round(us, 3) if ok == OK else None for _, ok, us, *_ in told]
        return row | {"search_s": round(max((t.search_s for t in history), default=0.0), 3)}


class Both:
    """The budget of a run that must have had as many trials and as many seconds as another."""

    seconds = None  # no trial is too late

    def __init__(self, clock: Any, *, trials: int, seconds: float):
        """Takes what has `now`, seconds of the wall since the run began."""
        self._clock, self._trials, self._until_s, self._told = clock, trials, seconds, 0

    def note(self, trial: Trial) -> None:
        """Counts a trial of the first so many proposals: a later one may be told before them."""
        self._told += trial.proposal.id < self._trials

    def left(self, _: Spent) -> Left:
        """Returns nothing once both are reached, and no limit before."""
        enough = self._told >= self._trials and self._clock.now >= self._until_s
        left = 0.0 if enough else math.inf
        return Left(trials=left, seconds=left)


def as_row(
    told: Sequence[tuple],
    *,
    trials: int | None = None,
    seconds: float = math.inf,
    choose: Callable[[Sequence[tuple]], Any] | None = None,
) -> dict[str, Any]:
    """Returns what is stored of a run.

    Args:
        told: (seconds, status, microseconds, config) of its trials as they finished, of ours with
            the number of the proposal, from 0.
        trials: As many as another run had; None: there is none to compare with.
        seconds: As many as that took until it had chosen its end.
        choose: Tells the config that such a part of the run ends with; None: its incumbent.

    Returns:
        trials; elapsed_s of the last; statuses, how many of each; bests: [trials so far,
        elapsed_s, microseconds] of each incumbent; config, the last one's. Beside another run,
        instead of the config: as_many, of the first so many proposals, and as_long, of so many
        seconds less those that `choose` took for the former, each with the config it ends with
        (None: nothing worked), trials told and elapsed_s of the last; and choose_s.
    """
    found = _held(told)
    statuses = [status for _, status, *_ in told]
    row = {
        "trials": len(told),
        "elapsed_s": found["elapsed_s"],
        "statuses": {name: statuses.count(name) for name in sorted(set(statuses))},
        "bests": found["bests"],
    }
    if trials is None:
        return row | {"config": found["config"]}
    began = time.perf_counter()
    row["as_many"] = _part([t for t in told if t[4] < trials], choose)
    row["choose_s"] = round(time.perf_counter() - began, 3) if choose else 0.0
    until_s = seconds - row["choose_s"]
    row["as_long"] = _part([t for t in told if t[0] <= until_s], choose)
    return row


def _part(told: Sequence[tuple], choose: Callable | None) -> dict[str, Any]:
    """Returns with what a part of a run ends, and after how much."""
    row = {name: value for name, value in _held(told).items() if name != "bests"}
    chosen = row["config"] if choose is None else choose(told)
    return row | {"config": None if chosen is None else dict(chosen)}


def _held(told: Sequence[tuple]) -> dict[str, Any]:
    """Returns the last incumbent's config, all incumbents, and how much it took."""
    best_us, bests, best = math.inf, [], None
    for number, (elapsed_s, status, us, config, *_) in enumerate(told, start=1):
        if status == OK and us < best_us:
            best_us, best = us, dict(config)
            bests.append([number, round(elapsed_s, 3), round(us, 3)])
    elapsed_s = round(told[-1][0], 3) if told else 0.0
    return {"config": best, "trials": len(told), "elapsed_s": elapsed_s, "bests": bests}


# -- the race -------------------------------------------------------------------------------------


def contenders(rows: Sequence[Mapping[str, Any]], op: str) -> list[dict[str, Any]]:
    """Returns what is timed in the end: what each run ended with, by a name.

    That is its last incumbent, or what Helion's search chose, having timed the best again; of
    ours beside Helion's what it held after as many configs, and after as many seconds ("/s").
    """
    found = [{"name": "torch", "side": "torch", "config": {}}]
    for row in rows:
        if row["op"] != op or not row.get("bests"):
            continue
        name = f"{row['run']}/{row['seed']}"
        if "as_many" in row:
            ends = {name: row["as_many"]["config"], f"{name}/s": row["as_long"]["config"]}
        else:
            ends = {name: row["config"]}
        found += [{"name": n, "side": "helion", "config": c} for n, c in ends.items() if c]
    return found


def _race(rows: Sequence[Mapping], op: str, rounds: int, left_s: float) -> dict[str, Any]:
    """Times all contenders in alternation."""
    return race(op, contenders(rows, op), rounds=rounds, left_s=left_s)

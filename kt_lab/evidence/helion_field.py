"""Helion's searches against each other in Helion's own spaces, live: the claim of helion #1115.

The pull request that brought LFBO pattern search compares it with pattern search, differential
evolution, its surrogate hybrid and UCB by the latency of what they end with, their wall-clock and
how soon they converge. Here Helion's classes run on the workers of `kt_lab.evidence.helion_lab`
at one of Helion's effort profiles from a random first population, as all did then. UCB, which
Helion never shipped, is kt_lab's, and stops by itself; `scout` gets as many configs as Helion's
LFBO pattern search of that seed, `scout_as_long` as many seconds as its pattern search. All that
won is timed in alternation in one process in the end.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from typing import Any

from kt_lab.budget import Budget
from kt_lab.errors import UsageError
from kt_lab.evidence.beside_helion import OPERATIONS
from kt_lab.evidence.helion_field_page import report
from kt_lab.evidence.helion_field_tables import AS_LONG, LFBO, REFERENCE
from kt_lab.evidence.helion_lab import HelionLab, race
from kt_lab.evidence.large import Both, as_row
from kt_lab.evidence.resuming import Rows
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.facts import gpu_name
from kt_lab.search import make_searcher
from kt_lab.tune import tune_whole

__all__ = ["HELIONS", "OURS", "REFERENCE", "add_arguments", "report", "run"]

# names of searchers -> Helion's `search_algorithms`
HELIONS = {
    REFERENCE: "PatternSearch",
    LFBO: "LFBOPatternSearch",
    "helion_lfbo_tree": "LFBOTreeSearch",
    "helion_de": "DifferentialEvolutionSearch",
    "helion_de_surrogate": "DESurrogateHybrid",
    "helion_random": "RandomSearch",
}
OURS = ("scout", AS_LONG, "ucb_pattern")
_RIVALS = {"scout": LFBO, AS_LONG: REFERENCE}  # whose configs, whose seconds it has
# of UCB by effort: as Helion's profiles of pattern search
_UCB = {
    "quick": {
        "initial_population": 30,
        "copies": 2,
        "max_generations": 5,
        "rebenchmark_threshold": 0.9,
    },
    "full": {"initial_population": 100, "copies": 5, "max_generations": 20},
}
_OPS = ("softmax", "swiglu", "rms_norm", "layer_norm", "matmul", "int4_gemm")
_RACE_S = 45  # kept for the race


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what searches where, how often, and how long it may take."""
    parser.add_argument("--ops", nargs="+", choices=OPERATIONS, default=list(_OPS))
    parser.add_argument("--effort", choices=("quick", "full"), default="quick")
    searches = [*HELIONS, *OURS]
    parser.add_argument("--searches", nargs="+", choices=searches, default=searches)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--most-s", type=float, default=120, help="of each run; then it is cut")
    parser.add_argument("--lanes", type=int, help="compile workers; default: cores but two")
    parser.add_argument(
        "--share-code",
        action="store_true",
        help="time configs that Helion writes the same code for once, which Helion does not",
    )
    parser.add_argument("--rounds", type=int, default=20, help="of the final race")
    parser.add_argument("--deadline-s", type=float, default=540, help="for the whole command")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Does what is not stored yet and fits the deadline."""
    facts = {"helion": version("helion"), "gpu": gpu_name(), "shared_code": args.share_code}
    rows = Rows(args.out, facts, provenance(), again=False)
    rows.result["rows"] = [row for row in rows.result["rows"] if "error" not in row]
    ends = time.monotonic() + args.deadline_s
    for op in args.ops:
        about = {"op": op, "effort": args.effort}
        runs = [{"search": s, "seed": n} for n in range(args.seeds) for s in args.searches]
        with ExitStack() as stack:
            lab = None
            for key in runs:
                short = ends - time.monotonic() < args.most_s + _RACE_S
                if rows.has(about | key) or short or not _may(rows.result["rows"], about | key):
                    continue
                lab = lab or stack.enter_context(_Lab(op, args))
                done = rows.result["rows"]
                raced = (about | {"search": "race"}).items()  # without this run
                rows.result["rows"] = [row for row in done if not raced <= row.items()]
                rows.once(about | key, partial(lab.do, key, done))
            stack.close()  # its processes give the GPU back
            key = about | {"search": "race", "seed": 0}
            found = contenders(rows.result["rows"], about)
            left_s = ends - time.monotonic()
            if len(found) > 1 and not rows.has(key) and left_s > _RACE_S / 2:
                rows.once(key, partial(race, op, found, rounds=args.rounds, left_s=left_s))
    return rows.result


def _may(rows: Sequence[Mapping[str, Any]], key: Mapping[str, Any]) -> bool:
    """Whether a run can be done: scout needs to know what its rival spent."""
    return key["search"] not in _RIVALS or rival(rows, key) is not None


def rival(rows: Sequence[Mapping[str, Any]], key: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the row of the search that one of ours spends as much as; None: not done yet."""
    same = (dict(key) | {"search": _RIVALS.get(key["search"])}).items()
    return next((row for row in rows if same <= row.items()), None)


def contenders(
    rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns what is timed in the end: torch, and what each run ended with, as search/seed."""
    found = [{"name": "torch", "side": "torch", "config": {}}]
    for row in rows:
        if about.items() <= row.items() and row.get("config"):
            name = f"{row['search']}/{row['seed']}"
            found.append({"name": name, "side": "helion", "config": row["config"]})
    return found


class _Lab(HelionLab):
    """One operation and what is asked of it."""

    def __init__(self, op: str, args: argparse.Namespace):
        how = {"lanes": args.lanes, "share_code": args.share_code}
        super().__init__(op, purpose="helion_field", **how)
        self._args = args

    def do(self, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Does one run; returns its row, whose elapsed_s lasts until its end is chosen."""
        key = {"op": self.op, "effort": self._args.effort} | dict(key)
        told, end = self._helions(key) if key["search"] in HELIONS else self._ours(key, rows)
        seconds = {"elapsed_s": self.pool.now, "waited_s": self.pool.waited_s}
        row = as_row(told) | {name: round(s, 3) for name, s in seconds.items()}
        row["most_s"] = self._args.most_s
        row["cut"] = end is None
        if end is not None:
            row["config"] = dict(end)
        return row | self.facts()

    def _helions(self, key: Mapping[str, Any]) -> tuple[list[tuple], Any]:
        from kt_lab.evidence.helion_search import search

        return search(
            self.pool,
            self.bound,
            self.inputs,
            key["effort"],
            seed=key["seed"],
            budget=Budget(seconds=self._args.most_s),
            algorithm=HELIONS[key["search"]],
            random_start=True,
        )

    def _ours(
        self, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
    ) -> tuple[list[tuple], Any]:
        from kt_lab.evidence.helion_pool import PooledRunner

        name = key["search"]
        other = rival(rows, key)
        if name in _RIVALS and other is None:
            raise UsageError(
                f"{self.op}: {name} gets as much as {_RIVALS[name]} of seed {key['seed']}, which "
                "comes first; found none"
            )
        options = _UCB[key["effort"]] if name == "ucb_pattern" else {}
        algorithm = "scout" if name in _RIVALS else name
        searcher = make_searcher(
            algorithm, self.space.space, seed=key["seed"], prior=self.prior(), **options
        )
        budget = self._budget(name, other)
        history = tune_whole(searcher, PooledRunner(self.pool, self.space), budget=budget)
        told = [self.told(trial) for trial in history]
        cut = name != AS_LONG and self.pool.now >= self._args.most_s
        return told, None if cut else self.chosen(told)

    def _budget(self, name: str, other: Mapping[str, Any] | None) -> Budget | Both:
        """Returns what a search of ours may spend, who has as much as `other` or no rival."""
        if other is None:
            return Budget(seconds=self._args.most_s)
        if name == AS_LONG:  # seconds of the wall: lanes go on while it thinks
            return Both(self.pool, trials=0, seconds=other["elapsed_s"])  # though it was cut
        return Budget(other["trials"], self._args.most_s)

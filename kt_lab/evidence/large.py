"""Helion's own spaces, of 10^11 configs and more: the flagship beside Helion's LFBOTree, live.

Both choose configs of Helion's kernel, and both have them generated, compiled, checked and timed
by the same workers (`kt_lab.evidence.helion_pool`): what differs is the search. Helion's runs as
its users get it, its class with its effort profile, its priors and its generator of configs; it
says when it is done, and ours of that seed gets as many configs. No optimum is known: the
reference is the best of all runs, of two runs of ten times the budget among them, and of uniform
draws. All that won is timed in alternation in one process in the end. The GPU is the first that
CUDA_VISIBLE_DEVICES names.
"""

import argparse
import logging
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.budget import Budget
from kt_lab.evidence.beside_helion import OPERATIONS, execute
from kt_lab.evidence.large_tables import report
from kt_lab.evidence.resuming import Rows
from kt_lab.provenance import provenance
from kt_lab.runners.workers import usable_cores
from kt_lab.search import make_searcher
from kt_lab.trial import OK, History
from kt_lab.tune import tune

__all__ = ["add_arguments", "report", "run"]

_DEFAULT_OPS = ("int4_gemm", "matmul", "layer_norm", "swiglu")
_TRIALS = 65  # of a seed that Helion has not run
_LEAST_S = {"helion": 60, "scout": 40, "long": 150, "helion_full": 150, "uniform": 120, "race": 60}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is searched, how often, and how long it may take."""
    parser.add_argument("--ops", nargs="+", choices=OPERATIONS, default=list(_DEFAULT_OPS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--searcher", default="scout", help="kt_lab's")
    parser.add_argument("--times", type=int, default=10, help="budget of the two long runs")
    parser.add_argument("--uniform", type=int, default=1000, help="draws from the whole space")
    parser.add_argument("--lanes", type=int, help="compile workers; default: cores but two")
    parser.add_argument("--rounds", type=int, default=20, help="of the final race")
    parser.add_argument("--deadline-s", type=float, default=540, help="for the whole command")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Does what is not stored yet and fits the deadline."""
    import helion

    facts = {name: getattr(args, name) for name in ("searcher", "times", "uniform")}
    rows = Rows(args.out, facts | {"helion": helion.__version__}, provenance(), again=False)
    ends = time.monotonic() + args.deadline_s
    for op in args.ops:
        wanted = _wanted(args)
        if all(rows.has({"op": op} | key) for key in wanted):
            continue
        with ExitStack() as stack:
            lab = None
            for key in wanted:
                if rows.has({"op": op} | key) or ends - time.monotonic() < _LEAST_S[key["run"]]:
                    continue
                done = rows.result["rows"]
                if key["run"] == "race":
                    stack.close()  # its processes give the GPU back
                    do = partial(_race, done, op, args.rounds, ends - time.monotonic())
                else:
                    lab = lab or stack.enter_context(_Lab(op, args))
                    do = partial(lab.do, key, done)
                rows.once({"op": op} | key, do)
    return rows.result


def _wanted(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the rows of an operation in the order in which they are done."""
    pairs = [{"run": run_, "seed": s} for s in range(args.seeds) for run_ in ("helion", "scout")]
    once = ("uniform", "long", "helion_full", "race")
    return pairs + [{"run": run_, "seed": 0} for run_ in once]


class _Lab(ExitStack):
    """One operation bound on the GPU, its space and its workers."""

    def __init__(self, op: str, args: argparse.Namespace):
        super().__init__()
        from kt_lab.evidence.helion_kernels import arguments, bound
        from kt_lab.evidence.helion_pool import Pool
        from kt_lab.evidence.helion_space import HelionSpace
        from kt_lab.evidence.side_by_side import Bench, locked

        self.enter_context(locked({"do": "large", "workload": OPERATIONS[op]}))
        self._op, self._args = op, args
        bench = Bench(OPERATIONS[op])
        kernel = bench.workload.kernel
        self._inputs = arguments(kernel, bench.inputs)
        self._bound = bound(kernel, bench.inputs)
        self._space = HelionSpace(self._bound)
        folder = self.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        lanes = args.lanes or max(1, usable_cores() - 2)
        self._pool = self.enter_context(Pool(bench.workload.key, folder=Path(folder), lanes=lanes))
        began = time.perf_counter()
        default = self._space.helion(self._space.space.default)
        for lane in range(lanes):  # until all have started and compiled something
            self._pool.submit(lane, default)
        while self._pool.pending:
            self._pool.next()
        self._startup_s = time.perf_counter() - began

    def do(self, key: Mapping[str, Any], rows: Sequence[Mapping]) -> dict[str, Any]:
        """Does one run; returns its row."""
        kind, seed = key["run"], key["seed"]
        told = {r["seed"]: r for r in rows if (r["op"], r["run"]) == (self._op, "helion")}
        trials = told[seed]["trials"] if seed in told else _TRIALS
        began = time.perf_counter()
        if kind in ("helion", "helion_full"):
            most = math.inf if kind == "helion" else trials * self._args.times
            effort = {"helion": "quick", "helion_full": "full"}[kind]
            found = _helion(self._pool, self._bound, self._inputs, effort, seed=seed, most=most)
        else:
            searcher = "random" if kind == "uniform" else self._args.searcher
            budget = {"long": trials * self._args.times, "uniform": self._args.uniform}
            found = self._ours(searcher, budget.get(kind, trials), seed=seed)
        return found | {
            "startup_s": round(self._startup_s, 2),
            "lanes": self._pool.lanes,
            "size": float(math.prod(p.cardinality for p in self._space.space.parameters)),
            "seconds": round(time.perf_counter() - began, 2),
        }

    def _ours(self, name: str, trials: int, *, seed: int) -> dict[str, Any]:
        from kt_lab.evidence.helion_pool import PooledRunner

        searcher = make_searcher(name, self._space.space, seed=seed)
        history = tune(searcher, PooledRunner(self._pool, self._space), budget=Budget(trials))
        told = [
            (t.elapsed_s, t.status, t.latency_us, self._space.helion(t.config))
            if t.status == OK
            else (t.elapsed_s, t.status, None, None)
            for t in history
        ]
        return _row(told) | {"search_s": round(_search_s(history), 3)}


def _search_s(history: History) -> float:
    return max((trial.search_s for trial in history), default=0.0)


def _row(told: Sequence[tuple]) -> dict[str, Any]:
    """Returns what is stored of a run, from (seconds, status, microseconds, config) of its trials.

    Returns:
        trials; elapsed_s of the last; statuses, how many of each; readings_us in order, None for
        what failed; bests: [trials so far, elapsed_s, microseconds, config] of each incumbent.
    """
    best_us, bests = math.inf, []
    for number, (elapsed_s, status, us, config) in enumerate(told, start=1):
        if status == OK and us < best_us:
            best_us = us
            bests.append([number, round(elapsed_s, 3), us, dict(config)])
    statuses = [status for _, status, *_ in told]
    return {
        "trials": len(told),
        "elapsed_s": round(told[-1][0], 3) if told else 0.0,
        "statuses": {name: statuses.count(name) for name in sorted(set(statuses))},
        "readings_us": [round(us, 3) if status == OK else None for _, status, us, _ in told],
        "bests": bests,
    }


# -- Helion's search ------------------------------------------------------------------------------


class _Enough(Exception):
    """Ends Helion's search when its budget is spent."""


def _helion(
    pool: Any, bound: Any, inputs: Sequence[Any], effort: str, *, seed: int, most: float
) -> dict[str, Any]:
    """Runs Helion's LFBOTreeSearch as `@helion.kernel` does, but for who measures."""
    from helion.autotuner import search_algorithms
    from helion.autotuner.effort_profile import get_effort_profile

    pool.begin()
    told: list[tuple] = []
    tags = iter(range(10**9))

    def measured(configs: Sequence[Mapping], submit: Callable) -> list[Any]:
        """Returns the measurements of a batch, in its order; notes them as they finish."""
        at = {(tag := next(tags)): (n, submit(tag, c)) for n, c in enumerate(configs)}
        found: list[Any] = [None] * len(configs)
        while pool.pending:
            tag, measurement = pool.next()
            number = at[tag][0]
            found[number] = measurement
            if submit == pool.submit:
                us = measurement.latency_us
                told.append((pool.now, measurement.status, us, configs[number]))
        return found

    def measure(configs: Sequence[Mapping]) -> list[float]:
        room = int(min(len(configs), most - len(told)))
        found = measured(configs[:room], pool.submit)
        if len(told) >= most:
            raise _Enough
        return [m.latency_us if m.status == OK else math.inf for m in found]

    def retime(calls: Sequence[Callable], **_: Any) -> list[float]:
        found = measured([dict(call()) for call in calls], pool.again)
        return [m.latency_us / 1e3 if m.status == OK else math.inf for m in found]

    settings = bound.settings
    settings.autotune_random_seed, settings.autotune_effort = seed, effort
    settings.autotune_progress_bar, settings.autotune_log_level = False, logging.CRITICAL
    settings.autotune_benchmark_fn = retime
    settings.autotune_ignore_errors = True
    cls = search_algorithms["LFBOTreeSearch"]
    profile = cls.get_kwargs_from_profile(get_effort_profile(effort), settings)
    search = cls(bound, inputs, **profile)
    search._benchmark_provider_cls = _provider(measure)
    try:
        picked = {"picked": dict(search.autotune(skip_cache=True))}
    except _Enough:
        picked = {}
    return _row(told) | picked


def _provider(measure: Callable[[Sequence[Mapping]], list[float]]) -> type:
    """Returns a benchmark provider of Helion's that asks `measure` for microseconds."""
    from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult

    class Provider(BenchmarkProvider):
        mutated_arg_indices = ()

        def __init__(self, *_: Any, autotune_metrics: Any, **__: Any):
            self._metrics = autotune_metrics

        def setup(self) -> None:
            """Nothing to prepare."""

        def cleanup(self) -> None:
            """Nothing to release."""

        def benchmark(self, configs, *, desc="", **_):  # noqa: ARG002
            self._metrics.num_configs_tested += len(configs)
            latencies = zip(configs, measure([dict(c) for c in configs]), strict=True)
            return [
                BenchmarkResult(
                    c, lambda *_, c=c: c, us / 1e3, "ok" if us < math.inf else "error", None
                )
                for c, us in latencies
            ]

    return Provider


# -- the race -------------------------------------------------------------------------------------


def contenders(rows: Sequence[Mapping[str, Any]], op: str) -> list[dict[str, Any]]:
    """Returns what is timed in the end: of each run its last incumbent, by a name.

    Of the runs of a seed also what each held when the quicker of the two ended, as "/equal".
    """
    own = {(row["run"], row["seed"]): row for row in rows if row["op"] == op}
    found = [{"name": "torch", "side": "torch", "config": {}}]
    for (kind, seed), row in own.items():
        if not row.get("bests"):
            continue
        last = row["bests"][-1]  # or what Helion's search says itself, having timed the best again
        held = {"end": [*last[:3], row.get("picked", last[3])]}
        rival = own.get(({"helion": "scout", "scout": "helion"}.get(kind), seed))
        if rival is not None:
            by_then = [b for b in row["bests"] if b[1] <= rival["elapsed_s"]]
            held |= {"equal": by_then[-1]} if by_then else {}
        found += [
            {"name": f"{kind}/{seed}/{when}", "side": "helion", "config": best[3]}
            for when, best in held.items()
            if when == "end" or best[3] != held["end"][3]
        ]
    return found


def _race(rows: Sequence[Mapping], op: str, rounds: int, left_s: float) -> dict[str, Any]:
    """Times all contenders in alternation in a process of its own."""
    task = {"do": "race", "workload": OPERATIONS[op], "rounds": rounds, "seed": 0}
    task |= {"contenders": contenders(rows, op), "effort": "quick"}
    answer = execute(task, limit_s=left_s)
    if "error" in answer:
        sys.stderr.write(f"{op}: {answer['error']}\n")
        return {"error": answer["error"]}
    medians = {
        timer: np.median(np.asarray(blocks, dtype=float), axis=0).round(4).tolist()
        for timer, blocks in answer["blocks_us"].items()
        if not isinstance(blocks, str)
    }
    wrong = {c["name"]: c["wrong"] for c in answer["contenders"] if c["wrong"]}
    return {"names": answer["names"], "medians_us": medians, "wrong": wrong, "rounds": rounds}

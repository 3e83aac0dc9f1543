"""kt-lab tune: search on this machine's GPU, confirm what was found, store the winner."""

import argparse
import json
import time
from pathlib import Path

from kt_lab.budget import Budget
from kt_lab.commands import add_from, kernel_from
from kt_lab.errors import UsageError
from kt_lab.live import FINALISTS, LiveResult, tune_live
from kt_lab.prior import Prior
from kt_lab.runners.gpu.protocols import PROTOCOLS
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.transfer import KNOWLEDGE, prior_named
from kt_lab.trial import Trial

_EVERY_S = 2.0
_TRIALS = 200  # of a search without other limits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to tune, how, and for how long."""
    parser.add_argument("workload", help="softmax/4096x640, or any other shape of a kernel")
    add_from(parser)
    parser.add_argument("--searcher", default="scout")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of the searcher"
    )
    parser.add_argument("--trials", type=int, help="at most; default: 200, without --seconds")
    parser.add_argument("--seconds", type=float, help="of the machine, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--known",
        choices=KNOWLEDGE,
        default="nothing",
        help="start from what is recorded of the kernel's other shapes, or also from the stored "
        "runs at the shapes nearest; scout makes most of it, random, tpe, optuna and "
        "coordinate_descent make nothing of it",
    )
    parser.add_argument("--finalists", type=int, default=FINALISTS)
    add_gpu(parser)
    parser.add_argument("--directory", type=Path, default=None, help="default: data")
    parser.add_argument("--afresh", action="store_true", help="put an earlier journal aside")


def add_gpu(parser: argparse.ArgumentParser) -> None:
    """Adds on which GPU, and how it is timed."""
    parser.add_argument("--protocol", choices=PROTOCOLS, default="events")
    parser.add_argument("--device", type=int, default=0, help="index of the GPU")
    parser.add_argument("--workers", type=int, default=None, help="compile processes")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a busy GPU")


def budget_of(args: argparse.Namespace) -> Budget:
    """Returns the limits that were given: seconds alone do not end after the usual trials."""
    usual = _TRIALS if args.seconds is None else None
    return Budget(trials=usual if args.trials is None else args.trials, seconds=args.seconds)


def run(args: argparse.Namespace) -> int:
    """Tunes; exit code 130 if Ctrl-C ended it (what was found is stored all the same)."""
    with _opened(args) as runner:
        print(
            f"{runner.facts['gpu']}, Triton {runner.facts['triton']}: up in "
            f"{runner.startup_s:.1f} s; {runner.space.size:,} configs"
        )
        prior = _known(runner, args.known)
        result = tune_live(
            runner,
            searcher=args.searcher,
            options=_options(args.option),
            budget=budget_of(args),
            seed=args.seed,
            finalists=args.finalists,
            prior=prior,
            directory=args.directory,
            resume=not args.afresh,
            on_trial=_Line(),
        )
    print(told(result))
    return 130 if result.interrupted else 0


def _opened(args: argparse.Namespace) -> GpuRunner:
    return GpuRunner(
        args.workload,
        kernel=kernel_from(args.source, args.workload),
        device=args.device,
        protocol=args.protocol,
        compile_workers=args.workers,
        wait_s=args.wait,
    )


def _known(runner: GpuRunner, wanted: str) -> Prior | None:
    """Returns what the search starts from, and says how much that is."""
    prior = prior_named(wanted, runner.workload, gpu=runner.facts["slug"])
    if prior is None:
        return None
    sources = dict.fromkeys(f"{r.workload} on {r.gpu}" for r in prior.readings)
    print(
        f"knows {len(prior.readings):,} readings of {', '.join(sources)}"
        if sources
        else f"nothing is known of other shapes of {runner.kernel.name}: a cold search"
    )
    return prior


def told(result: LiveResult) -> str:
    """Returns what a live run came to, in a few lines."""
    winner, confirmation = result.winner, result.confirmation
    lines = [
        f"{winner.trials} trials in {result.search_s:.1f} s, {result.elapsed_s:.1f} s with the "
        "confirmation",
        f"winner {winner.config}",
        confirmation.describe() if confirmation else "not confirmed",
    ]
    if winner.latency_us and winner.default_us:
        lines.append(
            f"{winner.latency_us:.2f} us, default {winner.default_us:.2f} us, by {winner.protocol}"
        )
    return "\n".join([*lines, f"stored in {result.path}"])


_OF_THE_RUN = ("space", "seed", "budget", "prior")


def _options(pairs: list[str]) -> dict:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"an option must be NAME=VALUE, got {pair!r}")
        if name in _OF_THE_RUN:
            raise UsageError(
                f"an option must be the searcher's, got {pair!r}; give the run's own by --seed, "
                "--trials, --seconds or --known"
            )
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


class _Line:
    """Prints the incumbent every few seconds."""

    def __init__(self):
        self._last, self._best = 0.0, float("inf")
        self._failures = 0

    def __call__(self, trial: Trial) -> None:
        self._failures += trial.status not in ("ok", "censored")
        self._best = min(self._best, trial.latency_us or float("inf"))
        if time.monotonic() - self._last >= _EVERY_S:
            self._last = time.monotonic()
            print(
                f"{trial.elapsed_s:6.1f} s  trial {trial.number + 1}: incumbent "
                f"{self._best:.2f} us, {self._failures} failed",
                flush=True,
            )

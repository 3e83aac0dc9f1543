"""kt-lab recheck: do stored winners still hold, under this Triton, driver and GPU?"""

import argparse
from pathlib import Path

import numpy as np

from kt_lab.decisions import HOLDS, Winner, load_winner, matches, recheck, winners
from kt_lab.errors import StoreError
from kt_lab.kernels import REGISTRY, get_kernel
from kt_lab.provenance import kernel_source
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.trial import OK, Config, Proposal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which winners."""
    parser.add_argument("workloads", nargs="*", help="keys; default: every stored winner")
    parser.add_argument("--gpu", default=None, help="the GPU they were found on, if several")
    parser.add_argument("--directory", type=Path, default=None, help="default: data/winners")
    parser.add_argument("--device", type=int, default=0, help="index of the GPU to check on")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a busy GPU")


def run(args: argparse.Namespace) -> int:
    """Rechecks; exit code 1 if a winner does not hold."""
    stored = {(key, gpu) for key, gpu, _ in winners(args.directory) if args.gpu in (None, gpu)}
    chosen = [(key, gpu) for key, gpu in sorted(stored) if key in (args.workloads or [key])]
    missing = set(args.workloads) - {key for key, _ in chosen}
    if missing or not chosen:
        known = ", ".join(f"{k} ({g})" for k, g in sorted(stored)) or "none"
        named = f" for {', '.join(sorted(missing))}" if missing else ""
        raise StoreError(
            f"a recheck needs stored winners, got none{named}; stored: {known}; "
            "kt-lab tune stores the winner of a live search"
        )
    held = 0
    for key, gpu in chosen:
        winner = load_winner(key, gpu=gpu, directory=args.directory)
        held += _recheck(winner, args) == HOLDS
    print(f"{held} of {len(chosen)} winners hold")
    return 0 if held == len(chosen) else 1


def _recheck(winner: Winner, args: argparse.Namespace) -> str:
    if winner.kernel not in REGISTRY:
        print(f"{winner.key}: its kernel is not registered here; recheck it from Python")
        return "unknown"
    with GpuRunner(winner.key, device=args.device, wait_s=args.wait) as runner:
        changed = matches(
            winner,
            kernel_source=kernel_source(get_kernel(winner.kernel)),
            gpu=runner.facts["slug"],
            triton=runner.facts["triton"],
            driver=runner.sensors[0]["driver"],
        )
        configs = dict.fromkeys([winner.config, winner.default, *winner.finalists])
        wrong = _wrong(runner, [c for c in configs if runner.space.contains(c)])
        found = recheck(winner, _Right(runner, wrong), changed=changed)
    print(f"{winner.key} on {runner.facts['gpu']}: {found.describe()}")
    return found.verdict


def _wrong(runner: GpuRunner, configs: list[Config]) -> set[Config]:
    """Returns those that do not compile, launch or compute any more."""
    runner.submit([Proposal(i, config) for i, config in enumerate(configs)])
    answers = [runner.next() for _ in configs]
    return {proposal.config for proposal, found in answers if found.status != OK}


class _Right:
    """A racer for which a config that fails its check fails every race."""

    def __init__(self, runner: GpuRunner, wrong: set[Config]):
        self._runner, self._wrong = runner, wrong

    def race(self, configs, *, rounds: int, repetitions: int):
        """Returns block medians; NaN for what is wrong or not in the space any more."""
        blocks = np.full((rounds, len(configs)), np.nan)
        fit = [
            i
            for i, config in enumerate(configs)
            if config not in self._wrong and self._runner.space.contains(config)
        ]
        if fit:
            blocks[:, fit] = self._runner.race(
                [configs[i] for i in fit], rounds=rounds, repetitions=repetitions
            )
        return blocks

"""kt-lab recheck: do stored winners still hold, under this Triton, driver and GPU?"""

import argparse
from collections import Counter
from pathlib import Path

from kt_lab.commands import add_from, kernels_from
from kt_lab.decisions import HOLDS, Winner, load_winner, matches, recheck, winners
from kt_lab.errors import StoreError
from kt_lab.kernels import REGISTRY, get_kernel
from kt_lab.provenance import kernel_source
from kt_lab.runners.gpu.protocols import PROTOCOLS
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.trial import Proposal
from kt_lab.workload import Kernel

_UNKNOWN = "not checked"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which winners."""
    parser.add_argument("workloads", nargs="*", help="keys; default: every stored winner")
    add_from(parser)
    parser.add_argument("--gpu", default=None, help="the GPU they were found on, if several")
    parser.add_argument("--directory", type=Path, default=None, help="default: data/winners")
    parser.add_argument("--device", type=int, default=0, help="index of the GPU to check on")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds to wait for a busy GPU")


def run(args: argparse.Namespace) -> int:
    """Rechecks; exit code 1 if a winner that could be checked does not hold."""
    stored = sorted((key, gpu) for key, gpu, _ in winners(args.directory))
    here = [(key, gpu) for key, gpu in stored if args.gpu in (None, gpu)]
    chosen = [(key, gpu) for key, gpu in here if key in (args.workloads or [key])]
    missing = set(args.workloads) - {key for key, _ in chosen}
    if missing or not chosen:
        known = ", ".join(f"{k} ({g})" for k, g in stored) or "none"
        named = f" for {', '.join(sorted(missing))}" if missing else ""
        named += f" of {args.gpu}" if args.gpu else ""
        raise StoreError(
            f"a recheck needs stored winners, got none{named}; stored: {known}; "
            "kt-lab tune stores the winner of a live search"
        )
    own, verdicts = kernels_from(args.source), Counter[str]()
    for key, gpu in chosen:
        winner = load_winner(key, gpu=gpu, directory=args.directory)
        verdicts[_recheck(winner, own.get(winner.kernel), args)] += 1
    unknown = verdicts.pop(_UNKNOWN, 0)
    apart = f", {unknown} not checked" if unknown else ""
    print(f"{verdicts[HOLDS]} of {verdicts.total()} winners hold{apart}")
    return 0 if verdicts[HOLDS] == verdicts.total() else 1


def _recheck(winner: Winner, own: Kernel | None, args: argparse.Namespace) -> str:
    if own is None and winner.kernel not in REGISTRY:
        print(
            f"{winner.key}: not checked, its kernel is not registered here; name the file that "
            "captures it with --from"
        )
        return _UNKNOWN
    named = {protocol.name: short for short, protocol in PROTOCOLS.items()}
    how = {"device": args.device, "wait_s": args.wait}
    how |= {"kernel": own} if own else {}
    with GpuRunner(winner.key, protocol=named.get(winner.protocol, "events"), **how) as runner:
        changed = matches(
            winner,
            kernel_source=kernel_source(own or get_kernel(winner.kernel)),
            gpu=runner.facts["slug"],
            triton=runner.facts["triton"],
            driver=runner.sensors[0]["driver"],
        )
        if winner.protocol not in named:
            told = f"the timing protocol is {runner.protocol.name}, and was {winner.protocol}"
            changed.append(f"{told} when this winner was found")
        configs = dict.fromkeys([winner.config, winner.default, *winner.finalists])
        held = [config for config in configs if runner.space.contains(config)]
        runner.submit([Proposal(i, config) for i, config in enumerate(held)])
        for _ in held:  # what does not compile, launch or compute any more fails every race
            runner.next()
        found = recheck(winner, runner, changed=changed)
    print(f"{winner.key} on {runner.facts['gpu']}: {found.describe()}")
    return found.verdict

"""kt-lab dispatch: one guarded decision per shape, and the table from tuning key to config."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kt_lab.budget import Budget
from kt_lab.commands import add_from, kernel_from, workloads_named
from kt_lab.commands.listing import aligned
from kt_lab.commands.tune import add_gpu
from kt_lab.decisions import Winner
from kt_lab.dispatching import gated_space, here, stored_dispatch, tune_guarded
from kt_lab.errors import UsageError
from kt_lab.kernels import get_kernel
from kt_lab.kernels.moe_spaces import ARCHITECTURES, PUBLISHED
from kt_lab.keys import Dispatch, Key
from kt_lab.runners.gpu.facts import gpu_arch
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.space import ParameterSpace
from kt_lab.workload import Kernel, Workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to decide on, how, and on which key."""
    parser.add_argument(
        "shapes", nargs="+", help="of one kernel: softmax/4096x640, any other shape, or softmax"
    )
    add_from(parser)
    parser.add_argument("--stored", action="store_true", help="tune nothing: say what is decided")
    parser.add_argument(
        "--key", nargs="+", metavar="TERM", help="N, next_power_of_two(M)..; default: every extent"
    )
    parser.add_argument("--configs", type=int, default=None, help="at most so many for all shapes")
    parser.add_argument("--objective", choices=("geomean", "minimax"), default="geomean")
    parser.add_argument("--space", default="wide", help="a published space of a MoE kernel")
    parser.add_argument("--searcher", default="scout")
    parser.add_argument("--trials", type=int, default=200, help="of each search")
    parser.add_argument("--seconds", type=float, default=None, help="of each search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, help="in which a pick must win")
    add_gpu(parser)
    parser.add_argument("--directory", type=Path, default=None, help="default: data/winners")
    parser.add_argument("--json", action="store_true", help="print the table alone, as JSON")


def run(args: argparse.Namespace) -> int:
    """Decides, unless only what is stored is asked for, and prints the table."""
    own = kernel_from(args.source, args.shapes[0])
    if own and args.space != "wide":
        law = "--space names a published space of a kernel that ships"
        raise UsageError(f"{law}, got {args.space} with --from; leave it out")
    shapes = _shapes(args.shapes, own)
    kernel = shapes[0].kernel
    key = Key(tuple(args.key)).check(own or get_kernel(kernel)) if args.key else None
    if args.stored:
        now = here(own or kernel, device=args.device)
        table = stored_dispatch(own or kernel, key=key, directory=args.directory, **now)
        if any("/" in name for name in args.shapes):  # of these alone
            table = _of(table, shapes, args, gpu=now["gpu"] or "unknown")
        _print(table, kernel, now["gpu"], args)
        return 0
    arch = gpu_arch(args.device)
    if not arch:
        raise UsageError(
            f"a decision needs the GPU that it is for, got no GPU with index {args.device}; "
            "kt-lab doctor says what is missing"
        )
    decided = tune_guarded(
        shapes,
        arch=arch,
        name=args.space,
        k=args.configs,
        objective=args.objective,
        searcher=args.searcher,
        budget=Budget(trials=args.trials, seconds=args.seconds),
        seed=args.seed,
        key=key,
        processes=args.processes,
        runner_for=_Opens(args, own),
        spaces=partial(_whole, own) if own else gated_space,
        directory=args.directory,
    )
    if not args.json:
        print(_told(decided.winners) or _nothing(shapes, arch))
    _print(decided.dispatch, kernel, decided.winners[0].gpu if decided.winners else arch, args)
    return 0


def _of(
    table: Dispatch, shapes: Sequence[Workload], args: argparse.Namespace, *, gpu: str
) -> Dispatch:
    """Returns the part of a table that is of some shapes, and says which it has nothing of."""
    values = {workload.key: table.key(workload, gpu=gpu) for workload in shapes}
    absent = [key for key, value in values.items() if value not in table.configs]
    if absent and not args.json:
        print(f"no one config is decided, so that the default is used: {', '.join(absent)}")
    wanted = set(values.values())
    return Dispatch(table.key, {v: c for v, c in table.configs.items() if v in wanted})


def _shapes(named: Sequence[str], own: Kernel | None) -> list[Workload]:
    """Returns the shapes that are named, each once; a kernel's name stands for all of its own."""
    found = {workload.key: workload for workload in workloads_named(named, own)}
    if len(kernels := {w.kernel for w in found.values()}) > 1:
        raise UsageError(
            f"a table is of one kernel, got shapes of {', '.join(sorted(kernels))}; "
            "run kt-lab dispatch for each"
        )
    return list(found.values())


def _whole(own: Kernel, workload: Workload, **_: str) -> ParameterSpace:
    """Returns the space of a captured kernel, which no architecture narrows."""
    return own.space(workload)


class _Opens:
    """Opens the GPU for a shape, and says so: a table takes minutes."""

    def __init__(self, args: argparse.Namespace, own: Kernel | None):
        self._args = args
        self._kernel = {"kernel": own} if own else {}
        self._opened: Counter[str] = Counter()

    def __call__(self, workload: Workload, *, space: ParameterSpace) -> GpuRunner:
        self._opened[workload.key] += 1
        if not self._args.json:
            number = self._opened[workload.key]
            print(f"{workload.key}: {space.size:,} configs, on the GPU #{number}", flush=True)
        return GpuRunner(
            workload,
            space=space,
            device=self._args.device,
            protocol=self._args.protocol,
            compile_workers=self._args.workers,
            wait_s=self._args.wait,
            **self._kernel,
        )


def _told(winners: Sequence[Winner]) -> str:
    """Returns what was decided, a line for each shape."""
    rows = [
        {
            "shape": winner.key,
            "latency_us": _number(winner.latency_us, ".2f"),
            "default_us": _number(winner.default_us, ".2f"),
            "ratio": _ratio(winner),
            "decision": "the default stays" if winner.config == winner.default else "replaced",
        }
        for winner in winners
    ]
    return aligned(rows) if rows else ""


def _nothing(shapes: Sequence[Workload], arch: str) -> str:
    """Returns that nothing was tuned and, where the architecture is why, what would."""
    kernel, said = shapes[0].kernel, f"there is nothing to tune of {shapes[0].kernel} on {arch}"
    if kernel not in PUBLISHED or arch in ARCHITECTURES:
        return said
    return (
        f"{said}: its spaces were published for {', '.join(ARCHITECTURES)} only; "
        f"kt-lab tune {shapes[0].key} searches all of its space, one shape at a time"
    )


def _ratio(winner: Winner) -> str:
    if winner.ratio is None:
        return "-"
    return f"{winner.ratio:.3f} [{_number(winner.low, '.3f')}, {_number(winner.high, '.3f')}]"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _print(table: Dispatch, kernel: str, gpu: str | None, args: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = [
        {"key": list(value), "config": dict(config)}
        for value, config in sorted(table.configs.items(), key=lambda item: item[0])
    ]
    if args.json:
        said = {"kernel": kernel, "gpu": gpu, "key": list(table.key.terms), "table": rows}
        print(json.dumps(said, indent=1))
    elif not rows:
        print(f"no one config of {kernel} is decided on {gpu or 'this machine'}: use the default")
    else:
        named = [
            dict(zip(table.key.terms, map(str, row["key"]), strict=True))
            | {"config": row["config"]}
            for row in rows
        ]
        print(aligned(named))
        print(f"other values of the key use the default of {kernel}")

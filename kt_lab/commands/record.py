"""kt-lab record: measure whole search spaces on this machine's GPU."""

import argparse
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from kt_lab.commands import add_from, kernel_from, require_least, workloads_named
from kt_lab.errors import UsageError, require_path_part
from kt_lab.kernels import workload_of_shape
from kt_lab.landscape import COMPILED, Landscape, data_directory, load_landscape
from kt_lab.record import (
    Progress,
    Recording,
    RecordOptions,
    SessionOptions,
    SessionRecording,
)
from kt_lab.runners.gpu.protocols import PROTOCOLS
from kt_lab.workload import Kernel, Workload

_EVERY_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to record, where, and how carefully."""
    parser.add_argument(
        "workloads", nargs="+", help="kernels, or any shape of one: softmax/4096x640"
    )
    add_from(parser)
    parser.add_argument("--directory", type=Path, default=None, help="default: data/landscapes")
    parser.add_argument("--visits", type=int, default=RecordOptions().visits)
    parser.add_argument("--repetitions", type=int, default=RecordOptions().repetitions)
    parser.add_argument("--workers", type=int, default=None, help="compile processes")
    parser.add_argument("--device", type=int, help="index of the GPU (default: 0)")
    parser.add_argument(
        "--devices", type=int, nargs="+", help="several GPUs of one kind that share the work"
    )
    parser.add_argument(
        "--slices", action="store_true", help="they share each workload's configs, not workloads"
    )
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, default="events", help="how launches are timed"
    )
    parser.add_argument("--limit", type=int, default=None, help="configs per workload, sampled")
    parser.add_argument(
        "--contention",
        type=int,
        default=RecordOptions().contention,
        help="configs that are compiled again at 1, 4 and all workers",
    )
    parser.add_argument(
        "--session",
        help="time the contenders of recorded workloads again, under this name, in data/sessions",
    )
    parser.add_argument(
        "--cache", type=Path, help="a session's compiled binaries; default: in --directory"
    )
    parser.add_argument("--stop-after", type=float, default=None,
        help="seconds; resume later (a session ends for good)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Records, resuming what the directory's journal already holds."""
    kernel = kernel_from(args.source, args.workloads[0])
    named = workloads_named(args.workloads, kernel)
    keys = [workload.key for workload in named]
    if len(set(keys)) != len(keys):
        raise UsageError(f"each workload must be named once, got {', '.join(keys)}")
    directory = args.directory or data_directory() / "landscapes"
    _require_fitting(args)
    if args.session is not None:
        return _session(named, args, kernel=kernel, cache=args.cache or directory / COMPILED)
    options = RecordOptions(
        visits=args.visits,
        repetitions=args.repetitions,
        compile_workers=args.workers,
        contention=args.contention,
        device=args.device or 0,
        devices=tuple(args.devices or ()),
        slices=args.slices,
        protocol=args.protocol,
        limit=args.limit,
        stop_after_s=args.stop_after,
    )
    how = {"directory": directory, "options": options, "kernel": kernel}
    paths = Recording(named, **how, on_progress=_Line()).run()
    for path in paths:
        print(f"saved {path}")
    if paths:
        print(_told_control(Landscape.load(paths[-1]).manifest["control"]))
        print(_told_binaries(directory / COMPILED))
    missing = len(keys) - len(paths)
    if missing:
        print(f"{missing} of {len(keys)} workloads are not complete: run the same command again")
    return 1 if missing else 0


def _require_fitting(args: argparse.Namespace) -> None:
    """Raises UsageError before a GPU is touched, for what a recording would not heed."""
    require_least(args, limit=1, workers=1, contention=0, stop_after=1, device=0)
    if args.device is not None and args.devices:
        raise UsageError(
            f"--device names one GPU and --devices several, got {args.device} and "
            f"{' '.join(map(str, args.devices))}; leave one out"
        )
    if args.session is None and args.cache:
        raise UsageError(
            f"--cache is a session's, got {args.cache} without --session; a recording keeps its "
            "binaries in --directory"
        )
    if args.session is not None:
        require_path_part("the name of a session", args.session)


def _session(
    named: list[Workload], args: argparse.Namespace, *, kernel: Kernel | None, cache: Path
) -> int:
    usual = RecordOptions()
    told = {
        "--visits": args.visits != usual.visits,
        "--contention": args.contention != usual.contention,
        "--devices": args.devices,
        "--slices": args.slices,
        "--limit": args.limit is not None,
    }
    if given := [name for name, is_given in told.items() if is_given]:
        raise UsageError(
            "a session times the contenders of recorded workloads on one GPU, got "
            f"{', '.join(given)}; leave that out"
        )
    options = SessionOptions(
        repetitions=args.repetitions,
        compile_workers=args.workers,
        device=args.device or 0,
        protocol=args.protocol,
        seed=zlib.crc32(args.session.encode()),  # another order in every session
        stop_after_s=args.stop_after,
    )
    session = SessionRecording(
        named,
        name=args.session,
        kernel=kernel,
        cache=cache,
        options=options,
        on_progress=_Line(),
        load=_load_below(args.directory, kernel),
    )
    print(f"saved {session.run()}")
    return 0


def _load_below(directory: Path | None, kernel: Kernel | None) -> Callable[..., Landscape]:
    """Returns what loads a recording: the one below a directory, else the shipped one."""

    def load(key: str, *, gpu: str) -> Landscape:
        workload = workload_of_shape(key, kernel)
        if directory is not None:
            path = directory / workload.kernel / gpu / f"{workload.name}.parquet"
            if path.exists():
                return Landscape.load(path)
        return load_landscape(key, gpu=gpu)

    return load


def _told_binaries(cache: Path) -> str:
    """Returns what stays on disk beside the landscapes, and what for."""
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    return (
        f"compiled binaries of {size / 1e6:,.0f} MB stay in {cache} for sessions and further "
        "workloads; it may be deleted"
    )


def _told_control(control: dict | None) -> str:
    """Returns how far the GPUs changed and differed while they recorded."""
    if not control:
        return "no control was timed: a recording this short says nothing of drift"
    return "\n".join(
        f"{device}: control {row['median_us']:.2f} us, {row['offset']:+.2%} over the fastest GPU, "
        f"drift {row['drift'] or 0:+.2%} in {row['readings']} readings"
        for device, row in control["devices"].items()
        if row["readings"]
    )


class _Line:
    """Prints one line of progress every few seconds."""

    def __init__(self):
        self._last = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last < _EVERY_S and progress.done < progress.total:
            return
        self._last = now
        eta = "?" if progress.eta_s is None else f"{progress.eta_s:.0f} s"
        print(
            f"{progress.elapsed_s:7.1f} s  {progress.phase}: {progress.done:,} of "
            f"{progress.total:,}, {progress.failures} failed to compile, {eta} to go",
            flush=True,
        )

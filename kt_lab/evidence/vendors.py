"""The best recorded config of every workload beside the vendor's path and torch.compile."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.errors import LandscapeError
from kt_lab.evidence.resuming import Rows, short
from kt_lab.kernels import REGISTRY, device_module, subject, workloads
from kt_lab.landscape import Landscape
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.facts import cuda_device, gpu_slug, gpu_uuid, read_sensors
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.runners.gpu.protocols import FLUSH_BYTES, captured, get_protocol

CALLS = "captured"
"""Paths are CUDA graphs of one call: torch.compile's Python may take the host 200 us."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to compare."""
    parser.add_argument("--landscapes", type=Path, default=Path("data/landscapes"))
    parser.add_argument("--kernels", nargs="+", default=sorted(REGISTRY))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=10, help="launches per round and path")
    parser.add_argument("--protocol", default="events")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Times the three in alternation in one process, for every recorded workload.

    What is stored already is kept; the same command goes on where it was stopped.
    """
    import torch

    slug = gpu_slug(torch.cuda.get_device_properties(cuda_device(args.device)).name)
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    names = ("protocol", "rounds", "repetitions")
    facts = {"gpu": slug, "versions": {"torch": torch.__version__}, "calls": CALLS}
    rows = Rows(
        args.out,
        facts | {name: getattr(args, name) for name in names},
        provenance(),
        again=args.again,
    )
    with GpuLock(gpu_uuid(args.device) or slug, what="kt-lab evidence vendors"):
        for workload in [w for kernel in args.kernels for w in workloads(kernel)]:
            path = args.landscapes / workload.kernel / slug / f"{workload.name}.parquet"
            try:
                landscape = Landscape.load(path)
            except LandscapeError:
                continue
            rows.once({"workload": workload.key}, partial(_row, landscape, args, flush))
            torch.cuda.empty_cache()
    return rows.result


def _row(landscape: Landscape, args: argparse.Namespace, flush: Any) -> dict[str, Any]:
    import torch

    asked = subject(landscape.workload)
    device = device_module(asked.device)
    inputs = device.make_inputs(asked.workload, device="cuda", seed=0)
    sms = torch.cuda.get_device_properties(args.device).multi_processor_count
    best = landscape.best
    launch = device.plan(inputs, asked.workload, best, sms=sms)
    vendor, name = device.baseline(inputs, asked.workload)
    paths: dict[str, Any] = {"kt_lab": launch, "vendor": vendor}
    row: dict[str, Any] = {"vendor_name": name, "config": dict(best), "compile_error": ""}
    row["uncaptured"] = {}
    torch._dynamo.reset()
    compiled = torch.compile(vendor, dynamic=False)
    try:
        compiled()
        paths["compiled"] = compiled
    except Exception as error:  # torch.compile refuses some operations: that is a fact to store
        row["compile_error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    replays = {}
    for key, call in paths.items():
        try:
            replays[key] = captured(call)
        except RuntimeError as error:  # it waits for the GPU, say: its host time stays in
            replays[key], row["uncaptured"][key] = call, str(error).splitlines()[0]
    samples: dict[str, list[float | None]] = {key: [] for key in paths}
    take = partial(get_protocol(args.protocol).time, repetitions=args.repetitions, flush=flush)
    for number in range(args.rounds):
        for key in list(paths) if number % 2 else list(reversed(paths)):
            block = take(replays[key], prepare=getattr(paths[key], "prepare", None))
            samples[key].append(short(float(np.median(block))))
    row["sensors"] = read_sensors(args.device)
    return row | {f"{key}_us": blocks for key, blocks in samples.items()}


def report(result: dict[str, Any]) -> str:
    """Returns the table for people: medians in µs and latency ratios."""
    lines = [f"{result['gpu']}: best recorded config / vendor / torch.compile, medians in µs"]
    for row in result["rows"]:
        ours = float(np.median(row["kt_lab_us"]))
        parts = [f"{row['workload']:36s} {ours:9.2f}"]
        for key, label in (("vendor", row["vendor_name"]), ("compiled", "torch.compile")):
            if f"{key}_us" in row:
                theirs = float(np.median(row[f"{key}_us"]))
                parts.append(f"{theirs:9.2f} (ratio {ours / theirs:.2f}, {label})")
        lines.append("  ".join([*parts, row["compile_error"]]).rstrip())
    return "\n".join(lines)

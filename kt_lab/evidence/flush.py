"""Whether a flush that writes a buffer empties the L2: kernels with and without `evict_last`.

The reference needs no flush to be right: launches take turns on so many copies of the inputs that
nothing of one is left when its turn comes, and the L2 is taken back from `evict_last` lines before
each. Every other way of preparing a launch is timed beside it, in alternation.
"""

import argparse
import itertools
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.evidence.resuming import Rows
from kt_lab.kernels import device_module, get_kernel, get_workload, subject
from kt_lab.landscape import load_landscape
from kt_lab.paired import signed_rank
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.facts import cuda_device, gpu_slug, gpu_uuid, read_sensors
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.runners.gpu.protocols import FLUSH_BYTES, get_protocol
from kt_lab.trial import Config

WORKLOADS = (
    "rms_norm_dense/4096x1536",
    "softmax/4096x640",
    "softmax/8192x8192",
    "rms_norm/8192x4096",
    "layer_norm/8192x5120",
)
HINT = "EVICTION"
LAST = "evict_last"
WAYS = {
    "copies": "turns on copies of the inputs; written and reclaimed",
    "reclaimed": "the same inputs; written and reclaimed",
    "written": "the same inputs; written, as landscapes are recorded",
    "polluted": "as written, after launches with the other hint",
    "copies_written": "turns on copies of the inputs; written",
    "warm": "the same inputs; nothing is flushed",
}
_APART = 2  # times the flushed bytes lie between two uses of a copy
_POLLUTE = 20  # launches with the other hint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is timed."""
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=12, help="blocks of each way")
    parser.add_argument("--repetitions", type=int, default=10, help="launches of a block")
    parser.add_argument("--protocol", default="events")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def hinted(config: Mapping[str, Any]) -> dict[str, Config]:
    """Returns a config without a hint and with `evict_last`, by hint.

    Raises:
        UsageError: Its space has no such hint.
    """
    if HINT not in config:
        raise UsageError(
            f"the flush is judged by kernels with the parameter {HINT}, got one with "
            f"{', '.join(config)}; name workloads of softmax, layer_norm or rms_norm"
        )
    return {hint: Config(dict(config) | {HINT: hint}) for hint in ("", LAST)}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Times every way of preparing a launch, for the best recorded config with and without."""
    import torch

    from kt_lab.evidence.l2_lines import Reclaimer

    device = cuda_device(args.device)
    properties = torch.cuda.get_device_properties(device)
    slug = gpu_slug(properties.name)
    names = ("rounds", "repetitions", "protocol")
    facts = {"gpu": slug, "torch": torch.__version__}
    facts |= {name: getattr(args, name) for name in names}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    with GpuLock(gpu_uuid(args.device) or slug, what="kt-lab evidence flush"):
        flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)
        reclaim = Reclaimer(device, size=FLUSH_BYTES)
        take = partial(get_protocol(args.protocol).time, repetitions=args.repetitions)
        for key in args.workloads:
            configs = hinted(load_landscape(key, gpu=slug).best)
            plans = partial(_plans, key, configs, device, properties.multi_processor_count)
            rows.once({"workload": key}, partial(_row, plans, take, flush, reclaim, args.rounds))
            torch.cuda.empty_cache()
    return rows.result | {"sensors": read_sensors(args.device)}


def _plans(key: str, configs: Mapping[str, Config], device: Any, sms: int) -> dict[str, list]:
    """Returns the launches of each hint, one per copy of the inputs."""
    workload = get_workload(key)
    module = device_module(subject(key).device)
    copies = 1 + -(-_APART * FLUSH_BYTES // get_kernel(workload.kernel).bytes_moved(workload))
    made = [module.make_inputs(workload, device=device, seed=0) for _ in range(copies)]
    return {
        hint: [module.plan(inputs, workload, config, sms=sms) for inputs in made]
        for hint, config in configs.items()
    }


def _row(plans: Callable[[], dict], take, flush, reclaim, rounds: int) -> dict[str, Any]:
    launches = plans()
    turns = {hint: itertools.cycle(found) for hint, found in launches.items()}
    samples: dict[str, dict[str, list[float]]] = {
        hint: {way: [] for way in WAYS} for hint in launches
    }
    order = [(hint, way) for way in WAYS for hint in launches]
    for number in range(rounds):
        for hint, way in reversed(order) if number % 2 else order:
            other = next(found for name, found in launches.items() if name != hint)
            alone = launches[hint][0]
            if way == "polluted":
                for _ in range(_POLLUTE):
                    other[0]()
            block = take(
                (lambda h=hint: next(turns[h])()) if way.startswith("copies") else alone,
                flush=flush[:32] if way == "warm" else flush,
                prepare=reclaim if way in ("copies", "reclaimed") else None,
                warm_up=0 if way == "polluted" else 2,
            )
            samples[hint][way].append(statistics.median(block))
    return {"copies": len(next(iter(launches.values()))), "samples_us": samples}


def ratios(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns what each way reads beside the reference.

    Returns:
        workload, hint, way, latency_us (median of blocks), ratio (to "copies" of the same hint),
        low, high (its 95 % interval over rounds).
    """
    found = []
    for row in result["rows"]:
        for hint, ways in row["samples_us"].items():
            truth = np.asarray(ways["copies"])
            for way, blocks in ways.items():
                bounds = signed_rank(np.log(np.asarray(blocks) / truth), tail=0.025)
                low, ratio, high = (float(np.exp(bound)) for bound in bounds)
                found.append(
                    (row["workload"], hint, way, statistics.median(blocks), ratio, low, high)
                )
    columns = ["workload", "hint", "way", "latency_us", "ratio", "low", "high"]
    return pd.DataFrame(found, columns=columns)


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people."""
    lines = [
        f"{result['gpu']}: latency over that on copies of the inputs, which are never in the L2"
    ]
    for (workload, hint), part in ratios(result).groupby(["workload", "hint"], sort=False):
        lines.append(f"{workload}, {hint or 'no hint'}")
        lines += [
            f"  {row.way:15s} {row.latency_us:8.2f} us  {row.ratio:.3f} [{row.low:.3f}, "
            f"{row.high:.3f}]  {WAYS[row.way]}"
            for row in part.itertuples()
        ]
    return "\n".join(lines)

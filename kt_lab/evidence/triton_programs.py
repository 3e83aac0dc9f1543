"""Programs of the dojo as Triton kernels: tuned on a GPU, then raced against PyTorch.

First every workload is tuned by the ordinary GPU runner: schedules and launch parameters are one
search space. Then, in one process, the best config, the default one and PyTorch's paths are
checked and timed in alternation, the L2 flushed before every launch. The search's own readings
judge nothing. The floor is the operator's bytes at the copy speed measured in the same process.
"""

import argparse
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.budget import Budget
from kt_lab.evidence.geomeans import geomean_interval
from kt_lab.evidence.resuming import Rows
from kt_lab.evidence.torch_paths import paths
from kt_lab.kernels import device_module, subject
from kt_lab.paired import signed_rank
from kt_lab.programs.emit_triton import VERSION
from kt_lab.programs.operators import get_operator
from kt_lab.programs.triton_kernel import triton_kernel
from kt_lab.programs.triton_schedules import triton_schedules
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.facts import ceilings, gpu_name, gpu_slug, gpu_uuid, read_sensors
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.runners.gpu.protocols import FLUSH_BYTES, captured, get_protocol
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.search import make_searcher
from kt_lab.trial import Config
from kt_lab.tune import tune_whole
from kt_lab.workload import Workload

TORCH = ("eager", "compiled", "autotuned")
_GATE = {"elements": 128 * 11_008}
_HEADS = {"rows": 12 * 512, "cols": 512}
# Of each operator one shape of a model and one that takes 64 MiB or more, in this order.
MODELS = {
    "multiply": Workload("multiply", "1409024", _GATE, "float32", "Llama-2 7B gate, 128 tokens"),
    "softmax": Workload("softmax", "6144x512", _HEADS, "float32", "BERT-base, 12 heads of 512"),
}
OPERATORS = ("multiply", "softmax", "layer_norm", "batch_norm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is tuned, and how long."""
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS))
    parser.add_argument("--trials", type=int, default=100, help="configs of a search at most")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a search at most")
    parser.add_argument("--searcher", default="lfbo_pattern")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20, help="blocks of each path in the race")
    parser.add_argument("--repetitions", type=int, default=10, help="launches of a block")
    parser.add_argument("--protocol", default="events")
    parser.add_argument("--torch", nargs="*", choices=TORCH, default=list(TORCH[:2]))
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")


def workloads_of(operator: str) -> tuple[Workload, Workload]:
    """Returns a shape of a model, and one of at least 64 MiB."""
    small, large = get_operator(operator).workloads
    return MODELS.get(operator, small), large


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Tunes and races what is not stored yet; returns all rows."""
    names = ("trials", "seconds", "searcher", "seed", "rounds", "repetitions", "protocol", "torch")
    facts = {"emitter": VERSION, "gpu": gpu_name(args.device), "calls": "captured"}
    facts |= {name: getattr(args, name) for name in names}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    chosen = [workload for name in args.operators for workload in workloads_of(name)]
    for workload in chosen:  # first, since the race takes the GPU into this process
        rows.once({"step": "tuned", "workload": workload.key}, partial(tuned, workload, args))
    found = {r["workload"]: r["best"] for r in rows.result["rows"] if r["step"] == "tuned"}
    with ExitStack() as stack:
        gpu: list[Gpu] = []

        def race(workload: Workload) -> dict[str, Any]:
            if not gpu:
                gpu.append(stack.enter_context(Gpu(args.device, args.protocol)))
            return raced(workload, found[workload.key], gpu[0], args)

        for workload in chosen:
            key = {"step": "raced", "workload": workload.key}
            rows.once(key, partial(race, workload))
    return rows.result


def tuned(workload: Workload, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the best config of a search over schedules and launch parameters, and its cost."""
    kernel = triton_kernel(workload.kernel, workload)
    (shape,) = kernel.workloads
    with GpuRunner(shape, kernel=kernel, device=args.device, protocol=args.protocol) as runner:
        searcher = make_searcher(args.searcher, runner.space, seed=args.seed)
        budget = Budget(trials=args.trials, seconds=runner.now + args.seconds)
        history = tune_whole(searcher, runner, budget=budget)
    best = history.incumbent
    return {
        "best": dict(best.config) if best else None,
        "apparent_us": best.latency_us if best else None,
        "schedules": triton_schedules(get_operator(workload.kernel).program(workload.extents)),
        "space": runner.space.size,
        "trials": history.trials_spent,
        "statuses": dict(Counter(trial.status for trial in history)),
    }


class Gpu:
    """The GPU while this process races on it: locked, with its ceilings and a flush buffer."""

    capture = staticmethod(captured)  # compiled Python would keep the host busy between the events

    def __init__(self, index: int, protocol: str):
        """Takes the GPU's index and the name of the timing protocol."""
        self.index, self.protocol = index, get_protocol(protocol)
        self._stack = ExitStack()

    def __enter__(self):
        """Locks the GPU and measures its ceilings."""
        import torch

        torch.cuda.set_device(self.index)
        self.device = torch.device("cuda", self.index)
        properties = torch.cuda.get_device_properties(self.device)
        self.slug, self.sms = gpu_slug(properties.name), properties.multi_processor_count
        what = "kt-lab evidence triton_programs"
        self._stack.enter_context(GpuLock(gpu_uuid(self.index) or self.slug, what=what))
        flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=self.device)
        self.take = partial(self.protocol.time, flush=flush)
        found = ceilings(self.device, flush, self.protocol)
        self.facts = {k: found[k] for k in ("copy_bytes_per_s", "timer_floor_us")}
        self.facts |= {"gpu": self.slug, "torch": torch.__version__}
        torch.cuda.empty_cache()
        return self

    def __exit__(self, *_):
        """Lets go of the GPU."""
        self._stack.close()

    def sense(self) -> dict[str, Any]:
        """Returns clocks, temperature and power."""
        return read_sensors(self.index)


def raced(workload: Workload, best: Mapping | None, gpu: Gpu, args) -> dict[str, Any]:
    """Checks and times the best and the default config and PyTorch's paths, in alternation."""
    from kt_lab.runners.gpu.checking import difference, poison

    kernel = triton_kernel(workload.kernel, workload)
    (shape,) = kernel.workloads
    asked, space = subject(shape, kernel), kernel.space(shape)
    device = device_module(asked.device)
    inputs = device.make_inputs(shape, device=str(gpu.device), seed=0)
    expected, ours = device.reference(inputs, shape), device.output(inputs)
    calls: dict[str, Callable[[], Any]] = {}
    for name, config in (("best", best), ("default", space.default)):
        if config:
            calls[name] = device.plan(inputs, shape, Config(config), sms=gpu.sms)
    theirs, torch_calls = _torch_calls(workload, inputs, ours, tuple(args.torch))
    errors: dict[str, str] = {}
    for name, call in {**calls, **torch_calls}.items():
        written = ours if name in calls else theirs
        poison(written)
        try:
            result = call()
        except Exception as error:  # what torch.compile refuses is a fact to store
            errors[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:200]
            continue
        if name.endswith("/new"):
            written = result if isinstance(result, tuple) else (result,)
        flat = tuple(w.reshape(e.shape) for w, e in zip(written, expected, strict=True))
        if problem := difference(flat, expected, law=asked):
            errors[name] = problem
    right = {n: call for n, call in {**calls, **torch_calls}.items() if n not in errors}
    timed = {n: gpu.capture(call) for n, call in right.items()}
    return {
        "samples_us": alternated(timed, gpu.take, args.rounds, args.repetitions),
        "errors": errors,
        "best": dict(best) if best else None,
        "default": dict(space.default),
        "bytes_moved": kernel.bytes_moved(shape),
        "source": workload.source,
        "sensors": gpu.sense(),
        **gpu.facts,
    }


def _torch_calls(workload, inputs, ours, wanted) -> tuple[tuple, dict[str, Callable[[], Any]]]:
    """Returns the outputs that PyTorch writes into, and its calls by name."""
    import torch

    torch._dynamo.reset()
    program = get_operator(workload.kernel).program(workload.extents)
    given = [inputs[b.name] for b in program.of_kind("in")]
    theirs = tuple(torch.empty_like(out) for out in ours)
    if workload.kernel.startswith("batch_norm"):  # images of flat pixels here, of two sides there
        image = tuple(workload.extents[side] for side in "nchw")
        given, theirs = (
            tuple(x.view(image) if x.dim() == 3 else x for x in some) for some in (given, theirs)
        )
    found = paths(torch, workload.kernel, tuple(given), theirs, wanted)
    # an output made anew costs a GPU nothing, and compiling twice takes a minute
    twice = ("compiled/out", "autotuned/out")
    return theirs, {name: call for name, call in found.items() if name not in twice}


def alternated(
    calls: Mapping[str, Callable], take: Callable[..., list[float]], rounds: int, repetitions: int
) -> dict[str, list[float]]:
    """Returns the medians of blocks of every call in microseconds, orders reversed in turn."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls) if number % 2 else list(reversed(calls)):
            samples[name].append(statistics.median(take(calls[name], repetitions=repetitions)))
    return samples


def ratios(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a table of what the best config takes, one row per workload and reference.

    Returns:
        Columns kernel, workload, reference (default, eager, compiled, autotuned: of several ways
        the fastest), best_us, reference_us (medians), ratio (< 1: the best config is faster),
        low and high (its 95 % interval over rounds). All inf where no config was right.
    """
    # a call of compiled Python that no graph captured may hide the GPU's time
    known = TORCH if result.get("calls") == "captured" else TORCH[:1]
    found = []
    for row in (r for r in result["rows"] if r["step"] == "raced"):
        blocks = {name: np.asarray(s) for name, s in row["samples_us"].items()}
        kernel = row["workload"].partition("/")[0]
        for reference in ("default", *known):
            names = [n for n in blocks if n.partition("/")[0] == reference]
            if names:
                other = blocks[min(names, key=lambda name: np.median(blocks[name]))]
                ours = blocks.get("best", np.full(len(other), np.inf))
                medians = float(np.median(ours)), float(np.median(other))
                bounds = signed_rank(np.log(ours / other), tail=0.025)
                low, ratio, high = (float(np.exp(bound)) for bound in bounds)
                found.append((kernel, row["workload"], reference, *medians, ratio, low, high))
    columns = ["kernel", "workload", "reference", "best_us", "reference_us", "ratio", "low"]
    return pd.DataFrame(found, columns=[*columns, "high"])


def shares(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns how near the best config of each workload is to copying its bytes.

    Returns:
        workload, best_us (median), copy_us (its bytes at the copy speed measured beside it), share
        (copy_us / best_us), and best_us over each reference: over_default, over_eager and so on.
    """
    found = []
    for row in (r for r in result["rows"] if r["step"] == "raced"):
        best_us = statistics.median(row["samples_us"].get("best", [np.inf]))
        copy_us = row["bytes_moved"] / row["copy_bytes_per_s"] * 1e6
        facts = {"workload": row["workload"], "best_us": best_us, "copy_us": copy_us}
        found.append(facts | {"share": copy_us / best_us})
    over = ratios(result).pivot(index="workload", columns="reference", values="ratio")
    return pd.DataFrame(found).merge(over.add_prefix("over_").reset_index(), on="workload")


def report(result: dict[str, Any]) -> str:
    """Returns the table for people: medians, shares of the floor, ratios, losses and errors."""
    raced_rows = {row["workload"]: row for row in result["rows"] if row["step"] == "raced"}
    table, near = ratios(result), shares(result).set_index("workload")
    lines = []
    for key, row in raced_rows.items():
        if not lines:
            speed, floor = row["copy_bytes_per_s"] / 1e12, row["timer_floor_us"]
            lines = [
                f"{row['gpu']}: copies at {speed:.2f} TB/s; an empty kernel reads {floor:.1f} us"
            ]
        part = table[table["workload"] == key]
        if "best" not in row["samples_us"]:
            lines.append(f"{key:34s} no right config; {row['errors']}")
            continue
        ours, share = near.loc[key, ["best_us", "share"]]
        told = [
            f"{r.reference} {r.reference_us:.1f} (ratio {r.ratio:.3f} [{r.low:.3f}, {r.high:.3f}])"
            for r in part.itertuples()
        ]
        lines.append(f"{key:34s} best {ours:8.1f} us, {share:4.0%} of copying  {'; '.join(told)}")
        lines += [f"  {name}: {why}" for name, why in row["errors"].items()]
    for reference, part in table.groupby("reference", sort=False):
        mean, lost = geomean_interval(part), part[part["low"] > 1]["workload"]
        told = f"{mean.estimate:.3f} [{mean.low:.3f}, {mean.high:.3f}] of {len(part)}"
        lines.append(f"best over {reference}: geomean {told}; slower: {', '.join(lost) or 'none'}")
    return "\n".join(lines)

"""The timing process: the only one that touches the GPU, one launch at a time."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kt_lab.errors import UsageError
from kt_lab.kernels import device_module, get_kernel, get_workload
from kt_lab.runners.gpu.compiling import one_line
from kt_lab.runners.gpu.facts import gpu_slug, read_sensors
from kt_lab.runners.gpu.protocols import EVENTS_L2, FLUSH_BYTES, time_launches
from kt_lab.runners.workers import WorkerLost
from kt_lab.trial import Config

_INPUT_SEED = 20240229  # any fixed number: every config sees the same inputs


@dataclass
class _Loaded:
    """Inputs and reference of one workload, kept on the GPU between configs."""

    inputs: dict[str, Any]
    reference: Any
    baseline: Callable[[], Any]
    baseline_name: str


class TimingService:
    """Measures configs on one GPU; lives in a worker process."""

    def __init__(self, *, device: int):
        """Takes up the GPU and allocates the buffer that flushes its L2."""
        import torch

        if not torch.cuda.is_available():
            raise UsageError(
                f"timing needs a GPU that torch can use, got none with torch {torch.__version__}"
            )
        self._torch = torch
        torch.cuda.set_device(device)
        self._device = torch.device("cuda", device)
        self._properties = torch.cuda.get_device_properties(device)
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=self._device)
        self._loaded: dict[str, _Loaded] = {}

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """Answers one task; its `do` names the method."""
        return getattr(self, "do_" + task["do"])(task)

    def do_facts(self, task: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Returns what the GPU is and what it can do at most, measured here."""
        torch, properties = self._torch, self._properties
        import triton

        source = torch.empty(2**30, dtype=torch.int8, device=self._device).random_(0, 100)
        target = torch.empty_like(source)
        copy_us = time_launches(lambda: target.copy_(source), repetitions=20, flush=self._flush)
        small = torch.zeros(32, device=self._device)
        floor_us = time_launches(lambda: small.add_(1), repetitions=50, flush=self._flush)
        flush_us = time_launches(lambda: self._flush.zero_(), repetitions=20, flush=small)
        return {
            "gpu": properties.name,
            "slug": gpu_slug(properties.name),
            "capability": f"{properties.major}.{properties.minor}",
            "sms": properties.multi_processor_count,
            "l2_bytes": getattr(properties, "L2_cache_size", None),
            "memory_bytes": properties.total_memory,
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
            "copy_bytes_per_s": 2 * 2**30 / (_median(copy_us) * 1e-6),
            "timer_floor_us": _median(floor_us),
            "flush_us": _median(flush_us),
            "protocol": EVENTS_L2.name,
            "sensors": read_sensors(self._device.index),
        }

    def do_measure(self, task: dict[str, Any]) -> dict[str, Any]:
        """Loads, checks and times one config.

        Args:
            task: `workload`, `config`, `repetitions`, `fewest` (repetitions for a config slower
                than `slow_us`), `slow_us` (None: never few), `check` (compare with the reference).
        """
        started = time.perf_counter()
        try:
            return self._measure(task)
        except WorkerLost:
            raise
        except Exception as error:
            self._torch_must_live(error)
            return {
                "status": "launch_error",
                "error": one_line(error),
                "seconds": time.perf_counter() - started,
            }

    def _measure(self, task: dict[str, Any]) -> dict[str, Any]:
        torch = self._torch
        workload = get_workload(task["workload"])
        device = device_module(workload.kernel)
        loaded = self._load(workload)
        started = time.perf_counter()
        launch = self._launcher(workload, task["config"])

        if task["check"]:
            device.output(loaded.inputs).fill_(float("nan"))
        kernel = launch()
        torch.cuda.synchronize()
        answer = {
            "status": "ok",
            "error": "",
            "registers": getattr(kernel, "n_regs", None),
            "spills": getattr(kernel, "n_spills", None),
            "shared_bytes": int(kernel.metadata.shared),
            "overhead_s": time.perf_counter() - started,
            "check_s": 0.0,
        }
        if task["check"]:
            started = time.perf_counter()
            wrong = self._compare(workload.kernel, device.output(loaded.inputs), loaded.reference)
            answer["check_s"] = time.perf_counter() - started
            if wrong:
                seconds = answer["overhead_s"] + answer["check_s"]
                return answer | {"status": "wrong_result", "error": wrong, "seconds": seconds}
        started = time.perf_counter()
        answer["samples_us"] = self._time(launch, task)
        answer["timing_s"] = time.perf_counter() - started
        return answer

    def _launcher(self, workload, config: Mapping[str, Any]) -> Callable[[], Any]:
        """Returns what enqueues one launch of a config."""
        plan = device_module(workload.kernel).plan(
            self._load(workload).inputs,
            workload,
            Config(config),
            sms=self._properties.multi_processor_count,
        )
        return lambda: plan.fn[plan.grid](*plan.args, **plan.constexprs)

    def _time(self, launch: Callable[[], Any], task: dict[str, Any]) -> list[float]:
        if task["slow_us"] is None:
            return time_launches(launch, repetitions=task["repetitions"], flush=self._flush)
        fewest = task["fewest"]
        samples = time_launches(launch, repetitions=fewest, flush=self._flush)
        if _median(samples) <= task["slow_us"]:
            rest = task["repetitions"] - fewest
            samples += time_launches(launch, repetitions=rest, flush=self._flush, warm_up=0)
        return samples

    def _load(self, workload) -> _Loaded:
        if workload.key not in self._loaded:
            device = device_module(workload.kernel)
            inputs = device.make_inputs(workload, device=self._device, seed=_INPUT_SEED)
            baseline, name = device.baseline(inputs, workload)
            reference = device.reference(inputs, workload)
            self._loaded[workload.key] = _Loaded(inputs, reference, baseline, name)
        return self._loaded[workload.key]

    def _compare(self, kernel: str, output, reference) -> str:
        """Returns why the output is wrong, or an empty string.

        Compares slice by slice: a float32 copy of the largest outputs would not need to exist.
        """
        law = get_kernel(kernel)
        torch = self._torch
        for ours, theirs in zip(output.split(4096), reference.split(4096), strict=True):
            apart = (ours.float() - theirs.float()).abs()
            allowed = law.atol + law.rtol * theirs.float().abs()
            bad = ~(apart <= allowed)  # NaN is never within tolerance
            if bool(bad.any()):
                if bool(torch.isnan(ours.float()).any()):
                    return "an element was not written, or is NaN"
                worst = float((apart - allowed).max())
                return f"an element is off by {worst:.3g} more than the tolerance allows"
        return ""

    def do_compare(self, task: dict[str, Any]) -> dict[str, Any]:
        """Times one config and the vendor path in alternation; returns both lists of samples."""
        workload = get_workload(task["workload"])
        loaded = self._load(workload)
        launch = self._launcher(workload, task["config"])
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(task["rounds"]):
            ours += time_launches(launch, repetitions=10, flush=self._flush)
            theirs += time_launches(loaded.baseline, repetitions=10, flush=self._flush)
        return {
            "samples_us": ours,
            "baseline_us": theirs,
            "baseline": loaded.baseline_name,
            "sensors": read_sensors(self._device.index),
        }

    def _torch_must_live(self, error: Exception) -> None:
        """Gives the process up if its GPU context is poisoned: no later result counts."""
        try:
            self._torch.cuda.synchronize()
            self._flush[:1].zero_()
            self._torch.cuda.synchronize()
        except Exception:
            raise WorkerLost(one_line(error)) from error


def timing_service(*, device: int = 0) -> TimingService:
    """Starts the timing worker of one GPU."""
    return TimingService(device=device)


def _median(samples: list[float]) -> float:
    ordered = sorted(samples)
    return ordered[len(ordered) // 2]

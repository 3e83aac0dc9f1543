"""What runs in the workers of a `helion_pool.Pool`: code and binaries of configs, and timing.

Nothing that is imported here may touch CUDA: the processes are forked.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kt_lab.runners.gpu.compiling import one_line
from kt_lab.runners.workers import WorkerLost
from kt_lab.trial import OK

PRELOAD = ("torch", "triton", "helion", "kt_lab.runners.gpu.warmed")
ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # see above
_REPEATED = {"events": 20, "graph": 5}  # samples of a config that is timed again, by timer


class _Compiler:
    """Turns configs of one workload into code and binaries."""

    def __init__(self, workload: str):
        from kt_lab.evidence.helion_kernels import arguments, bound
        from kt_lab.kernels import device_module, get_workload, subject

        os.nice(5)  # the timing process goes first
        found = get_workload(workload)
        device = device_module(subject(found).device)
        inputs = device.make_inputs(found, device="cuda", seed=0)
        self._args = arguments(found.kernel, inputs)
        self._bound = bound(found.kernel, inputs)
        self._name = found.kernel

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        import helion
        from helion.runtime.precompile_shim import make_precompiler

        _cache_in(task["cache"])
        config = helion.Config.from_dict(task["config"])
        code = self._bound.to_triton_code(config)
        kernel, args, kwargs = _launched(_function(code, self._name), self._args)
        kernel.device_caches.clear()  # a config is asked for once: do not hoard binaries
        compile_it = make_precompiler(kernel, config, self._bound)(*args, **kwargs)
        try:
            good = compile_it()
        except SystemExit:  # as Helion's own child processes end
            good = False
        return {"code": code} if good else {"error": "Triton refused it"}


class _Timer:
    """Checks and times compiled configs of one workload."""

    def __init__(self, workload: str):
        from kt_lab.evidence.helion_kernels import arguments
        from kt_lab.evidence.side_by_side import Bench
        from kt_lab.runners.gpu.first_launch import first_launch

        self._bench = Bench(workload)
        self._args = arguments(self._bench.workload.kernel, self._bench.inputs)
        first_launch(self._bench.flush)
        self._bench.time_us(self._bench.launch("torch", {}))

    def __call__(self, task: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        try:
            return self._measured(task)
        except Exception as error:
            try:
                torch.cuda.synchronize()
            except Exception:  # its context is gone, and so must be its process
                raise WorkerLost(one_line(error)) from error
            return {"status": "launch_error", "error": one_line(error)}

    def _measured(self, task: Mapping[str, Any]) -> dict[str, Any]:
        from kt_lab.runners.gpu.checking import difference, poison
        from kt_lab.runners.gpu.protocols import get_protocol

        _cache_in(task["cache"])
        bench = self._bench
        launch = partial(_function(task["code"], bench.workload.kernel), *self._args)
        poison(launch())  # the next output is likely to lie where this one lay
        if wrong := difference(launch(), bench.reference, law=bench.subject):
            return {"status": "wrong_result", "error": wrong}
        rule, timer = task["rule"], task["again"] or "events"
        take = get_protocol(timer).time
        if task["again"]:
            samples = take(launch, repetitions=_REPEATED[timer], flush=bench.flush, warm_up=2)
            return {"status": OK, "samples_us": samples}
        samples = take(launch, repetitions=rule.first(None), flush=bench.flush, warm_up=2)
        rest = rule.rest(samples, asked=None, best_us=task["best_us"], cutoff_us=None)
        if rest:
            samples += take(launch, repetitions=rest, flush=bench.flush, warm_up=0)
        return {"status": OK, "samples_us": samples}


def compile_service(*, workload: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Starts a compile worker: {config, cache} -> {code} or {error}."""
    return _Compiler(workload)


def timing_service(*, workload: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Starts the timing process: {code, cache, again, rule, best_us} -> {status, samples_us}.

    `again` is None, or by which timer a config is timed that was measured before.
    """
    return _Timer(workload)


def _cache_in(folder: str) -> None:
    import triton

    triton.knobs.cache.dir = folder


def _function(code: str, name: str) -> Any:
    """Returns the host function of generated code."""
    from torch._inductor.codecache import PyCodeCache

    return getattr(PyCodeCache.load(code), name)


def _launched(function: Any, args: Sequence[Any]) -> tuple[Any, tuple, dict]:
    """Returns the Triton kernel that a host function would launch, and with what."""
    found: list[tuple[Any, tuple, dict]] = []

    def stop(kernel: Any, grid: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        found.append((kernel, args, kwargs))
        raise StopIteration

    with contextlib.suppress(StopIteration):
        function(*args, _launcher=stop)
    return found[0]

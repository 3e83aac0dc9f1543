"""Reads a case a line from standard input, runs it (interpreted, or on a GPU), answers in JSON."""

import json
import sys

import torch

from kt_lab.inspect.interpreted import mend_interpreter
from kt_lab.kernels import device_module, get_kernel
from kt_lab.runners.gpu.checking import as_tuple
from kt_lab.workload import Workload

mend_interpreter()
_GUARD = 4096  # elements before and after the output; a multiple of any vector width
_UNTOUCHED = 72.0  # exact in every dtype, e4m3 too


def _guarded(out):
    """Returns a buffer of sentinels and a view in its middle, poisoned with NaN."""
    buffer = torch.full(
        (out.numel() + 2 * _GUARD,), _UNTOUCHED, dtype=out.dtype, device=out.device
    )
    middle = buffer[_GUARD : _GUARD + out.numel()]
    middle.fill_(float("nan"))
    return buffer, middle.view(out.shape)


def _same(got, expected, kernel):
    """Whether outputs agree: bit by bit where the kernel tolerates nothing."""
    if kernel.rtol == kernel.atol == 0:
        return torch.equal(got.view(torch.uint8), expected.view(torch.uint8))
    return torch.allclose(got.to(expected.dtype), expected, rtol=kernel.rtol, atol=kernel.atol)


def _problem(case):
    kernel = get_kernel(case["kernel"])
    module = device_module(case.get("code", case["kernel"]))
    dtype = case.get("dtype", kernel.workloads[0].dtype)
    workload = Workload(case["kernel"], "test", case["extents"], dtype)
    inputs = module.make_inputs(workload, device=case.get("device", "cpu"), seed=3)
    written = [
        k for k, v in inputs.items() if any(v is o for o in as_tuple(module.output(inputs)))
    ]
    buffers = []
    for name in written:
        buffer, inputs[name] = _guarded(inputs[name])
        buffers.append(buffer)
    before = {k: v.clone() for k, v in inputs.items() if k not in (*written, "workspace")}
    launch = module.plan(inputs, workload, case["config"], sms=case["sms"])
    expected = as_tuple(module.reference(inputs, workload))
    shared = any(v > 1 for name, v in case["config"].items() if name.startswith("SPLIT"))
    for _ in range(2 if shared else 1):  # a shared sum must leave its counters as it found them
        for name in written:
            inputs[name].fill_(float("nan"))
        if launch.prepare:
            launch.prepare()
        launch()
        for got, right in zip(as_tuple(module.output(inputs)), expected, strict=True):
            if not _same(got, right, kernel):
                return f"differs by up to {(got.float() - right.float()).abs().max().item()}"
    for buffer in buffers:
        if not all((band == _UNTOUCHED).all() for band in (buffer[:_GUARD], buffer[-_GUARD:])):
            return "wrote outside the output"
    changed = [name for name, old in before.items() if not torch.equal(inputs[name], old)]
    return f"changed {changed}" if changed else ""


def _refused(error):
    """Whether the compiler or the launch said no: a failure to record, not a wrong result."""
    return type(error).__name__ in ("OutOfResources", "PTXASError") or "PassManager" in str(error)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        one = json.loads(line)
        try:
            answer = {"problem": _problem(one)}
        except Exception as error:
            if not _refused(error):
                raise
            answer = {"problem": "", "refused": type(error).__name__}
        print(json.dumps(answer), flush=True)

"""Reads cases from standard input, runs each (interpreted, or on a GPU), answers in JSON lines."""

import json
import sys

import torch

from kt_lab.kernels import device_module, get_kernel
from kt_lab.workload import Workload

_GUARD = 4096  # elements before and after the output; a multiple of any vector width
_UNTOUCHED = 77.0


def _guarded(out):
    """Returns a buffer of sentinels and a view in its middle, poisoned with NaN."""
    buffer = torch.full(
        (out.numel() + 2 * _GUARD,), _UNTOUCHED, dtype=out.dtype, device=out.device
    )
    middle = buffer[_GUARD : _GUARD + out.numel()]
    middle.fill_(float("nan"))
    return buffer, middle.view(out.shape)


def _problem(case):
    kernel = get_kernel(case["kernel"])
    module = device_module(case["kernel"])
    workload = Workload(case["kernel"], "test", case["extents"], kernel.workloads[0].dtype)
    inputs = module.make_inputs(workload, device=case.get("device", "cpu"), seed=3)
    buffer, inputs["out"] = _guarded(inputs["out"])
    before = {k: v.clone() for k, v in inputs.items() if k not in ("out", "workspace")}
    launch = module.plan(inputs, workload, case["config"], sms=case["sms"])
    expected = module.reference(inputs, workload)
    shared = any(v > 1 for name, v in case["config"].items() if name.startswith("SPLIT"))
    for _ in range(2 if shared else 1):  # a shared sum must leave its counters as it found them
        inputs["out"].fill_(float("nan"))
        if launch.prepare:
            launch.prepare()
        launch()
        got = module.output(inputs).to(expected.dtype)
        if not torch.allclose(got, expected, rtol=kernel.rtol, atol=kernel.atol):
            return f"differs by up to {(got - expected).abs().max().item()}"
    if not ((buffer[:_GUARD] == _UNTOUCHED).all() and (buffer[-_GUARD:] == _UNTOUCHED).all()):
        return "wrote outside the output"
    changed = [name for name, old in before.items() if not torch.equal(inputs[name], old)]
    return f"changed {changed}" if changed else ""


def _refused(error):
    """Whether the compiler or the launch said no: a failure to record, not a wrong result."""
    return type(error).__name__ in ("OutOfResources", "PTXASError") or "PassManager" in str(error)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for one in json.load(sys.stdin):
        try:
            answer = {"problem": _problem(one)}
        except Exception as error:
            if not _refused(error):
                raise
            answer = {"problem": "", "refused": type(error).__name__}
        print(json.dumps(answer), flush=True)

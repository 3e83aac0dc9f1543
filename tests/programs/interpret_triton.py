"""Reads kernels from standard input, runs configs of each interpreted, answers in JSON lines."""

import json
import sys
import tempfile
import warnings

import numpy as np
import torch

from kt_lab.inspect.interpreted import interpret_one, mend_interpreter
from kt_lab.kernels import device_module, subject
from kt_lab.programs.triton_kernel import triton_kernel
from kt_lab.runners.gpu.checking import difference
from kt_lab.workload import Workload


def corners(space):
    """Returns the configs of each schedule with the least and the most rows and lanes."""
    found = {}
    for config in space.configs(space.enumerate()):
        found.setdefault((config["SCHEDULE"], config["ROWS"], config.get("BLOCK")), config)
    for name in {key[0] for key in found}:
        keys = sorted((key for key in found if key[0] == name), key=lambda k: (k[1], k[2] or 0))
        wide = sorted(keys, key=lambda k: (k[2] or 0, k[1]))
        yield from (found[key] for key in {keys[0], keys[-1], wide[0], wide[-1]})


def problems(case, folder):
    workload = Workload(case["operator"], "test", case["extents"], "float32")
    kernel = triton_kernel(case["operator"], workload, folder=folder, schedules=case["schedules"])
    (shape,) = kernel.workloads
    asked = subject(shape, kernel)
    module = device_module(asked.device)
    inputs = module.make_inputs(shape, device="cpu", seed=0)
    theirs = module.baseline(inputs, shape)[0]()
    yield difference(theirs, module.reference(inputs, shape), law=asked), "baseline"
    for config in corners(kernel.space(shape)):
        yield interpret_one({"subject": asked, "config": config, "sms": 2}), str(config)


if __name__ == "__main__":
    torch.set_num_threads(1)
    mend_interpreter()
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for one in json.load(sys.stdin):
            found = list(problems(one, folder))
            wrong = [f"{why} at {config}" for why, config in found if why]
            print(json.dumps({"configs": len(found), "wrong": wrong}), flush=True)

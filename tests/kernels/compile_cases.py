"""Reads a case a line from standard input, compiles it for sm_90, GPU or not, answers in JSON."""

import json
import sys

import triton
from triton.backends.compiler import GPUTarget

from kt_lab.kernels import device_module, get_kernel
from kt_lab.workload import Workload


class Hopper:
    """What Triton's compiler asks of a driver, answered for a GPU that is not there."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=None):  # noqa: ARG002
        return 0


def _compile(case):
    dtype = get_kernel(case["kernel"]).workloads[0].dtype
    workload = Workload(case["kernel"], "test", case["extents"], dtype)
    module = device_module(case["kernel"])
    launch = module.plan(module.fake_inputs(workload), workload, case["config"], sms=case["sms"])
    compiled = launch.fn.warmup(*launch.args, grid=launch.grid, **launch.constexprs)
    return {"ptx": compiled.asm["ptx"], "shared": compiled.metadata.shared}


if __name__ == "__main__":
    triton.runtime.driver.set_active(Hopper())
    for line in sys.stdin:
        print(json.dumps(_compile(json.loads(line))), flush=True)

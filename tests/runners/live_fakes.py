"""Stand-ins for a GPU: a device module without Triton, and services that fail on demand.

The config's FAULT says what happens; LATENCY and VARIANT make the rest.
"""

import dataclasses
import hashlib
import os
import signal
import time
from types import SimpleNamespace

from kt_lab.kernels.device import Launch
from kt_lab.runners.workers import WorkerLost
from kt_lab.space import Choice, Integer, ParameterSpace
from kt_lab.workload import Kernel, Workload

COMPILE_FAULTS = ("compile_error", "compile_killed", "compile_hangs")
TIMING_FAULTS = ("launch_error", "wrong_result", "timing_killed", "timing_hangs", "poisoned")
FAULTS = ("none", *COMPILE_FAULTS, *TIMING_FAULTS, "unplannable")
SPACE = ParameterSpace(
    [Choice("FAULT", FAULTS), Integer("VARIANT", 0, 19), Integer("PROGRAMS", 1, 2)],
    default={"FAULT": "none", "VARIANT": 0, "PROGRAMS": 1},
)
WORKLOAD = Workload("fake", "16", {"N": 16}, "float32")
KERNEL = Kernel(
    name="fake",
    description="nothing",
    workloads=(WORKLOAD,),
    space=lambda _: SPACE,
    bytes_moved=lambda workload: workload.extents["N"],
    flops=lambda _: 1,
    rtol=0.0,
    atol=0.0,
    device=__name__,
)
CALM_SPACE = ParameterSpace(  # nothing that hangs or kills
    [
        Choice("FAULT", ("none", "compile_error", "wrong_result")),
        Integer("VARIANT", 0, 19),
        Integer("PROGRAMS", 1, 2),
    ],
    default=SPACE.default,
)
CALM = dataclasses.replace(KERNEL, space=lambda _: CALM_SPACE)
INTERPRETED = os.environ.get("TRITON_INTERPRET")  # as it was where this was imported
SERVICES = {"compile": f"{__name__}:compile_service", "timing": f"{__name__}:timing_service"}


def fake_inputs(workload):  # noqa: ARG001
    return {}


def plan(inputs, workload, config, *, sms):  # noqa: ARG001
    if config["FAULT"] == "unplannable":
        raise ValueError("no such tile")
    fn = SimpleNamespace(__name__="fake")
    constexprs = {"FAULT": config["FAULT"], "VARIANT": config["VARIANT"]}
    return Launch(fn, (config["PROGRAMS"],), (), constexprs)


def compile_service(**settings):  # noqa: ARG001
    return _compile


def _compile(task):
    fault, variant = task["config"]["FAULT"], task["config"]["VARIANT"]
    if fault == "compile_error":
        return {"status": "compile_error", "error": "E: no", "wall_s": 0.01, "cpu_s": 0.01}
    if fault == "compile_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "compile_hangs":
        time.sleep(1000)
    # Variants 18 and 19 compile to one binary.
    text = f"{fault}{min(variant, 18)}"
    return {
        "status": "ok",
        "error": "",
        "code_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "shared_bytes": 0,
        "registers": 16,
        "wall_s": 0.01,
        "cpu_s": 0.01,
    }


def timing_service(*, device):  # noqa: ARG001
    return Timing()


def no_gpu(*, device):
    raise OSError(f"no GPU {device} here")


def latency_us(config):
    return 10.0 + config["VARIANT"] + 100.0 * (config["PROGRAMS"] - 1)


def _launch(fault):
    if fault == "timing_killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "timing_hangs":
        time.sleep(1000)
    if fault == "poisoned":
        raise WorkerLost("CUDA error: an illegal memory access was encountered")


class Timing:
    """Knows how often each config was checked and timed, and in which process."""

    def __init__(self):
        self.timed = 0

    def __call__(self, task):
        return getattr(self, task["do"])(task)

    def identify(self, task):  # noqa: ARG002
        facts = {"gpu": "NVIDIA Fake", "slug": "fake", "capability": "9.0", "sms": 132}
        told = {"triton": "3.6.0", "memory_bytes": 4_000_000_000}
        return facts | told | {"interpreted": INTERPRETED}

    def load(self, task):  # noqa: ARG002
        return {"seconds": 0.0}

    def measure(self, task):
        fault = task["config"]["FAULT"]
        _launch(fault)
        if fault == "launch_error" or (fault == "wrong_result" and task["check"]):
            return {"status": fault, "error": "planted", "seconds": 0.001}
        self.timed += 1
        rule, latency = task["rule"], latency_us(task["config"])
        first = rule.first(task["asked"])
        rest = rule.rest(
            [latency] * first,
            asked=task["asked"],
            best_us=task["best_us"],
            cutoff_us=task["cutoff_us"],
        )
        return {
            "status": "censored" if rest is None else "ok",
            "error": "",
            "samples_us": [latency] * (first + (rest or 0)),
            "registers": 32,
            "spills": 0,
            "shared_bytes": 0,
            "load_s": 0.001,
            "check_s": 0.002 * task["check"],
            "timing_s": 0.003,
            "seconds": 0.006,
        }

    def race(self, task):
        """Checks nothing, as the real one: what is wrong is timed like what is right."""
        for config in task["configs"]:
            _launch(config["FAULT"])
            if config["FAULT"] not in ("none", "wrong_result"):
                raise RuntimeError("planted")
        row = [latency_us(config) for config in task["configs"]]
        return {"blocks_us": [row] * task["rounds"]}

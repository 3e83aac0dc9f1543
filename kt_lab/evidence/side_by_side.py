"""Kernels of both sides on one GPU, in one process: right or wrong, alone and in alternation."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from kt_lab.evidence.resuming import short
from kt_lab.kernels import device_module, get_workload, subject
from kt_lab.runners.gpu.compiling import one_line
from kt_lab.runners.gpu.facts import cuda_device, lock_name, read_sensors
from kt_lab.runners.gpu.lock import GpuLock
from kt_lab.runners.gpu.protocols import FLUSH_BYTES, PROTOCOLS, get_protocol

WAIT_S = 60.0  # for the previous step's processes to let go of the GPU
_INPUT_SEED = 20240229  # any fixed number: both sides see the same inputs
_REPETITIONS = 100
_BLOCK = 10  # launches of a block of the race


class Bench:
    """The GPU with the inputs and the reference of one workload, held by this process."""

    def __init__(self, workload: str):
        """Makes inputs and reference of a registered workload."""
        import torch

        cuda_device(0)
        self.workload = get_workload(workload)
        self.subject = subject(self.workload)
        self.device = device_module(self.subject.device)
        self.inputs = self.device.make_inputs(self.workload, device="cuda", seed=_INPUT_SEED)
        self.reference = self.device.reference(self.inputs, self.workload)
        self.flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self._torch = torch
        torch.cuda.synchronize()

    def launch(self, side: str, config: Mapping[str, Any]) -> Callable[[], Any]:
        """Returns what enqueues one launch of a side's kernel at a config, and its output."""
        if side == "helion":
            from kt_lab.evidence.helion_kernels import launcher

            return launcher(self.workload.kernel, self.inputs, config)
        if side == "torch":
            return self.device.baseline(self.inputs, self.workload)[0]
        plan = self.device.plan(self.inputs, self.workload, config, sms=self.sms)

        def ours() -> Any:
            plan.fn[plan.grid](*plan.args, **plan.constexprs)
            return self.device.output(self.inputs)

        return ours

    def wrong(self, launch: Callable[[], Any]) -> str:
        """Returns why the output of a launch is wrong, or an empty string."""
        from kt_lab.runners.gpu.checking import difference, poison

        poison(self.device.output(self.inputs))
        output = launch()
        self._torch.cuda.synchronize()
        return difference(output, self.reference, law=self.subject)

    def time_us(self, launch, *, protocol="events", repetitions=_REPETITIONS, warm_up=2) -> float:
        """Returns the median of a visit in microseconds."""
        take = get_protocol(protocol).time
        samples = take(launch, repetitions=repetitions, flush=self.flush, warm_up=warm_up)
        return statistics.median(samples)


def locked(task: Mapping[str, Any]) -> GpuLock:
    """Returns the lock of the GPU, held for a job."""
    what = f"{task['do']} of {task['workload']}"
    return GpuLock(lock_name(), what=what, wait_s=WAIT_S)


def judged(bench: Bench, side: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns whether a tuned kernel is right (`wrong`), and its latency by kt_lab's protocols."""
    found: dict[str, Any] = {}
    try:
        launch = bench.launch(side, config)
        found["wrong"] = bench.wrong(launch)
        for protocol in () if found["wrong"] else PROTOCOLS:
            found[f"{protocol}_us"] = bench.time_us(launch, protocol=protocol)
    except Exception as error:  # how long tuning took is worth keeping all the same
        found.setdefault("wrong", one_line(error))
        found["judging_error"] = one_line(error)
    return found


def race(task: dict[str, Any]) -> dict[str, Any]:
    """Times all winners of one workload in alternation, in one process, on the same inputs.

    Args:
        task: `contenders`, each with name, side ("helion", "ours", "torch") and config; `rounds`
            of blocks of 10 launches per protocol, their order reversed in every other round.

    Returns:
        Per contender what is wrong with it, and per protocol `blocks_us`: [round][contender].
    """
    with locked(task):
        bench = Bench(task["workload"])
        running, rows = [], []
        for contender in task["contenders"]:
            row = {"name": contender["name"], "side": contender["side"], "wrong": ""}
            try:
                launch = bench.launch(contender["side"], contender["config"])
                if contender["side"] != "torch":  # rounds elsewhere, and is no contender's rival
                    row["wrong"] = bench.wrong(launch)
                bench.time_us(launch, repetitions=3)
                if not row["wrong"]:
                    running.append((contender["name"], launch))
            except Exception as error:
                row["wrong"] = one_line(error)
            rows.append(row)
        blocks = {p: _blocks(bench, running, p, task["rounds"]) for p in PROTOCOLS}
        names = [name for name, _ in running]
        return {"contenders": rows, "names": names, "blocks_us": blocks, "sensors": read_sensors()}


def _blocks(bench: Bench, running: list, protocol: str, rounds: int) -> list[list[float]] | str:
    try:
        found = []
        for number in range(rounds):
            row = [0.0] * len(running)
            order = range(len(running))
            for at in reversed(order) if number % 2 else order:
                launch = running[at][1]
                us = bench.time_us(launch, protocol=protocol, repetitions=_BLOCK, warm_up=1)
                row[at] = short(us)
            found.append(row)
    except Exception as error:  # a launch that cannot be captured must not cost the other protocol
        return one_line(error)
    return found

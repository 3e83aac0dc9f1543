"""Running configs in Triton's interpreter: whether their results are right, without a GPU.

The interpreter executes a kernel's programs one after the other in numpy, so shapes should be
small. It knows tiles, masks and splits, but neither warps nor stages nor memory.
"""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd

from kt_lab.errors import UsageError, install
from kt_lab.inspect.inspection import columns_of
from kt_lab.runners.workers import Outcome, Workers
from kt_lab.workload import Kernel, Subject, Workload

PRELOAD = ("torch", "triton")  # what its child processes share, see Workers
_SERVICE = "kt_lab.inspect.interpreted:interpret_service"
_ENVIRONMENT = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
_TORCHS = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_TORCHS |= {"fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2"}  # Triton's name: torch's


def can_interpret() -> bool:
    """Whether torch and triton are installed."""
    return all(importlib.util.find_spec(name) for name in ("torch", "triton"))


def small_workload(kernel: Kernel, *, points: int = 2**14) -> Workload:
    """Returns a workload that the interpreter finishes in seconds, with awkward extents.

    Args:
        kernel: Its first workload is taken, every extent cut to one bound.
        points: The product of the extents stays below this.
    """
    first = kernel.workloads[0]
    bound = max(4, max(first.extents.values(), default=4) // 4 * 4)
    while math.prod(min(v, bound) for v in first.extents.values()) > points and bound > 4:
        bound -= max(4, bound // 16 // 4 * 4)  # packed operands need multiples of 4
    extents = {name: min(value, bound) for name, value in first.extents.items()}
    name = "x".join(map(str, extents.values()))
    return Workload(kernel.name, name, extents, first.dtype, "for the interpreter")


def check_configs(
    subject: Subject,
    configs: Sequence[Mapping[str, Any]],
    *,
    sms: int = 4,
    workers: int = 1,
    timeout_s: float = 60.0,
) -> pd.DataFrame:
    """Runs configs in child processes and compares their outputs with the torch reference.

    Outputs are poisoned and lie between guard bands, as on a GPU.

    Args:
        subject: The workload, which should be small, and its device code.
        configs: Members of its search space.
        sms: Multiprocessors that persistent grids are made for.
        workers: Child processes.
        timeout_s: Seconds that one config may take.

    Returns:
        One row per config, in their order: the parameters, status ("ok", "wrong_result",
        "launch_error", "timeout" or "crashed"), error and seconds; parameters of these names as
        p_status and so on.

    Raises:
        UsageError: torch or triton is not installed.
    """
    if not can_interpret():
        raise UsageError(f"the interpreter needs torch and triton; {install('gpu')}")
    found: dict[int, dict[str, Any]] = {}
    with Workers(workers, service=_SERVICE, env=_ENVIRONMENT) as interpreting:
        for at, config in enumerate(configs):
            task = {"subject": subject, "config": dict(config), "sms": sms}
            interpreting.submit(at, task, timeout_s=timeout_s)
        while interpreting.pending:
            at, outcome = interpreting.next()
            found[at] = _told(outcome)
    columns = [columns_of(config, beside=("status", "error", "seconds")) for config in configs]
    return pd.DataFrame([{**config, **found[at]} for at, config in enumerate(columns)])


def _told(outcome: Outcome) -> dict[str, Any]:
    status, error = "wrong_result" if outcome.value else "ok", outcome.value
    if outcome.kind != "ok":
        status = "launch_error" if outcome.kind == "error" else outcome.kind
        hint = "; give it more timeout_s, or small_workload() fewer points="
        error = outcome.error + hint * (status == "timeout")
    return {"status": status, "error": error, "seconds": outcome.seconds}


def interpret_service():
    """Starts a child process with TRITON_INTERPRET set; returns its handler, `interpret_one`."""
    mend_interpreter()
    return interpret_one


def mend_interpreter() -> None:
    """Mends Triton 3.7's interpreter in this process: what it gets wrong, and where it is slow.

    Atomics read the memory of their mask as if it were whole, but numpy's broadcast of a single
    element shares that one: the elements after it were whatever lay behind. And every call of a
    helper patches the language anew, though the kernel that calls it has done so; every operation
    on integers is computed in 64 bits too, for an assertion that without debugging nobody makes;
    and the table of numpy's types is made anew for whoever looks one up. For numbers that numpy
    does not have see `_mend_numbers`.
    """
    import numpy as np
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    if builder.create_broadcast.__name__ == "whole":
        return
    shared, patch = builder.create_broadcast, interpreter._patch_lang

    def whole(self, arg, shape):
        found = shared(self, arg, shape)
        found.data = np.array(found.data)
        return found

    def once(fn):
        core = [each for each in fn.__globals__.values() if each is interpreter.tl.core]
        ranges = {each.range.__module__ for each in (interpreter.tl, *core)}
        return interpreter._LangPatchScope() if ranges == {interpreter.__name__} else patch(fn)

    known, pointer = lru_cache(interpreter._get_np_dtype), np.dtype(np.uint64)
    # Neither blocks nor pointers have a hash.
    interpreter._get_np_dtype = lambda t: pointer if t.scalar.is_ptr() else known(t.scalar)
    unchecked = interpreter.InterpreterOptions(sanitize_overflow=False)
    interpreter.interpreter_builder.options = unchecked
    builder.create_broadcast, interpreter._patch_lang = whole, once
    _mend_numbers(interpreter)


def _mend_numbers(interpreter: Any) -> None:
    """Casts as a GPU does, and computes with the value of a bfloat16 instead of its bits.

    The interpreter cuts off what a bfloat16 or 8 bits cannot hold, or rounds up without the carry;
    a GPU rounds to nearest even, and to 8 bits never beyond the largest number. It loses subnormal
    bfloat16 and what is no number in 8 bits; and it adds, multiplies and compares bfloat16 as the
    16-bit integers that it keeps them in, and makes them of integers and float64 in this way too.
    """
    import numpy as np
    import torch

    tl, builder = interpreter.tl, interpreter.InterpreterBuilder
    convert, cast, binary = interpreter._convert_float, builder.cast_impl, builder.binary_op
    dot, nearest = builder.create_dot, (None, interpreter._ir.ROUNDING_MODE.RTNE)

    def converted(data, source, target, rounding):
        if rounding not in nearest or not {source.name, target.name} <= set(_TORCHS):
            return convert(data, source, target, rounding)
        there, here = (getattr(torch, _TORCHS[t.name]) for t in (target, source))
        bits = torch.from_numpy(np.array(data).view(f"i{data.itemsize}"))
        if source.is_fp64():  # torch rounds to float32 first: to odd, and it does no harm
            bits = (bits >> 29 | ((bits & (2**29 - 1)) > 0)) << 29
        found = bits.view(here)
        if target.is_fp8():
            found = found.float().clamp(torch.finfo(there).min, torch.finfo(there).max)
        return found.to(there).view(getattr(torch, f"int{8 * there.itemsize}")).numpy()

    def cast_value(self, src, dst_type):
        if dst_type.scalar.name != "bf16":
            return cast(self, src, dst_type)
        exact = interpreter.TensorHandle(src.data.astype("f8"), tl.float64)
        return self.create_fp_to_fp(exact, dst_type, None)

    def wide(self, *handles):
        return [self.cast_impl(h, tl.float32) if h.dtype.name == "bf16" else h for h in handles]

    def by_value(self, lhs, rhs, op):
        if lhs.dtype.name != "bf16":
            return binary(self, lhs, rhs, op)
        found = binary(self, *wide(self, lhs, rhs), op)
        return found if found.data.dtype == bool else self.cast_impl(found, tl.bfloat16)

    interpreter._convert_float = converted
    builder.cast_impl, builder.binary_op = cast_value, by_value
    builder.create_dot = lambda self, a, b, *more: dot(self, *wide(self, a, b), *more)
    builder.get_bf16 = lambda self, value: self.cast_impl(self.get_fp32(value), tl.bfloat16)


def interpret_one(task: dict[str, Any]) -> str:
    """Runs one config; returns what is wrong with its result, or an empty string.

    Args:
        task: `subject`, `config` (values by name) and `sms`.
    """
    from kt_lab.kernels import device_module
    from kt_lab.runners.gpu.checking import Outputs, difference, poison
    from kt_lab.trial import Config

    subject = task["subject"]
    device, workload = device_module(subject.device), subject.workload
    inputs = device.make_inputs(workload, device="cpu", seed=0)
    guarded = Outputs(inputs, device.output(inputs))
    launch = device.plan(inputs, workload, Config(task["config"]), sms=task["sms"])
    reference = device.reference(inputs, workload)
    poison(device.output(inputs))
    if launch.prepare:
        launch.prepare()
    launch()
    return difference(device.output(inputs), reference, law=subject) or guarded.touched()

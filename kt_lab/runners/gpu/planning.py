"""What a recording needs to know of device code without launching it."""

import hashlib
from collections.abc import Iterator
from typing import Any

from kt_lab.kernels import device_module, get_workload
from kt_lab.space import ParameterSpace

_DEVICE = "kt_lab.kernels.device"


def specialisations(workload: str, space: ParameterSpace, *, sms: int) -> Iterator[str]:
    """Yields the name of the binary that each config needs, in the order of `enumerate()`.

    Args:
        workload: Key of the workload.
        space: Its search space.
        sms: Multiprocessors of the GPU, which some grids depend on.
    """
    found = get_workload(workload)
    device = device_module(found.kernel)
    fakes = device.fake_inputs(found)
    for config in space.configs(space.enumerate()):
        yield f"{found.kernel}-{launch_key(device.plan(fakes, found, config, sms=sms))}"


def launch_key(launch: Any) -> str:
    """Names the specialisation that a launch needs, as Triton will see it (16 hex digits).

    Integer arguments are specialised on being 1 and on being divisible by 16; tensors count by
    their dtype (allocations are 16-byte aligned). Two launches with one key share one binary.
    """
    parts = [launch.fn.__name__]
    for argument in launch.args:
        if isinstance(argument, int):
            parts.append("1" if argument == 1 else "16" if argument % 16 == 0 else "n")
        else:
            parts.append(str(getattr(argument, "dtype", argument)))
    parts += [f"{k}={v!r}" for k, v in sorted(launch.constexprs.items())]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def sources(kernel: str) -> list[str]:
    """Returns the modules that define a kernel: its space, its device code, and what that uses."""
    device = device_module(kernel)
    used = {
        name
        for value in vars(device).values()
        if (name := getattr(value, "__module__", "") or "").startswith(f"{_DEVICE}.")
    }
    return [f"kt_lab.kernels.{kernel}", device.__name__, *sorted(used - {device.__name__})]

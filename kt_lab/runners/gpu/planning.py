"""What a recording needs to know of device code without launching it."""

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kt_lab.kernels import REGISTRY, device_module
from kt_lab.space import ParameterSpace
from kt_lab.workload import Subject

_KERNELS = "kt_lab.kernels"
_DEVICE = "kt_lab.kernels.device"  # the contract, which is no part of any one kernel


@dataclass(frozen=True, slots=True)
class Plan:
    """What a config comes to on a GPU, known without launching it.

    Attributes:
        specialisation: Names its binary: configs with the same one share a compilation.
        grid: Programs along each axis ("132x1"), and what the kernel is given at run time where
            that is not what the default config gives it ("132x1 4096,99"): with the binary it says
            what the GPU does.
        index: Position in `space.enumerate()`; -1 in a space too large for that.
    """

    specialisation: str
    grid: str
    index: int


def planner(
    subject: Subject, space: ParameterSpace, *, sms: int
) -> Callable[[Mapping[str, Any]], Plan]:
    """Returns config -> Plan; imports torch and triton, but needs no GPU."""
    launched = _launcher(subject, space, sms)

    def plan(config: Mapping[str, Any]) -> Plan:
        at = int(space.indices([space.row(config)])[0]) if space.enumerable else -1
        return Plan(*launched(config), at)

    return plan


def launches(subject: Subject, space: ParameterSpace, *, sms: int) -> Iterator[tuple[str, str]]:
    """Yields (specialisation, grid) of each config, in the order of `enumerate()`.

    Configs of one specialisation share a binary; only with the same grid, as `Plan` has it, do
    they do the same.

    Args:
        subject: The workload and its device code.
        space: Its search space.
        sms: Multiprocessors of the GPU, which some grids depend on.
    """
    launched = _launcher(subject, space, sms)
    yield from map(launched, space.configs(space.enumerate()))


def _launcher(subject: Subject, space: ParameterSpace, sms: int) -> Callable:
    """Returns config -> (specialisation, grid)."""
    device = device_module(subject.device)
    fakes = device.fake_inputs(subject.workload)

    def planned(config: Mapping[str, Any]) -> Any:
        return device.plan(fakes, subject.workload, config, sms=sms)

    usual = None
    with suppress(Exception):  # a config that cannot be planned says so when it is asked for
        usual = _given(planned(space.default))

    def launched(config: Mapping[str, Any]) -> tuple[str, str]:
        launch = planned(config)
        grid, given = "x".join(map(str, launch.grid)), _given(launch)
        name = f"{subject.workload.kernel}-{launch_key(launch)}"
        return name, grid if given == usual else f"{grid} {','.join(given)}"

    return launched


def _given(launch: Any) -> list[str]:
    """Returns the arguments of a launch that are no tensors."""
    return [str(a) for a in launch.args if not hasattr(a, "dtype")]


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
    """Returns the modules that define a kernel: its space, its device code, and what those use.

    Nothing is imported, which would take seconds for torch. A module of which only constants are
    used does not count, as in the hashes of what is recorded.
    """
    found = [f"{_KERNELS}.{REGISTRY[kernel]}", f"{_DEVICE}.{REGISTRY[kernel]}"]
    for name in found:  # which grows
        path = Path(__file__).parents[3].joinpath(*name.split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(path.read_bytes())):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            ours = module.startswith(f"{_KERNELS}.") and module not in (_DEVICE, *found)
            if ours and not all(alias.name.isupper() for alias in node.names):
                found.append(module)
    return found[:2] + sorted(found[2:])

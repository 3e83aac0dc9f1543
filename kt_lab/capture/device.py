"""What a captured module is to whoever imports it: device code, as kt_lab.kernels.device asks."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import torch

from kt_lab.capture.launching import plan
from kt_lab.capture.parts import Captured, first_of, parameters_of, restore, seen
from kt_lab.errors import UsageError
from kt_lab.workload import Workload


def make_inputs(it: Captured, workload: Workload, *, device: Any, seed: int) -> dict[str, Any]:
    """Returns what inputs() makes, and copies of what every launch must find again."""
    made = _made(it, workload, device, seed)
    for name in it.zeroed:
        made[name].zero_()
    return made | {first_of(name): made[name].clone() for name in it.restored}


def fake_inputs(it: Captured, workload: Workload) -> dict[str, Any]:
    """Returns dtypes in place of tensors, and everything else as inputs() returns it.

    inputs() is called once per process and workload, with the device "meta", on which tensors
    take no memory; with "cpu" if it cannot do with that.
    """
    if workload.extents not in it.fakes:
        try:
            made = _made(it, workload, "meta", 0)
        except UsageError:
            raise
        except Exception:  # a generator, .item(), whatever else that device cannot do
            made = _made_here(it, workload)
        fakes = {k: v.dtype if isinstance(v, torch.Tensor) else v for k, v in made.items()}
        it.fakes[workload.extents] = {"inputs": fakes, "facts": _facts(it, made)}
    return dict(it.fakes[workload.extents]["inputs"])


def tensor_facts(it: Captured, workload: Workload) -> dict[str, Any]:
    """Returns `dtype` and `shape` of the first tensor argument, and the `bytes` of all.

    Bytes count a tensor once, and twice if it is read and written.
    """
    fake_inputs(it, workload)
    return it.fakes[workload.extents]["facts"]


def output(it: Captured, inputs: Mapping[str, Any]) -> Any:
    """Returns the tensor that the kernel writes, or a tuple of them."""
    found = tuple(inputs[name] for name in it.outputs)
    return found[0] if len(found) == 1 else found


def reference(it: Captured, inputs: Mapping[str, Any], workload: Workload) -> Any:
    """Returns what `output` must hold after a launch, shaped like it.

    The user's function gets copies of all tensors, with their first content, so that a reference
    that works in place neither changes the inputs nor hands back the output itself.
    """
    args = seen(it, inputs, workload)
    for name in {*it.outputs, *it.restored}:
        args[name] = inputs.get(first_of(name), inputs[name])
    args = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in args.items()}
    found = it.reference(args)
    if isinstance(found, Mapping):
        found = [found.get(name) for name in it.outputs]
    found = tuple(found) if isinstance(found, tuple | list) else (found,)
    wanted = [tuple(inputs[name].shape) for name in it.outputs]
    shapes = [tuple(t.shape) if isinstance(t, torch.Tensor) else type(t).__name__ for t in found]
    if shapes != wanted:
        raise UsageError(
            f"reference() must return a tensor for each of {', '.join(it.outputs)}, shaped like "
            f"it: {wanted}, got {shapes}"
        )
    found = tuple(tensor.detach() for tensor in found)
    return found[0] if len(found) == 1 else found


def baseline(
    it: Captured, inputs: Mapping[str, Any], workload: Workload
) -> tuple[Callable[[], Any], str]:
    """Returns what is timed beside the kernel, and its name.

    What the kernel finds restored, it finds restored too: by its attribute `prepare`, untimed.
    """
    args = seen(it, inputs, workload)

    def run() -> Any:
        return it.baseline(args)

    run.prepare = partial(restore, inputs, it.restored)
    return run, it.baseline.__name__


def _made(it: Captured, workload: Workload, device: Any, seed: int) -> dict[str, Any]:
    taken = inspect.signature(it.inputs).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    wanted = {k: v for k, v in workload.extents.items() if anything or k in taken}
    device = torch.device(device)
    with _seeded(device, seed):
        made = it.inputs(device, **wanted)
    if not isinstance(made, Mapping):
        raise UsageError(
            f"inputs() must return a dict of argument name to tensor or number, got "
            f"{type(made).__name__}; return {{'x': x, 'n': n}}"
        )
    tensors = [name for name, value in made.items() if isinstance(value, torch.Tensor)]
    for name in (*it.outputs, *it.restored):
        if name not in tensors:
            raise UsageError(
                f"an output must be one of the tensors that inputs() returns, got {name!r}; "
                f"the tensors are {', '.join(tensors) or 'none'}"
            )
    for name in parameters_of(it.fn).runtime:
        if name in tensors and made[name].device.type != device.type:
            raise UsageError(
                f"inputs() must make the kernel's tensors on the device that it is given, got "
                f"{name!r} on {made[name].device}, asked for {device}; make it with device=device"
            )
    return dict(made)


def _made_here(it: Captured, workload: Workload) -> dict[str, Any]:
    try:
        return _made(it, workload, "cpu", 0)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"inputs() must make its tensors on the device that it is given, also on 'cpu' where "
            f"configs are compiled, got {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _seeded(device: torch.device, seed: int) -> Iterator[None]:
    """Seeds the generators of the CPU and of `device`; afterwards they are as they were.

    Not by torch.manual_seed, which would seed every GPU, also those that come to life later.
    """
    on_gpu = device.type == "cuda"
    index = torch.cuda.current_device() if on_gpu and device.index is None else device.index
    with torch.random.fork_rng(devices=[index] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.default_generators[index].manual_seed(seed)
        yield


def _facts(it: Captured, made: Mapping[str, Any]) -> dict[str, Any]:
    names = [n for n in parameters_of(it.fn).runtime if isinstance(made.get(n), torch.Tensor)]
    first = made[names[0]] if names else torch.empty(0)
    size = {n: made[n].numel() * made[n].element_size() * (1 + (n in it.restored)) for n in names}
    dtype = str(first.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": tuple(first.shape), "bytes": sum(size.values())}


_PARTS = (make_inputs, fake_inputs, tensor_facts, output, reference, plan, baseline)
_CONTRACT = {part.__name__: part for part in _PARTS}


class _CapturedModule(ModuleType):
    """A module whose device code comes before the user's functions of the same names."""

    def __getattribute__(self, name: str) -> Any:
        if name in _CONTRACT:
            return partial(_CONTRACT[name], vars(self)["_kt_captured"])
        return super().__getattribute__(name)


def adopt(module: ModuleType, **parts: Any) -> None:
    """Turns a module of captured functions into a device module.

    Users call theirs `inputs`, `reference`, `output` too. What looks the names up in the module's
    dictionary, as the functions in it do, finds the user's; what asks the module, as kt_lab does,
    finds the device code.
    """
    vars(module)["_kt_captured"] = Captured(**parts)
    module.__class__ = _CapturedModule

"""A Triton kernel of the user's own, as a kernel that every runner takes."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

from kt_lab.capture.definitions import plain
from kt_lab.capture.module import Request, check_names, module_text, write_module
from kt_lab.capture.parts import parameters_of
from kt_lab.errors import UsageError, require_path_part
from kt_lab.kernels import REGISTRY, device_module
from kt_lab.space import ParameterSpace
from kt_lab.workload import Kernel, Workload

_SMS = 132  # multiprocessors for the trial launch plan; any number would do
_NUMBER, _COUNT = (Real, "a number >= 0"), (Real | Callable | None, "a number >= 0")
_KINDS = {  # what an argument must be; as it is told
    "space": (ParameterSpace | Callable, "a ParameterSpace, or a function that returns one"),
    "extents": (Mapping, "a dict of integers by name, as {'n': 4096}, or a list of such dicts"),
    "output": (Iterable, "the name of an argument, or a list of names"),
    "restore": (Iterable | None, "the name of an argument, or a list of names"),
    "constexprs": (Mapping | None, "a dict of values by name, as {'SPLIT': 4}"),
    **{"rtol": _NUMBER, "atol": _NUMBER, "bytes_moved": _COUNT, "flops": _COUNT},
}


def capture(
    fn: Any,
    *,
    space: ParameterSpace | Callable[[Workload], ParameterSpace],
    inputs: Callable[..., Mapping[str, Any]],
    grid: Callable[[Mapping[str, Any]], Sequence[int]],
    reference: Callable[[Mapping[str, Any]], Any],
    output: str | Sequence[str],
    name: str | None = None,
    extents: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
    dtype: Any = None,
    rtol: float = 1e-2,
    atol: float = 1e-2,
    bytes_moved: int | Callable[[Workload], int] | None = None,
    flops: int | Callable[[Workload], int] | None = None,
    source: str = "",
    baseline: Callable[[Mapping[str, Any]], Any] | None = None,
    constexprs: Mapping[str, Any] | None = None,
    restore: str | Sequence[str] | None = None,
) -> Kernel:
    """Returns a kernel made of a jitted function; `kt_lab.capture` says more and shows its use.

    Args:
        fn: Function under @triton.jit; the configs of an @triton.autotune on it are left aside.
        space: Its parameters are constexprs or arguments of fn, launch options, or read by grid.
        inputs: (device) or (device, **extents) -> the arguments of fn by name.
        grid: meta -> programs along each axis; meta holds numbers, extents, config and `sms`.
        reference: args -> what output must hold; several in order, or by name.
        output: Name or names of the tensors that fn writes.
        name: Of the kernel, for paths: letters, digits and _ . + -; None: that of fn.
        extents: Named integers of one workload, or of each of several; None: there are none.
        dtype: Of the workload's elements; None: that of the first tensor.
        rtol: Relative tolerance of the check, unitless; integers and flags have none.
        atol: Absolute tolerance of the check, in units of the output; integers and flags must be
            equal where it is below 1.
        bytes_moved: Bytes that must cross device memory; None: each tensor once.
        flops: Arithmetic operations; None: 0.
        source: Who runs these shapes.
        baseline: args -> anything; timed beside fn. None: `reference`.
        constexprs: Values of constexprs and options that neither space nor extents give.
        restore: Tensors that each launch must find as inputs() made them, beside those that are
            found out; None: no others; (): none at all.

    Raises:
        UsageError: A function cannot be captured, or the parts do not fit each other.
    """
    _check(output=output, restore=restore, constexprs=constexprs, rtol=rtol, atol=atol)
    _check(space=space, bytes_moved=bytes_moved, flops=flops)
    kept = None if restore is None else _names(restore)
    parts = (inputs, grid, reference, baseline or reference, _names(output))
    request = Request(fn, *parts, dict(constexprs or {}), kept)
    facts = {"name": name, "dtype": dtype, "source": source, "rtol": rtol, "atol": atol}
    many = isinstance(extents, Iterable) and not isinstance(extents, Mapping)
    each = list(extents) if many and extents else [extents or {}]
    return _kernel(request, space, each, (bytes_moved, flops), facts)


@dataclass(frozen=True)
class _Always:
    """One answer for every workload; unlike a lambda it can be pickled."""

    answer: Any

    def __call__(self, workload: Workload) -> Any:  # noqa: ARG002
        return self.answer


def _kernel(
    request: Request, space: Any, shapes: Sequence[Mapping], counts: tuple, facts: Mapping
) -> Kernel:
    for shape in shapes:
        _check(extents=shape)
    text = module_text(request)
    raw = plain(request.fn)
    name = facts["name"] or raw.__name__
    if name in REGISTRY:
        raise UsageError(
            f"a captured kernel must not be called like one that ships with kt_lab, whose "
            f"landscapes it would seem to have, got {name!r}; give it another with name="
        )
    hint = "; give it another with name="  # a stored winner asks as much, after the search
    require_path_part("a captured kernel's name", name, hint=hint)
    space_of = space if callable(space) else _Always(space)
    drafts = [Workload(name, "", shape, "", facts["source"]) for shape in shapes]
    parameters = parameters_of(request.fn)
    for draft in drafts:
        _check(space=(found := space_of(draft)))
        check_names(request, found.names, draft.extents, parameters)
    path = str(write_module(text, name=raw.__name__))
    workloads = tuple(_workload(path, draft, space_of, facts["dtype"]) for draft in drafts)
    if len({w.name for w in workloads}) < len(workloads):
        raise UsageError(f"workloads must differ in their extents, got {[*map(dict, shapes)]}")
    bytes_moved, flops = (c if c is None or callable(c) else _Always(c) for c in counts)
    return Kernel(
        name=name,
        description=(inspect.getdoc(raw) or f"{name}, captured").splitlines()[0],
        workloads=workloads,
        space=space_of,
        bytes_moved=bytes_moved or partial(_tensor_bytes, path),
        flops=flops or _Always(0),
        rtol=facts["rtol"],
        atol=facts["atol"],
        device=path,
    )


def _workload(path: str, draft: Workload, space_of: Callable, dtype: Any) -> Workload:
    """Returns a workload with its name and dtype, once one launch of it could be planned."""
    device = device_module(path)
    device.plan(device.fake_inputs(draft), draft, space_of(draft).default, sms=_SMS)
    facts = device.tensor_facts(draft)
    numbers = tuple(draft.extents.values()) or facts["shape"] or (1,)
    dtype = str(dtype or facts["dtype"]).removeprefix("torch.")
    return replace(draft, name="x".join(map(str, numbers)), dtype=dtype)


def _tensor_bytes(path: str, workload: Workload) -> int:
    return device_module(path).tensor_facts(workload)["bytes"]


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check(**given: Any) -> None:
    """Raises UsageError for the first of some arguments of `capture` that is of another kind."""
    for name, value in given.items():
        kind, law = _KINDS[name]
        if not isinstance(value, kind) or (isinstance(value, Real) and not value >= 0):
            raise UsageError(f"{name} must be {law}, got {value!r:.120}; see help(capture)")

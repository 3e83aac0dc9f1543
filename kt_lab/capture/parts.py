"""What a captured module holds: the user's functions, and how they go together."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kt_lab.capture.definitions import plain
from kt_lab.errors import UsageError
from kt_lab.workload import Workload

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # of a launch, beside its arguments


@dataclass(frozen=True)
class Captured:
    """The functions that a captured module holds, and how they go together.

    Attributes:
        fn: The jitted function.
        inputs: (device) or (device, **extents) -> arguments by name: tensors, numbers, None.
        grid: meta -> programs along one to three axes.
        reference: args -> what the outputs must hold: a tensor, or several in order or by name.
        baseline: args -> anything; what is timed beside the kernel.
        outputs: Names of the arguments that are compared with the reference.
        restored: Names of the tensors whose first content every launch must find.
        zeroed: Names of those whose first content is zero.
        constants: Values of what neither the space nor the extents nor inputs() give.
        heuristics: Rules by name, as `triton.heuristics` takes them; the outermost first.
    """

    fn: Any
    inputs: Callable[..., Mapping[str, Any]]
    grid: Callable[[Mapping[str, Any]], Sequence[int]]
    reference: Callable[[Mapping[str, Any]], Any]
    baseline: Callable[[Mapping[str, Any]], Any]
    outputs: tuple[str, ...]
    restored: tuple[str, ...] = ()
    zeroed: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    heuristics: tuple[Mapping[str, Callable], ...] = ()
    fakes: dict[Mapping, dict] = field(default_factory=dict, repr=False)  # by extents


@dataclass(frozen=True)
class Parameters:
    """The parameters of a kernel.

    Attributes:
        runtime: Names of those that are passed at launch, in order.
        constexprs: Names of those that are fixed when compiling.
        defaults: Values of those that have one.
        leading: Whether the runtime parameters come first, so that positions name them.
    """

    runtime: tuple[str, ...]
    constexprs: tuple[str, ...]
    defaults: Mapping[str, Any]
    leading: bool


def parameters_of(fn: Any) -> Parameters:
    """Returns the parameters of a jitted function, be it compiled or interpreted."""
    found = inspect.signature(plain(fn)).parameters.values()
    if starred := [p for p in found if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]:
        raise UsageError(
            f"a captured kernel must name each of its parameters, got {starred[0]}; write them out"
        )

    def fixed(p: inspect.Parameter) -> bool:
        kind = p.annotation
        return "constexpr" in (kind if isinstance(kind, str) else getattr(kind, "__name__", ""))

    runtime = [p for p in found if not fixed(p)]
    return Parameters(
        tuple(p.name for p in runtime),
        tuple(p.name for p in found if fixed(p)),
        {p.name: p.default for p in found if p.default is not p.empty},
        list(found)[: len(runtime)] == runtime and all(p.kind < p.KEYWORD_ONLY for p in runtime),
    )


def seen(it: Captured, inputs: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """Returns what the user's functions see: constants, extents, and what inputs() made."""
    kept = {k: v for k, v in inputs.items() if k.isidentifier()}
    return {**it.constants, **workload.extents, **kept}


def first_of(name: str) -> str:
    """Returns the key under which a copy of a tensor's first content stands beside it."""
    return f"{name} at first"  # no argument can have this name


def restore(inputs: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Copies their first content back into tensors."""
    for name in names:
        inputs[name].copy_(inputs[first_of(name)])

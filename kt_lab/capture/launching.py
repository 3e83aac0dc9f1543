"""The launch of one config of a captured kernel."""

from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral
from typing import Any

from kt_lab.capture.parts import OPTIONS, Captured, parameters_of, restore, seen
from kt_lab.errors import UsageError
from kt_lab.kernels.device import Launch
from kt_lab.workload import Workload


def plan(
    it: Captured, inputs: Mapping[str, Any], workload: Workload, config: Mapping, *, sms: int
) -> Launch:
    """Returns the launch of one config on a GPU with `sms` multiprocessors."""
    parameters = parameters_of(it.fn)
    meta = {"sms": sms, **parameters.defaults, **seen(it, inputs, workload), **config}
    for rules in it.heuristics:
        for name, rule in rules.items():
            if name in config:
                raise UsageError(
                    f"a parameter of the space must be free to choose, got {name}, which is set "
                    "by a heuristic; leave it out of the space, or the rule out"
                )
            meta[name] = _asked(f"the heuristic of {name!r}", rule, meta)
    for name in (*parameters.runtime, *parameters.constexprs):
        if name not in meta:
            kind = "constexpr" if name in parameters.constexprs else "argument"
            places = "in the space, in extents or in constexprs=" if kind == "constexpr" else ""
            raise UsageError(
                f"every {kind} of {it.fn.__name__} must have a value, got none for {name!r}; "
                f"give it {places or 'in what inputs() returns, or in extents'}"
            )
    grid = _asked("grid()", it.grid, meta)
    grid = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(grid) <= 3 or not all(isinstance(n, Integral) and n >= 1 for n in grid):
        raise UsageError(f"grid() must return one to three integers >= 1, got {grid}")
    fixed = {n: meta[n] for n in (*parameters.constexprs, *OPTIONS) if n in meta}
    fn = it.fn if parameters.leading else _Named(it.fn, parameters.runtime)
    prepare = partial(restore, inputs, it.restored) if it.restored else None
    args = tuple(meta[name] for name in parameters.runtime)
    return Launch(fn, tuple(map(int, grid)), args, fixed, prepare)


def _asked(what: str, rule: Callable[[Mapping], Any], meta: Mapping[str, Any]) -> Any:
    try:
        return rule(meta)
    except Exception as error:  # tensors are dtypes while compiling: it may want more of them
        raise UsageError(
            f"{what} must be computable from numbers (tensors appear as dtypes while compiling), "
            f"got {type(error).__name__}: {error}; known are {', '.join(map(str, meta))}"
        ) from error


class _Named:
    """A jitted function whose runtime arguments do not come first, and go by name."""

    def __init__(self, fn: Any, names: tuple[str, ...]):
        self._fn, self._names = fn, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fn, name)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def launch(*args: Any, **fixed: Any) -> Any:
            return self._fn[grid](**dict(zip(self._names, args, strict=True)), **fixed)

        return launch

    def warmup(self, *args: Any, grid: tuple[int, ...], **fixed: Any) -> Any:
        from triton.runtime.jit import MockTensor

        named = zip(self._names, map(MockTensor.wrap_dtype, args), strict=True)
        return self._fn.warmup(grid=grid, **dict(named), **fixed)

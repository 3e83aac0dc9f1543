"""Device code of the kernels; only runners and inspection import it.

A device module defines, for a workload:

- `make_inputs(workload, *, device, seed)`: tensors by name, output and workspace included;
- `fake_inputs(workload)`: the same names with dtypes, enough to compile without a GPU;
- `reference(inputs, workload)` and `output(inputs)`: what is compared after a launch;
- `plan(inputs, workload, config, *, sms)`: the Launch of one config;
- `baseline(inputs, workload)`: the vendor's path beside it, and its name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """A launch that is ready to go: `fn[grid](*args, **constexprs)`.

    Attributes:
        fn: The `triton.jit` function.
        grid: Programs along one to three axes.
        args: Positional arguments: tensors (or dtypes when only compiling) and integers.
        constexprs: Compile-time arguments, `num_warps` and `num_stages` included.
        prepare: Called before every launch and never timed, where a kernel needs its tensors as
            they were at first; None: nothing to do.
    """

    fn: Any
    grid: tuple[int, ...]
    args: tuple
    constexprs: Mapping[str, Any]
    prepare: Callable[[], Any] | None = None

    def __call__(self) -> Any:
        """Enqueues one launch on the current stream; returns the compiled kernel."""
        return self.fn[self.grid](*self.args, **self.constexprs)

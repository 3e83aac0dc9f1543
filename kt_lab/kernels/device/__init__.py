"""Device code of the kernels; only runners and inspection import it.

A device module defines, for a workload:

- `make_inputs(workload, *, device, seed)`: tensors by name, output and workspace included;
- `fake_inputs(workload)`: the same names with dtypes, enough to compile without a GPU;
- `reference(inputs, workload)` and `output(inputs)`: what is compared after a launch;
- `plan(inputs, workload, config, *, sms)`: the Launch of one config;
- `baseline(inputs, workload)`: the vendor's path beside it, and its name.
"""

from collections.abc import Mapping
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
    """

    fn: Any
    grid: tuple[int, ...]
    args: tuple
    constexprs: Mapping[str, Any]

"""Tuning and recording Triton kernels of the user's own, without changing them.

`capture` makes a kernel of kt_lab's from a `@triton.jit` function, also from one that a notebook
cell defines:

    import torch, triton
    import triton.language as tl

    @triton.jit
    def sigmoid(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.sigmoid(tl.load(x + at, mask=at < n)), mask=at < n)

It takes, beside the function, what to call it with and what must come out:

    from kt_lab import ParameterSpace, PowerOfTwo
    from kt_lab.capture import capture
    def inputs(device, n):
        x = torch.randn(n, device=device)
        return {"x": x, "out": torch.empty_like(x), "n": n}
    def grid(meta):
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)
    def reference(args):
        return torch.sigmoid(args["x"])
    space = ParameterSpace([PowerOfTwo("BLOCK", 64, 4096), PowerOfTwo("num_warps", 1, 16)],
                           default={"BLOCK": 1024, "num_warps": 4})
    kernel = capture(sigmoid, space=space, inputs=inputs, grid=grid, reference=reference,
                     output="out", extents={"n": 2**24})

`GpuRunner(kernel.workloads[0], kernel=kernel)` then measures it like any other kernel. Without a
GPU, but with torch and Triton, configs can be checked and compiled:

    small, full = small_workload(kernel), kernel.workloads[0]  # of kt_lab.inspect.interpreted
    some = kernel.space(small).sample(8, rng=np.random.default_rng(0))
    check_configs(subject(small, kernel), some)  # in the interpreter, beside the reference
    inspect_space(subject(full, kernel), kernel.space(full), target="sm_90").summary()

On a GPU `kt_lab.record.record(kernel.workloads, kernel=kernel, directory="recorded")` records all
of its space, to be replayed anywhere. `kt-lab tune`, `dispatch`, `recheck`,
`record` and `inspect` take a kernel that a file captures: `--from kernels.py`.

What is captured is source: the functions, those that they call, and the numbers, texts and dtypes
that they name go to a module that worker processes import, in $KT_LAB_CACHE/captured or
~/.cache/kt_lab/captured; what comes from installed packages is imported there too. What has no
source or cannot be made again elsewhere (a lambda, a global tensor, a file) is refused by name.

- `inputs` is called with the device "meta" too, or else "cpu", where only dtypes matter. It may
  use torch's global generators: they are seeded for it, and afterwards as they were.
- Values of the function's parameters come from the config, else from inputs(), the extents,
  `constexprs`, and the parameter's default, in this order. `grid` sees all of them and `sms`, the
  number of multiprocessors; `reference` sees what does not depend on the config.
- The configs of an `@triton.autotune` are left aside, since the space replaces them; hooks are
  refused. `@triton.heuristics` is kept: its rules say what launches look like, and a space that
  had to repeat them would often be wrong; what a rule sets is no parameter of the space. While
  compiling they see tensors as dtypes, so that `is not None` works and asking for a stride does
  not.
- A kernel that reads what it writes (in place, or by atomic additions) must find its tensors as
  inputs() made them, at every launch. Outputs whose content `reference` reads, and what an
  `@triton.autotune` restores or resets, are restored by themselves; `restore=` names others, and
  `restore=()` means none at all. The copy is made before the flush of the L2 and is not timed.

`record_autotune` listens to `@triton.autotune` and turns what it measured into landscapes.
"""

from kt_lab.capture.autotune import record_autotune
from kt_lab.capture.kernel import capture

__all__ = ["capture", "record_autotune"]

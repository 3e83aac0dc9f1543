"""A device module made to be inspected: its parameters spill, fail, overflow or do nothing."""

import torch
import triton
import triton.language as tl

from kt_lab.kernels.device import Launch


@triton.jit
def total(
    x,
    out,
    N,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PTX: tl.constexpr,
    UNUSED: tl.constexpr,  # noqa: ARG001
):
    at = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, N, BLOCK, num_stages=STAGES):
        sums += tl.load(x + start + at)
    if PTX != "":
        sums = tl.inline_asm_elementwise(
            "add.f32 $0, $1, 0f3F800000;", PTX, [sums], tl.float32, is_pure=True, pack=1
        )
    tl.store(out + tl.program_id(0) * BLOCK + at, sums)


def fake_inputs(workload):  # noqa: ARG001
    return {"x": torch.float32, "out": torch.float32}


def plan(inputs, workload, config, *, sms):  # noqa: ARG001
    if config["PROGRAMS"] < 1:
        raise ValueError("nothing to launch")
    options = {"maxnreg": config["MAXNREG"]} if config["MAXNREG"] else {}
    constexprs = {n: config[n] for n in ("BLOCK", "STAGES", "PTX", "UNUSED", "num_warps")}
    args = (inputs["x"], inputs["out"], workload.extents["N"])
    return Launch(total, (config["PROGRAMS"],), args, constexprs | options)

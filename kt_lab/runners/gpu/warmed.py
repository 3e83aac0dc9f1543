"""Imported by the zygote: compiles one small kernel, so that no worker's first one is slow.

A process' first compilation imports half of Triton, reads and hashes the sources of its standard
library and loads the code generator: ten times the cost of the second. Workers forked from a
process that has done so inherit all of it. Neither a GPU nor its driver is touched.
"""

import os
import tempfile
from unittest import mock

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def _typical(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in tl.range(0, n, BLOCK, num_stages=2):
        tile = tl.load(x + (start + at)[:, None] * n + at[None, :], mask=at[None, :] < n, other=0)
        total += tl.dot(tile, tile)
    total = tl.exp2(total - tl.max(total, 1)[:, None]) / tl.sum(total, 1)[:, None]
    tl.store(out + at[:, None] * BLOCK + at[None, :], total.to(tl.bfloat16))


def _compile() -> None:
    source = ASTSource(
        _typical, {"x": "*bf16", "out": "*bf16", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 32}
    )
    with tempfile.TemporaryDirectory() as cache:
        fresh = {"TRITON_CACHE_DIR": cache, "TRITON_ALWAYS_COMPILE": "1"}
        with mock.patch.dict(os.environ, fresh):
            triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


_compile()

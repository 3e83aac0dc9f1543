"""Batched matrix product in bfloat16: experts, attention over frames, one step of decoding."""

from kt_lab.kernels.gemm import bytes_moved, flops, space
from kt_lab.kernels.matmul import KERNEL as MATMUL
from kt_lab.workload import Kernel, Workload


def _workload(b: int, m: int, k: int, n: int, source: str) -> Workload:
    extents = {"B": b, "M": m, "K": k, "N": n}
    return Workload("bmm", f"{b}x{m}x{k}x{n}", extents, "bfloat16", source)


KERNEL = Kernel(
    name="bmm",
    description="A[B, M, K] @ B[B, K, N], bfloat16 in and out, float32 accumulation",
    workloads=(
        _workload(
            64, 512, 2048, 1024, "OLMoE-1B-7B gate or up projection: 64 experts, 512 tokens each"
        ),
        _workload(
            20, 1500, 1500, 64, "Whisper large: probabilities times values, 20 heads, one window"
        ),
        _workload(
            32, 4, 4096, 128, "Llama-3-8B decoding: 4 sequences x 8 groups of 4 query heads"
        ),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    rtol=MATMUL.rtol,  # the same arithmetic over no more terms
    atol=MATMUL.atol,
)

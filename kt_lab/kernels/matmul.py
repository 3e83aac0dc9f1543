"""Matrix product in bfloat16: tile, schedule, how operands are read, how few rows are split."""

from kt_lab.kernels.gemm import bytes_moved, flops, space
from kt_lab.workload import Kernel, Workload


def _workload(m: int, k: int, n: int, source: str) -> Workload:
    return Workload("matmul", f"{m}x{k}x{n}", {"M": m, "K": k, "N": n}, "bfloat16", source)


KERNEL = Kernel(
    name="matmul",
    description="A[M, K] @ B[K, N], bfloat16 in and out, float32 accumulation",
    workloads=(
        _workload(4096, 4096, 4096, "square: TritonBench gemm, and every vendor's datasheet"),
        _workload(8192, 8192, 8192, "square: TritonBench gemm; more tiles than L2 holds"),
        _workload(16, 8192, 28672, "Llama-3-70B gate or up projection, 16 tokens in flight"),
        _workload(2048, 768, 30522, "BERT-base vocabulary (rows of 4-byte words), 4 x 512 tokens"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Products are exact in float32 and are summed in it, in an order that the config chooses;
    # the output is rounded once to bfloat16 (2^-9 of its value). Sums of thousands of terms may
    # cancel to almost nothing and keep the long sum's error, about 0.003 at K = 8192 where
    # tensor cores truncate. One lost block of 32 terms changes an output by about 6.
    rtol=1e-2,
    atol=5e-2,
)

"""FP8 matrix product with a scale per block of 128: tiles, schedule, when scales are read."""

from kt_lab.kernels.fp8_gemm import (
    cdiv,
    constants,
    constraints,
    default,
    few_rows,
    flops,
    has_few_rows,
    many_rows,
)
from kt_lab.space import Choice, Constraint, ParameterSpace
from kt_lab.workload import Kernel, Workload


def space(workload: Workload) -> ParameterSpace:
    """Returns the search space of A[M, K] @ B[N, K]^T with FP8 operands scaled in blocks.

    A has a scale per 1 x 128 elements, B one per 128 x 128. Every BLOCK_K of K (at most 128, so
    that a step has one scale) is summed by the tensor cores, scaled, and added in float32.
    SCALES reads the scales of a step in it, or one step ahead. A tile of 256 columns is computed
    as two of 128 that share A. The other parameters are those of `fp8_gemm`.
    """
    few = has_few_rows(workload)
    axes = few_rows(workload, widest=128, widest_k=128) if few else many_rows(widest_k=128)
    axes.insert(-2, Choice("SCALES", ("now", "ahead")))
    accumulators = Constraint(
        "accumulators_fit",
        f"BLOCK_M * (BLOCK_N + min(BLOCK_N, 128)) <= {4096 if few else 6144} * num_warps",
        "a thread must hold its sums and, of one block of 128, the unscaled product",
    )
    return ParameterSpace(
        axes,
        constraints=(*constraints(workload), accumulators),
        default=default(workload) | {"SCALES": "now"},
        constants=constants(workload),
    )


def bytes_moved(workload: Workload) -> int:
    """Returns bytes: A and B of a byte an element, float32 scales, bfloat16 output, each once."""
    m, k, n = (workload.extents[name] for name in "MKN")
    return m * k + k * n + 4 * cdiv(k, 128) * (m + cdiv(n, 128)) + 2 * m * n


def _workload(m: int, k: int, n: int, source: str) -> Workload:
    extents = {"M": m, "K": k, "N": n}
    return Workload("fp8_blockwise_gemm", f"{m}x{k}x{n}", extents, "float8_e4m3fn", source)


KERNEL = Kernel(
    name="fp8_blockwise_gemm",
    description="A[M, K] @ B[N, K]^T in FP8 (e4m3), scales per 1x128 and 128x128, bfloat16 output",
    workloads=(
        _workload(4096, 7168, 4096, "DeepSeek-V3 expert gate and up projections; DeepGEMM README"),
        _workload(
            64, 2048, 7168, "DeepSeek-V3 expert down projection, 64 tokens; DeepGEMM README"
        ),
        _workload(4096, 7168, 2112, "DeepSeek-V3 query and KV compression; DeepGEMM README"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Outputs have a standard deviation of about 1.4. Only 128 terms at a time are summed in the
    # tensor cores' 14 bits: simulated, the worst of thousands of sums over K = 7168 is off by
    # 0.001. bfloat16 rounds 0.4 % at most. A scale of the wrong block is wrong by up to 4 times.
    rtol=1e-2,
    atol=1e-2,
)

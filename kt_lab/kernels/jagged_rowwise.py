"""FP8 with a scale per row and group of columns: gradients of tokens, transposed, for experts."""

from kt_lab.kernels.jagged_groups import bytes_moved, flops, jagged, space
from kt_lab.kernels.moe_groups import EQUAL, HEAVY, ONE_HOT, RANDOM
from kt_lab.workload import Kernel

_PR = "torchao pull request 3952: gradients of Llama 4's hidden features, 1.017 x 16,384 tokens"

KERNEL = Kernel(
    name="jagged_rowwise",
    description="scale per feature and group of x[TOKENS, WIDTH]; out[WIDTH, TOKENS] in e4m3",
    workloads=(
        jagged("jagged_rowwise", 16640, 8192, 1, EQUAL, _PR),
        jagged("jagged_rowwise", 16640, 8192, 16, RANDOM, _PR),
        jagged("jagged_rowwise", 16640, 8192, 64, RANDOM, _PR),
        jagged("jagged_rowwise", 16640, 8192, 64, HEAVY, f"{_PR}; skewed experts"),
        jagged("jagged_rowwise", 32768, 2048, 32, EQUAL, "DeepSeek-V3, torchao request 4113"),
        jagged("jagged_rowwise", 16640, 1408, 16, ONE_HOT, "DeepSeek-MoE-16B width, one expert"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Maxima are exact, and the rest is one formula: every config must give the same bits.
    rtol=0.0,
    atol=0.0,
)

"""FP8 with a scale per column and group of rows: tokens by experts, written column by column."""

from kt_lab.kernels.jagged_groups import TOKENS_FIRST, bytes_moved, flops, jagged, space
from kt_lab.kernels.moe_groups import EQUAL, HEAVY, RANDOM
from kt_lab.workload import Kernel

_PR = "torchao pull request 3952: Llama 4's features, 1.017 x 16,384 tokens"

KERNEL = Kernel(
    name="jagged_colwise",
    description="scale per column and group of rows of x[TOKENS, WIDTH]; e4m3, column-major",
    workloads=(
        jagged("jagged_colwise", 16640, 5120, 1, EQUAL, _PR),
        jagged("jagged_colwise", 16640, 5120, 16, RANDOM, _PR),
        jagged("jagged_colwise", 16640, 5120, 64, RANDOM, _PR),
        jagged("jagged_colwise", 16640, 5120, 64, RANDOM, _PR, layout=TOKENS_FIRST),
        jagged("jagged_colwise", 32768, 7168, 32, EQUAL, "DeepSeek-V3, torchao request 4113"),
        jagged("jagged_colwise", 16640, 1408, 64, HEAVY, "DeepSeek-MoE-16B width, skewed experts"),
    ),
    space=space,
    bytes_moved=bytes_moved,
    flops=flops,
    # Maxima are exact, and the rest is one formula: every config must give the same bits.
    rtol=0.0,
    atol=0.0,
)

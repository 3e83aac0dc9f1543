"""Every config on a GPU, on shapes that divide by nothing; recorded shapes are checked there."""

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.kernels.attention import head_width
from kt_lab.workload import Workload

RAGGED = [
    ("attention", {"B": 7, "H": 7, "HK": 3, "S": 333, "D": 72, "CAUSAL": 2}),  # past S and D
    ("attention", {"B": 9, "H": 6, "HK": 4, "S": 333, "D": 40, "CAUSAL": 1}),
    ("attention", {"B": 2, "H": 3, "HK": 1, "S": 300, "D": 264, "CAUSAL": 2}),  # heads in parts
    ("attention", {"B": 2, "H": 3, "HK": 2, "S": 300, "D": 65, "CAUSAL": 2}),  # odd rows
    ("softmax", {"M": 333, "N": 777}),  # one pass and looped, masked rows and columns
    ("softmax", {"M": 37, "N": 5003}),  # odd row length: no vector loads
    ("int4_gemm", {"B": 1, "M": 1, "K": 1234, "N": 1004}),
    ("int4_gemm", {"B": 1, "M": 33, "K": 1232, "N": 1008}),
    ("int4_gemm", {"B": 1, "M": 300, "K": 1232, "N": 1008}),
    ("int4_gemm", {"B": 1, "M": 33, "K": 1234, "N": 1004}),  # K // 2 odd: no vector loads
    ("int4_gemm", {"B": 1, "M": 300, "K": 530, "N": 1004}),
    ("bmm", {"B": 3, "M": 700, "K": 200, "N": 1000}),  # tiles that reach past a product's end
    ("bmm", {"B": 40, "M": 300, "K": 300, "N": 60}),
    ("bmm", {"B": 5, "M": 3, "K": 520, "N": 72}),
    ("matmul", {"M": 1850, "K": 200, "N": 1864}),  # persistent, descriptors with ragged ends
    ("matmul", {"M": 1850, "K": 203, "N": 1867}),  # odd rows: no descriptors, no vector loads
    ("matmul", {"M": 13, "K": 1000, "N": 2008}),
    ("fp8_blockwise_gemm", {"M": 1850, "K": 592, "N": 2504}),  # persistent, ragged ends
    ("fp8_blockwise_gemm", {"M": 33, "K": 1040, "N": 1000}),
    ("fp8_gemm", {"M": 1850, "K": 592, "N": 2504}),  # persistent, descriptors with ragged ends
    ("fp8_gemm", {"M": 300, "K": 515, "N": 1003}),  # odd rows: no descriptors, no vector loads
    ("fp8_gemm", {"M": 33, "K": 1040, "N": 1000}),
    ("layer_norm", {"M": 333, "N": 777}),
    ("layer_norm", {"M": 37, "N": 5003}),
    ("rms_norm", {"M": 1333, "N": 125}),  # short rows: many to a tile
    ("rms_norm", {"M": 333, "N": 5003}),
    ("rms_norm_backward", {"M": 333, "N": 777}),  # more row blocks than programs
    ("rms_norm_backward", {"M": 1037, "N": 5003}),
    ("group_norm", {"B": 2, "G": 3, "D": 5, "H": 33, "W": 41}),
    ("group_norm", {"B": 2, "G": 2, "D": 3, "H": 130, "W": 131}),  # programs wait for each other
    ("grouped_gemm", {"T": 3003, "K": 264, "N": 2056, "E": 5, "SKEW": 6}),  # all schedules
    ("grouped_gemm", {"T": 700, "K": 1160, "N": 1032, "E": 40, "SKEW": 5}),  # empty experts
    ("grouped_gemm", {"T": 700, "K": 1164, "N": 1027, "E": 40, "SKEW": 5}),  # no descriptors
    ("cross_entropy", {"M": 1337, "V": 5004}),  # tall tiles, waves, 8-byte vectors
    ("cross_entropy", {"M": 1000, "V": 9003}),  # odd rows read plain and aligned, shared
    ("cross_entropy", {"M": 1336, "V": 5003}),  # odd rows with two-row tiles and waves
    ("swiglu", {"M": 333, "N": 5003}),  # odd row length: no vector loads
    ("swiglu", {"M": 1337, "N": 4104}),
    ("rope", {"B": 3, "S": 337, "H": 9, "HK": 2, "D": 80}),
    ("row_sum", {"M": 33, "N": 100_008}),  # shares of unequal length
    ("row_sum", {"M": 5, "N": 70_001}),
    ("gather_gemv", {"E": 5, "T": 3, "N": 333, "K": 2008}),
    ("gather_gemv", {"E": 2, "T": 3, "N": 1003, "K": 9001}),
    ("embedding_backward", {"V": 997, "T": 1003, "D": 328}),
    ("embedding_backward", {"V": 50, "T": 777, "D": 1501}),  # many equal tokens, odd rows
    ("depthwise_conv", {"B": 3, "H": 29, "W": 27, "C": 40, "R": 3}),
    ("depthwise_conv", {"B": 5, "H": 31, "W": 37, "C": 104, "R": 7}),
    ("moe_weights_atomic", {"E": 3, "N": 1003, "K": 520}),
    ("moe_weights_atomic", {"E": 2, "N": 520, "K": 1003, "ROUND": 1}),  # odd rows
    ("moe_weights_cast", {"E": 3, "N": 1003, "K": 520}),
    ("moe_weights_cast", {"E": 2, "N": 520, "K": 1003, "ROUND": 1}),
    ("moe_weights_reduction", {"E": 3, "N": 1003, "K": 520}),
    ("moe_weights_reduction", {"E": 2, "N": 520, "K": 1003, "ROUND": 1}),
    ("moe_weights_colwise", {"E": 3, "N": 203, "K": 1003, "ROUND": 1}),
    ("moe_weights_colwise", {"E": 2, "N": 203, "K": 1032}),
    # Groups of no multiples, some empty; then of multiples of 16, in tiles that they do not fill.
    ("jagged_rowwise", {"TOKENS": 1003, "WIDTH": 88, "GROUPS": 9, "SKEW": 6, "LAYOUT": 1}),
    (
        "jagged_rowwise",
        {"TOKENS": 1040, "WIDTH": 1408, "GROUPS": 4, "SKEW": 3, "LAYOUT": 1, "ROUND": 1},
    ),
    ("jagged_colwise", {"TOKENS": 1008, "WIDTH": 328, "GROUPS": 5, "SKEW": 5, "LAYOUT": 2}),
    ("jagged_colwise", {"TOKENS": 1003, "WIDTH": 88, "GROUPS": 5, "SKEW": 4, "LAYOUT": 2}),
    ("blockwise_quantise", {"M": 333, "K": 1160, "ROUND": 1}),
    ("blockwise_quantise", {"M": 77, "K": 1003}),
    ("tokens_transpose", {"TOKENS": 1003, "WIDTH": 333}),
    ("tokens_transpose", {"TOKENS": 1048, "WIDTH": 1096}),
]


def is_miscompiled(kernel, extents, config):
    """Whether Triton 3.6 makes a wrong program of it: Q in registers, a square block, one loop."""
    return (
        kernel == "attention"
        and config.get("LOADS") == "descriptors"
        and config.get("MASK") != "split"
        and config["BLOCK_N"] == head_width(Workload(kernel, "test", extents, "bfloat16"))
    )


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "extents"), RAGGED)
def test_every_config_is_right_on_ragged_shapes(on_gpu, kernel, extents):
    workload = Workload(kernel, "test", extents, get_kernel(kernel).workloads[0].dtype)
    space = get_kernel(kernel).space(workload)
    cases = [
        {"kernel": kernel, "extents": extents, "config": dict(c), "sms": 132}
        for c in space.configs(space.enumerate())
    ]
    answers = on_gpu(cases)
    problems = [
        (case["config"], answer["problem"])
        for case, answer in zip(cases, answers, strict=True)
        if answer["problem"] and not is_miscompiled(kernel, extents, case["config"])
    ]
    refused = sum("refused" in answer for answer in answers)
    print(f"{kernel} {extents}: {len(cases)} configs, {refused} refused")
    assert not problems, problems[:5]
    assert refused < len(cases) / 2

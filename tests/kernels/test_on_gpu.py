"""Every config on a GPU, on shapes that divide by nothing; recorded shapes are checked there."""

import pytest

from kt_lab.kernels import get_kernel
from kt_lab.workload import Workload

RAGGED = [
    ("softmax", {"M": 333, "N": 777}),  # one pass and looped, masked rows and columns
    ("softmax", {"M": 37, "N": 5003}),  # odd row length: no vector loads
    ("int4_gemm", {"B": 1, "M": 1, "K": 1234, "N": 1004}),
    ("int4_gemm", {"B": 1, "M": 33, "K": 1232, "N": 1008}),
    ("int4_gemm", {"B": 1, "M": 300, "K": 1232, "N": 1008}),
    ("int4_gemm", {"B": 1, "M": 33, "K": 1234, "N": 1004}),  # K // 2 odd: no vector loads
    ("int4_gemm", {"B": 1, "M": 300, "K": 530, "N": 1004}),
]


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
        if answer["problem"]
    ]
    refused = sum("refused" in answer for answer in answers)
    print(f"{kernel} {extents}: {len(cases)} configs, {refused} refused")
    assert not problems, problems[:5]
    assert refused < len(cases) / 2

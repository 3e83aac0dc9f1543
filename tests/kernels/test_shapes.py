"""Workloads by key: registered ones, and any other shape of a registered kernel."""

import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.kernels import get_kernel, get_workload, kernels, subject, workload_of_shape


@pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.name)
def test_a_registered_workload_is_itself_and_its_name_is_its_shape(kernel):
    for workload in kernel.workloads:
        assert workload_of_shape(workload.key) is workload
        assert "x".join(map(str, workload.extents.values())) == workload.name
        assert workload.dtype == kernel.workloads[0].dtype


def test_any_shape_of_a_kernel_is_a_workload_with_a_space_of_its_own():
    workload = workload_of_shape("softmax/1000x777")
    assert dict(workload.extents) == {"M": 1000, "N": 777}
    assert workload.key == "softmax/1000x777"
    space = get_kernel("softmax").space(workload)
    assert space.contains(space.default)
    assert subject("softmax/1000x777").workload == workload
    with pytest.raises(UnknownName):  # what is recorded, replayed and listed has a name
        get_workload("softmax/1000x777")


@pytest.mark.parametrize("name", ["1000", "1x2x3"])
def test_another_number_of_extents_is_told_with_an_example(name):
    with pytest.raises(UsageError, match=r"extents M x N, got .*; one that has them: \d+x\d+"):
        workload_of_shape(f"softmax/{name}")


@pytest.mark.parametrize("key", ["softmax/4096by640", "softmax/0x1", "softmax/"])
def test_what_is_no_shape_is_told_with_one(key):
    with pytest.raises(UsageError, match=rf"softmax is M x N, .* such as softmax/.*'{key}'"):
        workload_of_shape(key)


def test_a_shape_of_no_kernel_is_an_unknown_name():
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        workload_of_shape("sofmax/1x1")

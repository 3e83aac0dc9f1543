"""The operators that ship: their floors, tolerances, inputs and workloads."""

import numpy as np
import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.programs.ir import Op
from kt_lab.programs.operators import (
    CASES,
    Operator,
    error,
    get_operator,
    get_workload,
    operators,
    workloads,
)
from kt_lab.workload import Workload

NAMES = {
    *("multiply", "add_relu", "bias_gelu", "row_sum", "softmax", "attention_scores"),
    *("layer_norm", "rms_norm", "batch_norm", "batch_norm_training"),
    *("matmul", "linear_relu", "conv2d", "depthwise_conv2d"),
}
ALL = pytest.mark.parametrize("operator", operators(), ids=lambda operator: operator.name)
MIB = 1 << 20


def test_all_operators_are_registered():
    assert {operator.name for operator in operators()} == NAMES
    keys = [workload.key for workload in workloads()]
    assert len(set(keys)) == 2 * len(NAMES)
    assert get_workload("softmax/512x1024") in get_operator("softmax").workloads
    with pytest.raises(UnknownName, match="did you mean"):
        get_operator("softmx")
    with pytest.raises(UnknownName, match="workload of an operator"):
        get_workload("softmax/1x1")


@ALL
def test_one_workload_fits_a_cache_and_one_needs_memory(operator):
    small, large = (operator.bytes_moved(w.extents) for w in operator.workloads)
    assert small < 4.1 * MIB
    assert large > 24 * MIB
    assert all(w.kernel == operator.name and w.source for w in operator.workloads)
    assert all(set(w.extents) == set(operator.tiny) for w in operator.workloads)


@ALL
def test_a_start_program_is_the_simplest(operator):
    """One operation a nest, no marks, everything on the heap, each output written once."""
    program = operator.program(operator.tiny)
    written = []
    for node in program.body:
        while not isinstance(node, Op):
            assert node.mark == ""
            assert len(node.body) == 1
            node = node.body[0]
        written.append((node.target.buffer, node.kind))
    for buffer in program.buffers:
        assert buffer.place == "heap"
        assert not any(dim.reused for dim in buffer.dims)
        if buffer.kind == "out":
            assert [kind for name, kind in written if name == buffer.name] == ["="]


def test_floors_by_hand():
    matmul = get_operator("matmul")
    assert matmul.flops({"m": 4, "n": 6, "k": 8}) == 2 * 4 * 6 * 8
    assert matmul.bytes_moved({"m": 4, "n": 6, "k": 8}) == 4 * (4 * 8 + 8 * 6 + 4 * 6)
    assert get_operator("softmax").flops({"rows": 4, "cols": 6}) == 4 * 6 * 5
    assert get_operator("multiply").bytes_moved({"elements": 10}) == 120


def test_tolerance_grows_with_the_root_of_the_sum():
    row_sum = get_operator("row_sum")
    assert row_sum.tolerance({"rows": 1, "cols": 4}) == 1e-5
    near, far = (row_sum.tolerance({"rows": 1, "cols": c}) for c in (1024, 4096))
    assert far == pytest.approx(2 * near)
    assert near == pytest.approx(8 * 2**-23 * 32)


@ALL
def test_inputs_are_reproducible_and_finite_in_every_case(operator):
    for case in CASES:
        inputs = operator.inputs(operator.tiny, case=case, seed=1)
        again = operator.inputs(operator.tiny, case=case, seed=1)
        assert all(np.array_equal(inputs[name], again[name]) for name in inputs)
        assert {array.dtype for array in inputs.values()} == {np.dtype(np.float32)}
        assert all(np.isfinite(z).all() for z in operator.expected(inputs).values())
    other = operator.inputs(operator.tiny, seed=2)
    assert any(not np.array_equal(inputs[name], other[name]) for name in inputs)


def test_wrong_requests_name_the_law():
    softmax = get_operator("softmax")
    with pytest.raises(UsageError, match="softmax has the extents rows, cols"):
        softmax.program({"rows": 4})
    with pytest.raises(UsageError, match="case is one of random"):
        softmax.inputs(softmax.tiny, case="odd")


def mine(reference, *, line="2 * x[{0}]", **more):
    """An operator of one's own: z from x, 8 elements each."""
    text = f"kernel mine\nin x f32 [$n]\nout z f32 [$n]\n---\n$n\n| z[{{0}}] = {line}\n"
    shape = Workload("mine", "8", {"n": 8}, "float32")
    return Operator("mine", "mine", text, reference, (shape, shape), {"n": 4}, **more)


def twice(arrays):
    return {"z": 2 * arrays["x"]}


@pytest.mark.parametrize(
    ("operator", "law"),
    [
        (mine(lambda a: {"z": np.exp(a["x"])}, line="exp(x[{0}])"), "finite .* in case 'large'"),
        (mine(lambda a: {"z": 1 / a["x"]}, line="1 / x[{0}]"), "finite .* in case 'zeros'; make"),
        (
            mine(twice, special={"x": lambda _, __: np.ones(1)}),
            r"input x has shape \(8,\), got \(1",
        ),
        (mine(twice, special={"y": lambda _, s: np.ones(s)}), "special of mine names inputs"),
        (mine(lambda a: {"y": 2 * a["x"]}), r"every output in its shape, \{'z': \(8,\)\}; got"),
        (mine(lambda a: {"z": 2 * a["x"][:, None]}), r"got \{'z': \(8, 1\)\}"),
        (mine(lambda a: 2 * a["x"]), "got ndarray"),
        (mine(twice, line="$m * x[{0}]"), r"template of mine may name \$n; got 'm'"),
    ],
)
def test_an_operator_of_ones_own_is_told_what_is_wrong_with_it(operator, law):
    """Not every program of it that it computes wrong results."""
    with pytest.raises(UsageError, match=law):
        [operator.checked({"n": 8}, case=case) for case in CASES]


@ALL
def test_operators_that_ship_can_be_held_to_their_references(operator):
    for case in CASES:
        inputs, expected = operator.checked(operator.tiny, case=case)
        assert {*inputs, *expected} <= {b.name for b in operator.program(operator.tiny).buffers}


def test_error_is_relative_to_the_largest_value():
    expected = {"z": np.array([4.0, 1e-9])}
    assert error({"z": np.array([4.0, 2e-9])}, expected) == pytest.approx(2.5e-10)
    assert error({"z": np.array([3.0, 0.0])}, expected) == 0.25
    assert error({"z": np.array([np.nan, 0.0])}, expected) == np.inf
    assert error({"z": np.zeros(2)}, {"z": np.zeros(2)}) == 0
    assert error({"z": np.array([0.0, 1e-30])}, {"z": np.zeros(2)}) == np.inf

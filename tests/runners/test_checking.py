"""Right or wrong: poison, guard bands and tolerance, on CPU tensors."""

from dataclasses import replace

import pytest

from kt_lab.workload import Subject, Workload

torch = pytest.importorskip("torch")

from kt_lab.runners.gpu.checking import Outputs, difference, poison  # noqa: E402

LAW = Subject(Workload("k", "1", {"N": 1}, "float32"), "k", rtol=1e-2, atol=1e-3)


def guarded(tensor, **others):
    inputs = {"x": torch.ones(4), "out": tensor, **others}
    return inputs, Outputs(inputs, tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (1,)])
def test_a_guarded_output_is_the_same_tensor_elsewhere(dtype, shape):
    tensor = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype)
    inputs, outputs = guarded(tensor)
    assert inputs["out"].dtype == dtype
    assert inputs["out"].shape == tensor.shape
    assert inputs["out"].data_ptr() % 16 == 0
    assert bool((inputs["out"].float() == tensor.float()).all())
    assert outputs.touched() == ""


@pytest.mark.parametrize(("offset", "side"), [(-1, "before"), (7, "after"), (250_000, "after")])
def test_a_stray_write_is_found_on_its_side(offset, side):
    inputs, outputs = guarded(torch.zeros(7))
    out = inputs["out"]
    stray = torch.as_strided(out, (1,), (1,), out.storage_offset() + offset)
    stray.fill_(1.0)
    assert side in outputs.touched()
    assert bool((out == 0).all())


def test_an_output_with_views_stays_where_it_is():
    tensor = torch.zeros(8)
    inputs, outputs = guarded(tensor, halves=tensor.view(2, 4))
    assert inputs["out"] is tensor
    assert outputs.touched() == ""


def test_several_outputs_are_all_guarded_and_compared():
    first, second = torch.zeros(4), torch.zeros(6, dtype=torch.int32)
    inputs = {"first": first, "second": second}
    outputs = Outputs(inputs, (first, second))
    assert len(outputs.guarded) == 4
    both = (inputs["first"], inputs["second"])
    assert difference(both, (first, second), law=LAW) == ""
    inputs["second"][3] = 1
    assert "off by" in difference(both, (first, second), law=LAW)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, torch.float8_e4m3fn, torch.bool]
)
def test_what_was_not_written_is_noticed(dtype):
    wanted = torch.arange(6).to(dtype)
    output = wanted.clone()
    poison(output)
    assert difference(output, wanted, law=LAW)
    output[:5] = wanted[:5]
    assert difference(output, wanted, law=LAW)
    output[5] = wanted[5]
    assert difference(output, wanted, law=LAW) == ""


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ([1.0, 2.0], [1.0, 2.0], ""),
        ([1.0101, 2.0], [1.0, 2.0], ""),  # within 1e-3 + 1 %
        ([1.02, 2.0], [1.0, 2.0], "off by"),
        ([float("nan"), 2.0], [1.0, 2.0], "NaN"),
        ([float("nan"), 2.0], [float("nan"), 2.0], ""),
        ([float("inf"), 2.0], [float("inf"), 2.0], ""),
        ([float("inf"), 2.0], [float("-inf"), 2.0], "off by"),
        ([3.0, float("inf")], [3.0, 1e30], "off by"),
    ],
)
def test_the_tolerance_and_what_is_not_a_number(ours, theirs, told):
    found = difference(torch.tensor(ours), torch.tensor(theirs), law=LAW)
    assert told in found
    assert bool(found) == bool(told)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_integers_must_be_equal_however_large(dtype):
    dtype = getattr(torch, dtype)
    wanted = torch.full((5,), torch.iinfo(dtype).max, dtype=dtype)
    ours = wanted.clone()
    assert difference(ours, wanted, law=LAW) == ""
    ours[2] -= 1  # within 1 %
    assert "off by" in difference(ours, wanted, law=LAW)
    assert difference(ours, wanted, law=replace(LAW, atol=1.0)) == "", "unless that is asked for"
    ours[2] -= 1
    assert "off by" in difference(ours, wanted, law=replace(LAW, atol=1.0))


def test_the_least_integer_is_not_near_zero():
    wanted = torch.full((3,), torch.iinfo(torch.int64).min)
    assert "off by" in difference(torch.zeros(3, dtype=torch.int64), wanted, law=LAW)


def test_integers_and_flags_may_be_compared_with_another_type():
    counts = torch.tensor([1, 0, 2**24 + 1], dtype=torch.int32)
    assert difference(counts, counts.double(), law=LAW) == ""
    assert difference(counts, counts.long(), law=LAW) == ""
    assert "off by" in difference(counts, counts.double() + 0.5, law=LAW)
    flags = counts[:2].bool()
    assert difference(flags, flags.clone(), law=LAW) == ""
    assert "off by" in difference(flags, ~flags, law=LAW)


def test_doubles_are_compared_as_doubles():
    law = replace(LAW, rtol=1e-12, atol=0.0)
    wanted = torch.tensor([1.0, 1e300], dtype=torch.float64)
    assert difference(wanted * (1 + 1e-13), wanted, law=law) == ""
    assert "off by" in difference(wanted * (1 + 1e-10), wanted, law=law)
    assert "off by" in difference(wanted.float().double(), wanted, law=law), "infinite by then"


def test_a_long_output_is_compared_to_its_last_slice(monkeypatch):
    monkeypatch.setattr("kt_lab.runners.gpu.checking._AT_ONCE", 10)
    wanted = torch.zeros(100, 7)
    ours = wanted.clone()
    ours[99, 6] = 1.0
    assert difference(ours, wanted, law=LAW)

import pickle
import re
from pathlib import Path

import pytest

import kt_lab.capture
from kt_lab.kernels import subject

KERNEL = '''
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice as device_math
from kt_lab.capture import capture
from kt_lab.space import Choice, Flag, Integer, ParameterSpace, PowerOfTwo

SCALE = tl.constexpr(2.0)
SHIFT: tl.constexpr = tl.constexpr(3)
ACCUMULATE = tl.float32
SEEDED = True


@triton.jit
def square(v):
    return v * v


@triton.jit
def helper(v, FLAG: tl.constexpr):
    v = v.to(ACCUMULATE)
    return square(v) * SCALE if FLAG else v + SHIFT


@triton.jit
def scaled(x, out, n, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    """Squares or shifts x."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, helper(v, FLAG), mask=at < n)


def blank(like):
    return torch.full_like(like, float("nan"))


def inputs(device, n):
    x = torch.randn(n, device=device).half()
    return {"x": x, "out": blank(x.float()), "n": n, "FLAG": True}


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def reference(args):
    return args["x"].float() ** 2 * 2


space = ParameterSpace(
    [PowerOfTwo("BLOCK", 16, 64, role="tile"), PowerOfTwo("num_warps", 1, 4, role="warps")],
    default={"BLOCK": 32, "num_warps": 4})
parts = dict(space=space, inputs=inputs, grid=grid, reference=reference, output="out")
'''


@pytest.fixture(scope="module")
def cell(notebook):
    """The notebook, in which the kernel's cell has been run."""
    notebook(KERNEL)
    return notebook


@pytest.fixture(scope="module")
def path(cell):
    return cell("kernel = capture(scaled, extents={'n': 100}, **parts); kernel.device")


def test_a_cells_kernel_runs_in_another_process_and_is_right(path, run):
    configs = [{"BLOCK": b, "num_warps": 4} for b in (16, 32, 64)]
    assert run(path, {"n": 100}, configs) == ["", "", ""]


def test_a_wrong_reference_would_be_noticed(cell, run):
    cell("def halved(args):\n    return reference(args) / 2")
    path = cell("capture(scaled, extents={'n': 100}, **parts | {'reference': halved}).device")
    assert "tolerance" in run(path, {"n": 100}, [{"BLOCK": 16, "num_warps": 4}])[0]


def test_it_compiles_for_a_gpu_that_is_not_there(path, compile_offline):
    small = compile_offline(path, {"n": 100}, {"BLOCK": 16, "num_warps": 1})
    large = compile_offline(path, {"n": 100}, {"BLOCK": 64, "num_warps": 2})
    assert (small["status"], large["status"]) == ("ok", "ok"), (small, large)
    assert small["code_hash"] != large["code_hash"]


def test_the_kernel_has_what_runners_and_studies_need(cell):
    cell("kernel = capture(scaled, extents=[{'n': 100}, {'n': 256}], **parts)\nimport pickle")
    kernel = pickle.loads(bytes.fromhex(cell("pickle.dumps(kernel).hex()")))
    first, second = kernel.workloads
    assert (first.key, second.key) == ("scaled/100", "scaled/256")
    assert (first.dtype, dict(second.extents)) == ("float16", {"n": 256})
    assert kernel.description == "Squares or shifts x."
    assert kernel.space(first).default["BLOCK"] == 32
    assert kernel.flops(first) == 0
    assert subject(second, kernel).device == kernel.device
    # float16 in, float32 out
    assert cell("[kernel.bytes_moved(w) for w in kernel.workloads]") == [6 * 100, 6 * 256]


def test_equal_source_is_one_file_and_changed_source_another(cell, path):
    again = cell("capture(scaled, extents={'n': 100}, **parts).device")
    assert again == path
    assert Path(path).parent.name == "captured"
    before = Path(path).read_text()
    cell("SEEDED = False")  # nothing that is captured names it
    assert cell("capture(scaled, extents={'n': 100}, **parts).device") == path
    changed = cell("SCALE = tl.constexpr(4.0)\ncapture(scaled, extents={'n': 1}, **parts).device")
    cell("SCALE = tl.constexpr(2.0)")
    assert changed != path
    assert "constexpr(4.0)" in Path(changed).read_text()
    assert Path(path).read_text() == before


def test_the_tolerances_are_a_part_of_what_a_kernel_is(cell):
    told = "kernel_source(capture(scaled, extents={'n': 100}, **parts"
    cell("from kt_lab.provenance import kernel_source")
    loose, again = cell(f"{told}))"), cell(f"{told}, rtol=0.01, atol=0.01))")
    strict, absolute = cell(f"{told}, rtol=1e-6))"), cell(f"{told}, atol=0))")
    assert loose == again
    assert len({loose, strict, absolute}) == 3


def test_a_damaged_file_is_written_anew(cell, path):
    before = Path(path).read_text()
    Path(path).write_text(before[:50])
    assert cell("capture(scaled, extents={'n': 100}, **parts).device") == path
    assert Path(path).read_text() == before
    assert not list(Path(path).parent.glob("*.partial"))


def test_inputs_are_seeded_and_leave_torchs_state_alone(cell, path):
    cell(
        "from kt_lab.kernels import device_module\n"
        "module = device_module(path)\n"
        "workload = kernel.workloads[0]\n"
        "def made(seed):\n"
        "    return module.make_inputs(workload, device='cpu', seed=seed)['x']\n"
        "state = torch.random.get_rng_state()\n"
        "one, two, other = made(1), made(1), made(2)\n",
        path=path,
    )
    assert cell("[torch.equal(one, two), torch.equal(one, other)]") == [True, False]
    assert cell("torch.equal(state, torch.random.get_rng_state())")


def test_the_example_in_the_documentation_works(notebook, run, compile_offline):
    blocks = re.findall(r"\n\n((?:    .*\n|\n(?=    ))+)", kt_lab.capture.__doc__)
    kernel, example, look = (re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks)
    assert "@triton.jit" in kernel
    assert len(example.splitlines()) <= 15
    notebook(kernel)
    notebook(example.replace("2**24", "2**12"))
    path = notebook("kernel.device")
    assert notebook("kernel.workloads[0].key") == "sigmoid/4096"
    configs = [{"BLOCK": b, "num_warps": 4} for b in (64, 1024, 4096)]
    assert run(path, {"n": 4096}, configs) == ["", "", ""]
    assert compile_offline(path, {"n": 2**24}, configs[1])["status"] == "ok"
    notebook(
        "import numpy as np\n"
        "from kt_lab.inspect import inspect_space\n"
        "from kt_lab.inspect.interpreted import check_configs, small_workload\n"
        "from kt_lab.kernels import subject\n"
    )
    assert notebook(f"{look}\n[small.key, len(some)]") == ["sigmoid/4096", 8]

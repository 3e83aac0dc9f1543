"""Kernels that write in place, that others decorate, and that cannot be captured."""

from pathlib import Path

import pytest

from kt_lab.errors import UsageError
from tests.capture.notebook import CellError
from tests.test_decisions import make

CELL = """
import sys
import torch
import triton
import triton.language as tl
from kt_lab.capture import capture
from kt_lab.kernels import device_module
from kt_lab.space import Choice, Integer, ParameterSpace, PowerOfTwo

BLOCKS = ParameterSpace([PowerOfTwo("BLOCK", 16, 64)], default={"BLOCK": 32})

@triton.jit
def doubled(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

def inputs(device, n=100):
    x = torch.randn(n, device=device)
    return {"x": x, "out": torch.empty_like(x), "n": n}

def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)

def reference(args):
    return 2 * args["x"]

usual = dict(space=BLOCKS, inputs=inputs, grid=grid, reference=reference, output="out")

def taken(fn, **changes):
    return capture(fn, **usual | changes).device
"""
BLOCKS = [{"BLOCK": b} for b in (16, 64)]


@pytest.fixture(scope="module")
def cell(notebook):
    notebook(CELL)
    return notebook


# -- kernels that read what they write ------------------------------------------------------------


def test_a_kernel_in_place_finds_its_input_again_at_every_launch(cell, run, compile_offline):
    cell(
        "@triton.jit\n"
        "def grow(x, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(x + at, 3 * tl.load(x + at, mask=at < n), mask=at < n)\n"
        "def grown(args):\n"
        "    return args['x'].mul_(3)\n"  # works in place itself
    )
    path = cell("taken(grow, output='x', reference=grown)")
    assert run(path, {}, BLOCKS) == ["", ""]
    assert compile_offline(path, {}, BLOCKS[0])["status"] == "ok"
    cell("kernel = capture(grow, **usual | dict(output='x', reference=grown))")
    assert cell("kernel.workloads[0].key") == "grow/100"
    # x and out are there before, though grow takes x only: it is read and written
    assert cell("kernel.bytes_moved(kernel.workloads[0])") == 2 * 4 * 100
    cell(
        "from kt_lab.kernels import subject\n"
        "from kt_lab.runners.gpu.planning import planner\n"
        "plan = planner(subject(kernel.workloads[0], kernel), BLOCKS, sms=4)\n"
        "plans = [plan({'BLOCK': b}) for b in (16, 16, 64)]\n"
    )
    assert cell("[p.grid for p in plans]") == ["7", "7", "2"]
    assert cell("len({p.specialisation for p in plans})") == 2
    careless = cell("taken(grow, output='x', reference=grown, restore=())")
    assert "NaN" in run(careless, {}, BLOCKS[:1])[0]


def test_asking_for_the_shape_of_an_output_is_not_reading_it(cell):
    cell(
        "def shaped(args):\n"
        "    out = torch.empty_like(args['out'], dtype=args['out'].dtype)\n"
        "    return torch.mul(args['x'], 2, out=args['out']) if args['out'].shape else out\n"
    )
    assert "restored=()" in Path(cell("taken(doubled, reference=shaped)")).read_text()


SUMS = """
@triton.jit
def summed(x, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at)))

tuned = triton.autotune(configs=[triton.Config({"BLOCK": 32})], key=[], reset_to_zero=["total"])

def sum_inputs(device):
    x = torch.arange(128, device=device, dtype=torch.float32)
    return {"x": x, "total": torch.full((1,), START, device=device)}

def sum_grid(meta):
    return (128 // meta["BLOCK"],)

def sum_reference(args):
    return args["x"].sum()[None] + ADDED

sums = dict(inputs=sum_inputs, grid=sum_grid, reference=sum_reference, output="total")
"""


def test_atomic_additions_start_from_what_inputs_made(cell, run):
    cell(SUMS, START=5.0, ADDED=5.0)
    assert run(cell("taken(summed, restore='total', **sums)"), {}, BLOCKS) == ["", ""]


def test_what_an_autotuner_resets_is_reset(cell, run):
    cell(SUMS, START=5.0, ADDED=0.0)
    assert run(cell("taken(tuned(summed), **sums)"), {}, BLOCKS) == ["", ""]


def test_restore_adds_to_what_an_autotuner_resets(cell, run):
    cell(SUMS, START=5.0, ADDED=0.0)
    path = cell("taken(tuned(summed), restore='x', **sums)")
    assert "restored=('x', 'total')" in Path(path).read_text()
    assert run(path, {}, BLOCKS) == ["", ""]
    assert "restored=()" in Path(cell("taken(tuned(summed), restore=(), **sums)")).read_text()


# -- forms of kernels -----------------------------------------------------------------------------


def test_heuristics_under_an_autotuner_are_kept_and_its_configs_left(cell, run, compile_offline):
    cell(
        "def even(args):\n"
        "    return args['n'] % args['BLOCK'] == 0\n"
        "@triton.autotune(configs=[triton.Config({'BLOCK': 1024})], key=['n'])\n"
        "@triton.heuristics({'EVEN': even, 'HAS_BIAS': lambda args: args['bias'] is not None})\n"
        "@triton.heuristics(values={'BOTH': lambda args: args['EVEN'] and args['HAS_BIAS']})\n"
        "@triton.jit\n"
        "def biased(x, bias, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr,\n"
        "           HAS_BIAS: tl.constexpr, BOTH: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    v = tl.load(x + at) if EVEN else tl.load(x + at, mask=at < n)\n"
        "    v = 2 * v + (tl.load(bias) if HAS_BIAS else 0.0) + (100 if BOTH else 0)\n"
        "    tl.store(out + at, v, mask=at < n)\n"
        "def with_bias(device, n):\n"
        "    return inputs(device, n) | {'bias': torch.ones(1, device=device)}\n"
        "def without(device, n):\n"
        "    return inputs(device, n) | {'bias': None}\n"
        "def expected(args):\n"
        "    both = args['bias'] is not None and args['n'] % 32 == 0\n"
        "    bias = 0 if args['bias'] is None else args['bias']\n"
        "    return 2 * args['x'] + bias + 100 * both\n"
    )
    cell("given = dict(reference=expected, extents={'n': 96})")
    for maker, extents in (
        ("with_bias", {"n": 96}),
        ("with_bias", {"n": 90}),
        ("without", {"n": 96}),
    ):
        path = cell(f"taken(biased, inputs={maker}, **given)")
        assert run(path, extents, [{"BLOCK": 16}, {"BLOCK": 32}]) == ["", ""], (maker, extents)
    assert "1024" not in Path(path).read_text()
    assert compile_offline(path, {"n": 96}, {"BLOCK": 16})["status"] == "ok"


def test_constexprs_may_stand_among_the_arguments(cell, run, compile_offline):
    cell(
        "@triton.jit(do_not_specialize=['n'])\n"
        "def mixed(BLOCK: tl.constexpr, x, out, SCALE: tl.constexpr, *, n):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, SCALE * tl.load(x + at, mask=at < n), mask=at < n)\n"
    )
    path = cell("taken(mixed, constexprs={'SCALE': 2, 'num_warps': 2})")
    compiled = compile_offline(path, {}, BLOCKS[0])
    if cell("triton.__version__") >= "3.9":
        assert run(path, {}, BLOCKS) == ["", ""]
        assert compiled["status"] == "ok"
    else:  # no keyword-only arguments in a kernel: Triton's own refusal is passed on
        assert compiled["status"] == "compile_error"
        assert "n is not defined" in compiled["error"]
    assert "@_kt_triton.jit(do_not_specialize=['n'])" in Path(path).read_text()


def test_values_come_from_the_config_then_inputs_extents_constexprs_and_defaults(cell):
    cell(
        "@triton.jit\n"
        "def many(x, out, n, BLOCK: tl.constexpr, A: tl.constexpr, B: tl.constexpr,\n"
        "         C: tl.constexpr = 7, D: tl.constexpr = 8):\n"
        "    pass\n"
        "def lots(device, n):\n"
        "    return inputs(device, n) | {'B': 2}\n"
        "def waves(meta):\n"
        "    return (meta['WAVES'] * meta['sms'], 1)\n"
        "space = ParameterSpace([PowerOfTwo('BLOCK', 16, 64), Integer('WAVES', 1, 4),\n"
        "    Integer('num_stages', 1, 3)], default={'BLOCK': 16, 'WAVES': 1, 'num_stages': 3})\n"
        "one = capture(many, **usual | dict(space=space, inputs=lots, grid=waves,\n"
        "    extents={'n': 50, 'A': 1, 'B': 9}, constexprs={'C': 3, 'maxnreg': 64}))\n"
        "module, workload = device_module(one.device), one.workloads[0]\n"
        "launch = module.plan(module.fake_inputs(workload), workload,\n"
        "                     {'BLOCK': 64, 'WAVES': 3, 'num_stages': 2}, sms=10)\n"
    )
    assert cell("[str(a) for a in launch.args]") == ["torch.float32", "torch.float32", "50"]
    assert cell("launch.grid") == [30, 1]
    values = {"BLOCK": 64, "A": 1, "B": 2, "C": 3, "D": 8}
    assert cell("launch.constexprs") == values | {"num_stages": 2, "maxnreg": 64}


def test_several_outputs_are_all_compared(cell, run):
    cell(
        "@triton.jit\n"
        "def both(x, out, sums, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    v = 2 * tl.load(x + at, mask=at < n, other=0)\n"
        "    tl.store(out + at, v, mask=at < n)\n"
        "    tl.store(sums + tl.program_id(0), tl.sum(v))\n"
        "def two(device):\n"
        "    return inputs(device, 32) | {'sums': torch.empty(2, device=device)}\n"
        "def by_name(args):\n"
        "    v = 2 * args['x']\n"
        "    return {'sums': v.view(2, 16).sum(1), 'out': v}\n"
        "def wrong(args):\n"
        "    found = by_name(args)\n"
        "    return found['out'], found['sums'] + 1\n"
    )
    sixteen = [{"BLOCK": 16}]
    outputs = "output=['out', 'sums']"
    assert run(cell(f"taken(both, inputs=two, reference=by_name, {outputs})"), {}, sixteen) == [""]
    path = cell(f"taken(both, inputs=two, reference=wrong, {outputs})")
    assert "off by" in run(path, {}, sixteen)[0]


def test_a_reference_that_writes_the_output_itself_is_still_compared(cell, run):
    cell(
        "def overwrites(args):\n"
        "    return torch.mul(args['x'], 5, out=args['out'])\n"
        "def misshapen(args):\n"
        "    return args['x'][:, None]\n"
    )
    path = cell("taken(doubled, reference=overwrites)")
    assert "off by" in run(path, {}, BLOCKS[:1])[0]
    with pytest.raises(CellError, match=r"shaped like it: \[\(100,\)\], got \[\(100, 1\)\]"):
        run(cell("taken(doubled, reference=misshapen)"), {}, BLOCKS[:1])


def test_a_reference_that_works_in_place_on_an_input_leaves_it_as_it_was(cell, run):
    path = cell(
        "def in_place(args):\n    return args['x'].mul_(2)\ntaken(doubled, reference=in_place)"
    )
    assert run(path, {}, BLOCKS) == ["", ""]


def test_functions_may_have_the_names_of_the_device_contract(cell, run):
    cell(
        "def output(args):\n"
        "    return 2 * args['x']\n"
        "def plan(args):\n"
        "    return output(args)\n"
        "def fake_inputs(device):\n"
        "    return inputs(device)\n"
    )
    path = cell("taken(doubled, reference=plan, inputs=fake_inputs)")
    assert run(path, {}, BLOCKS) == ["", ""]


def test_a_maker_that_cannot_do_meta_is_asked_for_the_cpu(cell, run):
    cell(
        "def generated(device, n):\n"
        "    g = torch.Generator(device=device).manual_seed(3)\n"
        "    x = torch.randn(n, generator=g, device=device)\n"
        "    return {'x': x, 'out': torch.empty_like(x), 'n': int(x.isfinite().sum().item())}\n"
    )
    path = cell("taken(doubled, inputs=generated, extents={'n': 100})")
    assert run(path, {"n": 100}, BLOCKS) == ["", ""]


# -- where names come from ------------------------------------------------------------------------


def test_closures_are_captured_like_globals(cell, run, compile_offline):
    cell(
        "from triton.language.extra import libdevice as device_math\n"
        "from math import ceil as up\n"
        "import os.path as places\n"
        "TWICE = (2, {'of': [None, 'x']}, float('inf'))\n"
        "def made(factor, where):\n"
        "    @triton.jit\n"
        "    def scale(v):\n"
        "        return v * factor\n"
        "    @triton.jit\n"
        "    def closed(x, out, n, BLOCK: tl.constexpr):\n"
        "        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "        v = tl.load(x + at, mask=at < n)\n"
        "        tl.store(out + at, scale(v), mask=at < n)\n"
        "    def launch(meta):\n"
        "        assert places.join('a', 'b') and TWICE[2] > 0\n"
        "        return [up(meta['n'] / meta['BLOCK']) * TWICE[0] // where]\n"
        "    return closed, launch\n"
        "closed, launch = made(tl.constexpr(2.0), 2)\n"
    )
    path = cell("taken(closed, grid=launch)")
    assert run(path, {}, BLOCKS) == ["", ""]
    text = Path(path).read_text()
    for line in ("factor = _kt_tl.constexpr(2.0)", "where = 2", "from math import ceil as up"):
        assert f"\n{line}\n" in text
    cell(
        "@triton.jit\n"
        "def exact(x, out, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    v = tl.load(x + at, mask=at < n)\n"
        "    tl.store(out + at, device_math.expm1(v), mask=at < n)\n"
    )
    assert compile_offline(cell("taken(exact)"), {}, BLOCKS[0])["status"] == "ok"


def test_a_module_of_the_users_is_imported_and_its_content_counts(cell, tmp_path):
    module = tmp_path / "mine_own.py"
    module.write_text("class Factor:\n    two = 2\n\ndef twice(x):\n    return x * Factor.two\n")
    cell(
        "sys.path.insert(0, folder)\n"
        "import mine_own\n"
        "from mine_own import Factor, twice\n"
        "def third(args):\n"
        "    return twice(args['x']) * Factor.two / mine_own.Factor.two\n",
        folder=str(tmp_path),
    )
    path = cell("taken(doubled, reference=third)")
    text = Path(path).read_text()
    assert "def twice(x):" in text
    assert "from mine_own import Factor" in text
    module.write_text(module.read_text() + "# changed\n")
    assert cell("taken(doubled, reference=third)") != path
    module.write_text("\n\n\ndef other(x):\n    return x\n")
    with pytest.raises(
        CellError, match="as its file stands, got mine_own, which was edited since"
    ):
        cell("taken(doubled, reference=third)")


def test_a_grid_may_read_parameters_in_what_it_calls(cell, run, tmp_path):
    (tmp_path / "mine_grids.py").write_text("def waves(meta):\n    return meta['WAVES']\n")
    cell(
        "sys.path.insert(0, folder)\n"
        "import mine_grids\n"
        "FACTORS = ('SPLIT', 'GROUP')\n"
        "def blocks(meta):\n"
        "    more = [meta[name] for name in FACTORS]\n"
        "    return triton.cdiv(meta['n'], meta['BLOCK']) * more[0] * more[1]\n"
        "def helped(meta):\n"
        "    return (blocks(meta),)\n"
        "def imported(meta):\n"
        "    return (blocks(meta), mine_grids.waves(meta))\n"
        "def wide(*names):\n"
        "    axes = [PowerOfTwo('BLOCK', 16, 64), *(PowerOfTwo(n, 1, 2) for n in names)]\n"
        "    return ParameterSpace(axes, default={'BLOCK': 16} | dict.fromkeys(names, 1))\n",
        folder=str(tmp_path),
    )
    path = cell("taken(doubled, grid=helped, space=wide('SPLIT', 'GROUP'))")
    assert run(path, {}, [{"BLOCK": 16, "SPLIT": 2, "GROUP": 1}]) == [""]
    assert cell("taken(doubled, grid=imported, space=wide('SPLIT', 'GROUP', 'WAVES'))")
    with pytest.raises(CellError, match=r"a parameter of the space .*got 'WAVES'"):
        cell("taken(doubled, grid=helped, space=wide('SPLIT', 'GROUP', 'WAVES'))")


def test_a_grid_may_hold_integers_of_numpy_and_a_reference_an_enumeration(cell, run):
    path = cell(
        "import enum\n"
        "import numpy as np\n"
        "class Factor(enum.Enum):\n"
        "    TWO = 2\n"
        "def counted(meta):\n"
        "    return (np.int64(np.ceil(meta['n'] / meta['BLOCK'])),)\n"
        "def by_enum(args):\n"
        "    return Factor.TWO.value * args['x']\n"
        "taken(doubled, grid=counted, reference=by_enum)\n"
    )
    assert run(path, {}, BLOCKS) == ["", ""]


def test_a_function_may_change_a_global(cell, run):
    cell(
        "CALLS = 1\n"
        "def counting(args):\n"
        "    global CALLS, LAST\n"
        "    CALLS += 1\n"
        "    LAST = 2 * args['x']\n"
        "    return LAST\n"
    )
    assert run(cell("taken(doubled, reference=counting)"), {}, BLOCKS) == ["", ""]
    cell("def lost(args):\n    global GONE\n    GONE += 1\n    return 2 * args['x']\n")
    with pytest.raises(CellError, match="must be defined, got 'GONE' in lost"):
        cell("taken(doubled, reference=lost)")


# -- what cannot be captured ----------------------------------------------------------------------

REFUSALS = {
    "a lambda": (
        "taken(doubled, grid=lambda meta: (1,))",
        r"grid must be a function made with def.* got a lambda; write `def grid",
    ),
    "a builtin": (
        "taken(doubled, reference=torch.sigmoid)",
        "reference must be a function made with def.* got the builtin sigmoid",
    ),
    "an instance": (
        "taken(doubled, reference=torch.nn.Sigmoid())",
        r"reference must be .* got a torch\.nn\.modules\.activation\.Sigmoid",
    ),
    "a tensor in a global": (
        "W = torch.ones(100)\ndef weighed(args):\n    return args['x'] * W\n"
        "taken(doubled, reference=weighed)",
        r"got 'W', a torch\.Tensor, in weighed; make it inside weighed, return it from inputs\(\)",
    ),
    "a tensor in a closure": (
        "def held(weights):\n    def weighed(args):\n        return args['x'] * weights\n"
        "    return weighed\ntaken(doubled, reference=held(torch.ones(100)))",
        r"got 'weights', a torch\.Tensor, in weighed",
    ),
    "an open file": (
        "log = open('/dev/null')\ndef logged(args):\n    print(log)\n    return args['x']\n"
        "taken(doubled, reference=logged)",
        r"got 'log', a _io\.TextIOWrapper, in logged",
    ),
    "a lambda in a global": (
        "twice = lambda x: 2 * x\ndef called(args):\n    return twice(args['x'])\n"
        "taken(doubled, reference=called)",
        "got 'twice', a lambda, in called",
    ),
    "a name that is not defined": (
        "def lost(args):\n    return args['x'] * nowhere\ntaken(doubled, reference=lost)",
        "must be defined, got 'nowhere' in lost, which is not",
    ),
    "two things of one name": (
        "def outer():\n    grid = 3\n    def clash(args):\n        return args['x'] * grid\n"
        "    return clash\ntaken(doubled, reference=outer())",
        "one thing in all that is captured, got two for 'grid', the second in clash; rename",
    ),
    "no kernel": ("taken(reference)", "fn must be a function under @triton.jit, got <function"),
    "hooks": (
        "def hook(args):\n    pass\n"
        "taken(triton.autotune([triton.Config({}, pre_hook=hook)], key=[])(doubled))",
        r"must need no hooks.* pass the jitted function under it \(`kernel\.fn`\)",
    ),
    "heuristics that nobody wrote down": (
        "taken(triton.heuristics({'BLOCK': lambda args: 16})(doubled))",
        "heuristics must be written as decorators to be captured, got 1 of which 0 are",
    ),
    "a parameter that nothing uses": (
        "taken(doubled, space=ParameterSpace([PowerOfTwo('BLOCK', 16, 64),\n"
        "    PowerOfTwo('num_warp', 1, 8)], default={'BLOCK': 16, 'num_warp': 4}))",
        "a parameter of the space .*got 'num_warp'; did you mean 'num_warps'",
    ),
    "a constexpr without a value": (
        "taken(doubled, space=ParameterSpace([PowerOfTwo('num_warps', 1, 8)],\n"
        "    default={'num_warps': 4}))",
        "every constexpr of doubled must have a value, got none for 'BLOCK'; give it in the space",
    ),
    "a constant that nothing uses": (
        "taken(doubled, constexprs={'BLOK': 3})",
        "a name in constexprs .*got 'BLOK'; did you mean 'BLOCK'",
    ),
    "an unknown output": ("taken(doubled, output='y')", "an output .*got 'y'; .*known: n, out, x"),
    "an unused extent": (
        "taken(doubled, extents={'N': 4})",
        "an extent .*got 'N'; known: n",
    ),
    "a missing extent": (
        "def needy(device, n):\n    return inputs(device, n)\ntaken(doubled, inputs=needy)",
        r"a parameter of inputs\(\) after the device .*got 'n'",
    ),
    "a missing argument": (
        "def short(device):\n    x = torch.ones(4, device=device)\n    return {'x': x, 'out': x}\n"
        "taken(doubled, inputs=short)",
        "every argument of doubled must have a value, got none for 'n'; give it in what inputs",
    ),
    "an output that is no tensor": (
        "taken(doubled, output='n')",
        "an output must be one of the tensors that inputs.* got 'n'; the tensors are x, out",
    ),
    "inputs that fail": (
        "def failing(device):\n    raise RuntimeError('no such file')\n"
        "taken(doubled, inputs=failing)",
        "inputs.* also on 'cpu' where configs are compiled, got RuntimeError: no such file",
    ),
    "a grid that asks for a tensor": (
        "def sized(meta):\n    return (meta['x'].numel(),)\ntaken(doubled, grid=sized)",
        r"grid\(\) must be computable from numbers",
    ),
    "a grid of nothing": (
        "def nothing(meta):\n    return (0,)\ntaken(doubled, grid=nothing)",
        r"grid\(\) must return one to three integers >= 1, got \(0,\)",
    ),
    "a parameter that a heuristic sets": (
        "@triton.heuristics({'num_warps': lambda args: 8})\n"
        "@triton.jit\n"
        "def warped(x, out, n, BLOCK: tl.constexpr):\n"
        "    pass\n"
        "taken(warped, space=ParameterSpace([PowerOfTwo('BLOCK', 16, 64),\n"
        "    PowerOfTwo('num_warps', 1, 8)], default={'BLOCK': 16, 'num_warps': 4}))",
        "got num_warps, which is set by a heuristic; leave it out of the space, or the rule out",
    ),
    "inputs that forget the device": (
        "def here(device):\n    return {'x': torch.ones(4), 'out': torch.ones(4), 'n': 4}\n"
        "taken(doubled, inputs=here)",
        r"on the device that it is given, got 'x' on cpu, asked for meta; make it with device=",
    ),
    "an output that was forgotten on the CPU": (
        "def mixed_up(device):\n"
        "    return {'x': torch.ones(4, device=device), 'out': torch.ones(4), 'n': 4}\n"
        "taken(doubled, inputs=mixed_up)",
        "got 'out' on cpu",
    ),
    "a name that is no part of a path": (
        "taken(doubled, name='my kernel')",
        "at most 100 letters, digits and _ . . -, got 'my kernel'; give it another with name=",
    ),
    "the name of a shipped kernel": (
        "taken(doubled, name='softmax')",
        "must not be called like one that ships with kt_lab.*got 'softmax'; give it another",
    ),
    "one workload twice": (
        "taken(doubled, extents=[{'n': 4}, {'n': 4}])",
        "workloads must differ in their extents",
    ),
    "a function that a call has wrapped": (
        "def eager(x):\n    return 2 * x\nfast = torch.compile(eager)\n"
        "def compiled(args):\n    return fast(args['x'])\n"
        "taken(doubled, baseline=compiled)",
        "must stand above it as @..., got eager wrapped by a call; write it as a decorator",
    ),
    "nothing to compare": ("taken(doubled, output=())", "at least one output"),
    "a list in place of a space": (
        "taken(doubled, space=[PowerOfTwo('BLOCK', 16, 64)])",
        r"space must be a ParameterSpace.*got \[PowerOfTwo\(name='BLOCK'",
    ),
    "a function of no space": (
        "def listed(workload):\n    return [16, 32]\ntaken(doubled, space=listed)",
        r"space must be a ParameterSpace.*got \[16, 32\]",
    ),
    "extents without names": (
        "taken(doubled, extents=[300])",
        "extents must be a dict of integers by name, as {'n': 4096}, or a list .*got 300",
    ),
    "the name of an extent alone": ("taken(doubled, extents='n')", "extents must be .*got 'n'"),
    "one number for all extents": ("taken(doubled, extents=300)", "extents must be .*got 300"),
    "a number for a name": ("taken(doubled, name=5)", "a part of paths.*got 5; give it another"),
    "a tolerance below zero": ("taken(doubled, rtol=-1)", "rtol must be a number >= 0, got -1"),
    "a tolerance that is none": (
        "taken(doubled, atol=float('nan'))",
        "atol must be a number >= 0, got nan",
    ),
    "a text for bytes": ("taken(doubled, bytes_moved='all')", "bytes_moved must be .*got 'all'"),
    "operations below zero": ("taken(doubled, flops=-1)", "flops must be a number >= 0, got -1"),
    "no output": ("taken(doubled, output=None)", "output must be the name of .*got None"),
    "a number to restore": ("taken(doubled, restore=5)", "restore must be the name .*got 5"),
    "constexprs without values": (
        "taken(doubled, constexprs=['BLOCK'])",
        r"constexprs must be a dict of values by name.*got \['BLOCK'\]",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_says_what_and_what_next(cell, case):
    code, message = REFUSALS[case]
    with pytest.raises(CellError, match=message):
        cell(code)


@pytest.mark.parametrize("name", ["v1.2+x-y", "_", "größe", "a b", "a/b", "-a", "..", "a" * 101])
def test_a_name_is_taken_if_a_winner_can_be_stored_under_it(cell, name):
    try:
        make(kernel=name)
    except UsageError:
        with pytest.raises(CellError, match="a part of paths"):
            cell(f"taken(doubled, name={name!r})")
    else:
        assert cell(f"capture(doubled, name={name!r}, **usual).name") == name


def test_only_what_the_kernel_is_given_must_be_on_its_device(cell, run):
    cell(
        "def with_more(device):\n"
        "    return inputs(device) | {'factor': torch.full((1,), 2.0)}\n"  # for the reference
        "def by_factor(args):\n"
        "    return args['x'] * args['factor'].to(args['x'].device)\n"
    )
    assert run(cell("taken(doubled, inputs=with_more, reference=by_factor)"), {}, BLOCKS) == [
        "",
        "",
    ]


@pytest.mark.parametrize(
    "read",
    ["total(args)", "args.get('out') + args['x']", "total(dict(**args))"],
)
def test_a_reference_that_passes_its_argument_on_may_read_every_output(cell, read):
    cell("def total(args):\n    return args['out'] + args['x']\n")
    cell(f"def summed_up(args):\n    return {read}\n")
    taken = Path(cell("taken(doubled, reference=summed_up)")).read_text()
    assert "restored=('out',)" in taken

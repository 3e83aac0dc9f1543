import pytest

from kt_lab.kernels import device_module, get_kernel
from kt_lab.kernels.group_norm import KERNEL, MOST_PROGRAMS
from kt_lab.workload import Workload

# One pixel, ragged channels and pixels, several tiles per channel, and even tiles.
SHAPES = [
    {"B": 2, "G": 3, "D": 1, "H": 1, "W": 1},
    {"B": 1, "G": 2, "D": 3, "H": 5, "W": 7},
    {"B": 1, "G": 1, "D": 3, "H": 20, "W": 15},
    {"B": 1, "G": 1, "D": 4, "H": 16, "W": 16},
]


def _problems(cases, answers):
    return [(c, a["problem"]) for c, a in zip(cases, answers, strict=True) if a["problem"]]


def _workload(extents):
    return Workload("group_norm", "test", extents, "float16")


def test_registry_returns_the_kernel():
    assert get_kernel("group_norm") is KERNEL


@pytest.mark.parametrize("workload", KERNEL.workloads, ids=lambda w: w.name)
def test_space_is_worth_searching_and_recordable(workload):
    space = KERNEL.space(workload)
    assert 800 <= space.size <= 1300
    assert space.contains(space.default)
    assert workload.name == "x".join(map(str, workload.extents.values()))


@pytest.mark.parametrize("b", [1, 100])
@pytest.mark.parametrize("d", [1, 5, 64])
@pytest.mark.parametrize(("h", "w"), [(1, 1), (9, 16), (500, 1000)])
def test_space_exists_for_any_extents_and_groups_always_fit_a_gpu(b, d, h, w):
    workload = _workload({"B": b, "G": 7, "D": d, "H": h, "W": w})
    space = KERNEL.space(workload)
    module = device_module("group_norm")
    configs = space.configs(space.enumerate())
    for config in (configs[0], space.default, configs[-1]):
        launch = module.plan(module.fake_inputs(workload), workload, config, sms=132)
        assert launch.constexprs["SPLIT"] <= MOST_PROGRAMS < 132
        assert launch.grid == (b * 7 * launch.constexprs["SPLIT"],)


def test_programs_only_wait_where_all_of_a_group_run_at_once():
    workload = KERNEL.workloads[0]
    module = device_module("group_norm")
    config = dict(KERNEL.space(workload).default) | {"TRIPS": 1}
    fakes = module.fake_inputs(workload)
    large, small = (module.plan(fakes, workload, config, sms=sms) for sms in (132, 8))
    assert large.constexprs["SPLIT"] == small.constexprs["SPLIT"] == 16
    assert large.constexprs["MEET"]
    assert not small.constexprs["MEET"]


def test_every_path_agrees_with_the_reference(interpret, distinct_cases, pairwise):
    cases = pairwise([c for shape in SHAPES for c in distinct_cases("group_norm", **shape)])
    paths = {
        (c["config"]["TRIPS"] > 1, c["config"]["VARIANCE"], c["config"]["ORDER"]) for c in cases
    }
    assert len(paths) == 6  # one tile or several, in either order
    assert not _problems(cases, interpret(cases))


@pytest.mark.slow
def test_every_distinct_config_agrees_with_the_reference(interpret, distinct_cases):
    shapes = [*SHAPES, {"B": 1, "G": 1, "D": 40, "H": 3, "W": 16}]
    cases = [c for shape in shapes for c in distinct_cases("group_norm", **shape)]
    assert not _problems(cases, interpret(cases))


def test_hopper_code_waits_for_the_group_and_reads_sixteen_bytes_at_a_time(cross_compile):
    plain = {"BLOCK_D": 1, "VARIANCE": "centred", "ORDER": "same", "num_warps": 16}
    case = {"kernel": "group_norm", "sms": 132}
    case |= {"extents": {"B": 8, "G": 32, "D": 4, "H": 256, "W": 256}}
    kept = plain | {"BLOCK_S": 16384, "TRIPS": 1, "num_stages": 1}
    alone = plain | {"BLOCK_S": 8192, "TRIPS": 32, "num_stages": 3}
    shared, whole = cross_compile([case | {"config": kept}, case | {"config": alone}])
    # Told with release and waited for with acquire.
    assert "atom.global.gpu.acq_rel.add" in shared["ptx"]
    assert ".global.gpu.acquire." in shared["ptx"]
    assert "atom." not in whole["ptx"]
    assert shared["ptx"].count("ld.global.v4.b32") == 32 * 2 // 16  # 32 elements a thread
    assert "cp.async.cg.shared.global" in whole["ptx"]  # only ever 16 bytes

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kt_lab.errors import UnknownName
from kt_lab.kernels import get_kernel
from kt_lab.kernels.moe_spaces import ARCHITECTURES, PUBLISHED, names, published, space_for
from kt_lab.workload import Workload

# Configs of each published expansion, as the pull requests list them.
COUNTS = {
    "moe_weights_atomic": {"pr3952_first": 8, "pr3952": 24},
    "moe_weights_cast": {"pr3952_first": 8, "pr3952": 24},
    "moe_weights_reduction": {"pr3952_first": 8, "pr3952": 36},
    "jagged_rowwise": {"pr3952": 16, "pr3972": 3, "pr4069": 1, "pr4113": 36},
    "jagged_colwise": {"pr3952": 16, "pr3972": 3, "pr4069": 1, "pr4113": 36},
    "moe_weights_colwise": {"published": 8},
    "blockwise_quantise": {"published": 45},
}


@pytest.mark.parametrize("kernel", COUNTS)
def test_published_spaces_have_their_counts_and_lie_in_the_wide_one(kernel):
    assert set(COUNTS) == set(PUBLISHED)
    for name, count in (COUNTS[kernel] | {"original": 1}).items():
        assert len(set(published(kernel, name))) == count
    for workload in get_kernel(kernel).workloads:
        wide = space_for(workload, arch="sm_90")
        assert wide.fingerprint == get_kernel(kernel).space(workload).fingerprint
        assert wide.size >= 500
        for name in PUBLISHED[kernel]:
            space = space_for(workload, arch="sm_90", name=name)
            assert set(space.configs(space.enumerate())) == set(published(kernel, name))
            assert all(map(wide.contains, published(kernel, name)))


@pytest.mark.parametrize("kernel", COUNTS)
def test_the_original_is_the_default_and_in_every_space_but_one(kernel):
    original = published(kernel, "original")[0]
    for workload in get_kernel(kernel).workloads:
        assert get_kernel(kernel).space(workload).default == original
    for name in PUBLISHED[kernel]:
        relaxed = not name.endswith("acq_rel")
        assert (original in published(kernel, name)) is (relaxed and name != "pr3972")


@pytest.mark.parametrize("arch", ["sm_75", "sm_100", "gfx1100", ""])
def test_nothing_is_tuned_on_an_unknown_architecture(arch):
    for kernel in COUNTS:
        workload = get_kernel(kernel).workloads[0]
        for name in names(kernel):
            space = space_for(workload, arch=arch, name=name)
            assert space.configs(space.enumerate()) == list(published(kernel, "original"))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_wide_spaces_hold_what_was_published_on_every_architecture(arch):
    for kernel in COUNTS:
        for workload in get_kernel(kernel).workloads[::3]:
            wide = space_for(workload, arch=arch)
            assert wide.size >= 500
            for name in PUBLISHED[kernel]:
                assert all(map(wide.contains, published(kernel, name)))


def test_small_experts_have_the_published_spaces_too():
    extents = {"E": 1, "N": 3, "K": 5}
    workload = Workload("moe_weights_reduction", "test", extents, "float32")
    assert space_for(workload, arch="gfx942", name="pr3952").size == 36


def test_unknown_names_are_told():
    workload = get_kernel("jagged_rowwise").workloads[0]
    with pytest.raises(UnknownName, match="pr4113"):
        space_for(workload, arch="sm_90", name="pr9999")
    with pytest.raises(UnknownName, match="blockwise_quantise"):
        names("softmax")
    with pytest.raises(UnknownName, match="pr3952"):
        published("jagged_rowwise", "wide")


_COMPILE = """
import json, sys
from kt_lab.inspect.targets import get_target
from kt_lab.kernels import get_kernel, subject
from kt_lab.kernels.moe_spaces import published
from kt_lab.runners.gpu.compiling import compile_service
compile_one = compile_service(**get_target(sys.argv[1]).compiler)
kernel = get_kernel("jagged_rowwise")
task = {"subject": subject(kernel.workloads[1], kernel), "sms": 132, "fresh": True}
configs = published("jagged_rowwise", "pr3952")[: int(sys.argv[2])]
found = [compile_one(task | {"config": dict(c)}) for c in (configs[0], *configs)]
open(sys.argv[3], "w").write(json.dumps([one["code_hash"] for one in found[1:]]))
"""


@pytest.mark.parametrize(("arch", "configs"), [("sm_90", 16), ("gfx942", 4)])
def test_configs_that_differ_in_idle_stages_are_the_same_program(arch, configs, tmp_path):
    # The first compilation of a process for AMD may name and order things differently from all
    # later ones; it is made twice.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    clean |= {"PYTHONPATH": str(Path(__file__).parents[2]), "TRITON_DISABLE_LINE_INFO": "1"}
    clean |= {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_DEFAULT_FP_FUSION": "1"}
    arguments = [sys.executable, "-c", _COMPILE, arch, str(configs), str(tmp_path / "hashes")]
    subprocess.run(arguments, env=clean, check=True, timeout=300)
    hashes = json.loads((tmp_path / "hashes").read_text())
    assert len(hashes) == configs
    assert len(set(hashes)) == configs // 2

"""Helion's spaces as ours: no slot gets lost, and what searchers choose is a kernel."""

import importlib.util
import json

import numpy as np
import pytest

from kt_lab.budget import Budget
from kt_lab.evidence.beside_helion import OPERATIONS as WORKLOADS
from kt_lab.kernels import device_module, get_workload
from kt_lab.landscape import data_directory
from kt_lab.runners.synthetic import SyntheticLandscape, SyntheticRunner
from kt_lab.search import make_searcher
from kt_lab.trial import Config
from kt_lab.tune import tune

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("helion", "torch", "triton")),
    reason="needs helion, which the extra peers installs, torch and triton",
)


def opened(op):
    """Helion's kernel of an operation bound to inputs without memory, and its space."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kt_lab.evidence.helion_kernels import bound
    from kt_lab.evidence.helion_space import HelionSpace

    workload = get_workload(WORKLOADS[op])
    with FakeTensorMode():
        inputs = device_module(workload.kernel).make_inputs(workload, device="cpu", seed=0)
    kernel = bound(workload.kernel, inputs)
    return kernel, HelionSpace(kernel)


def test_an_operation_is_compared_on_a_workload_of_its_kernel():
    from kt_lab.evidence.helion_kernels import OPERATIONS

    assert {op: get_workload(key).kernel for op, key in WORKLOADS.items()} == {
        op: op for op in OPERATIONS
    }


@pytest.mark.parametrize("op", WORKLOADS)
def test_every_operation_becomes_triton_code_wherever_its_space_is_sampled(op):
    kernel, space = opened(op)
    default = space.helion(space.space.default)
    assert default == kernel.config_spec.default_config()
    sampled = space.space.sample(10, rng=np.random.default_rng(0))
    configs = [space.helion(config) for config in sampled]
    codes = {kernel.to_triton_code(config) for config in configs}
    assert len(codes) == len(sampled)
    assert all(f"def _helion_{op}(" in code for code in codes)


@pytest.mark.parametrize("op", ["row_sum", "rope"])
def test_the_flagship_searches_helions_spaces_without_listing_them(op):
    """The smallest of them and the largest."""
    _, space = opened(op)
    assert not space.space.enumerable
    landscape = SyntheticLandscape(space.space, seed=0)
    searcher = make_searcher("scout", space.space, seed=0)
    history = tune(searcher, SyntheticRunner(landscape, seed=0), budget=Budget(trials=60))
    configs = [space.helion(trial.config) for trial in history]
    assert len(configs) == 60
    first = next(trial for trial in history if trial.config == space.space.default)
    assert history.incumbent.latency_us < first.latency_us


@pytest.mark.parametrize("op", ["fp8_gemm", "matmul", "softmax", "layer_norm"])
def test_no_tiles_that_a_search_of_helions_ended_with_are_outside_the_space(op):
    _, space = opened(op)
    default = space.space.default
    ends = 0
    for name in ("helion_field", "helion_field-h100"):
        path = data_directory() / "evidence" / f"{name}.json"
        for row in json.loads(path.read_text())["rows"]:
            if row["op"] != op or not row["search"].startswith("helion") or "config" not in row:
                continue
            tiles = {f"block_sizes_{n}": t for n, t in enumerate(row["config"]["block_sizes"])}
            config = dict(default) | tiles | {"num_warps": row["config"]["num_warps"]}
            assert space.space.contains(Config(config)), row["config"]
            ends += 1
    assert ends > 10

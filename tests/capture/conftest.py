import pytest

from tests.capture.notebook import Notebook

RUN = """
import torch
from kt_lab.kernels import device_module
from kt_lab.runners.gpu.checking import difference, poison
from kt_lab.workload import Subject, Workload

def problems(path, extents, configs, rtol=1e-3, atol=1e-3):
    module = device_module(path)
    workload = Workload("mine", "test", extents, "float32")
    made = module.make_inputs(workload, device="cpu", seed=5)
    expected = module.reference(made, workload)
    found = []
    for config in configs:
        launch = module.plan(made, workload, config, sms=4)
        for _ in range(2):
            poison(module.output(made))
            if launch.prepare:
                launch.prepare()
            launch()
        law = Subject(workload, path, rtol, atol)
        found.append(difference(module.output(made), expected, law=law))
    return found
"""
COMPILE = """
from triton.runtime import driver
from kt_lab.runners.gpu.compiling import StubDriver, compile_one
from kt_lab.workload import Subject, Workload

driver.set_active(StubDriver(arch=90, backend="cuda", warp_size=32))

def compiled(path, extents, config):
    subject = Subject(Workload("mine", "test", extents, "float32"), path, 1e-3, 1e-3)
    return compile_one({"subject": subject, "config": config, "sms": 132})
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Where captured modules and compiled kernels go."""
    return tmp_path_factory.mktemp("cache")


def _notebook(cache, **environment):
    places = {"KT_LAB_CACHE": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    notebook = Notebook(**places, **environment)
    yield notebook
    notebook.close()


@pytest.fixture(scope="session")
def notebook(cache):
    """Where kernels are defined and captured."""
    yield from _notebook(cache)


@pytest.fixture(scope="session")
def interpreter(cache):
    """A fresh process in which kernels run in Triton's interpreter; it captures nothing."""
    yield from _notebook(cache, TRITON_INTERPRET="1")


@pytest.fixture(scope="session")
def compiler(cache):
    """A fresh process that compiles for sm_90; it captures nothing either."""
    yield from _notebook(cache)


@pytest.fixture(scope="session")
def run(interpreter):
    """Runs configs of a captured module; returns what is wrong with each result."""
    interpreter(RUN)
    return lambda path, extents, configs: interpreter(
        "problems(path, extents, configs)", path=path, extents=extents, configs=configs
    )


@pytest.fixture(scope="session")
def compile_offline(compiler):
    """Compiles a config of a captured module for sm_90, without a GPU."""
    compiler(COMPILE)
    return lambda path, extents, config: compiler(
        "compiled(path, extents, config)", path=path, extents=extents, config=config
    )

"""What holds for every test: GPU tests need a GPU, and CI skips nothing else."""

import functools
import os

import pytest

LONGEST = "test_notebooks.py"

# Processes that share the cores: more threads of linear algebra would wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")


@functools.cache
def gpu_count():
    """Counts NVIDIA GPUs through the driver's library, without importing torch."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no rights: all mean no GPU for a test
        return 0
    try:
        return pynvml.nvmlDeviceGetCount()
    finally:
        pynvml.nvmlShutdown()


def pytest_collection_modifyitems(config, items):
    """Processes that share the files begin with the longest, so that none is left with it."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.name != LONGEST)


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not gpu_count():
        pytest.skip("needs an NVIDIA GPU")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if not item.get_closest_marker("gpu"):
        _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report):
    """Turns a skip into a failure in CI, where everything that tests need is installed."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"only tests marked gpu may be skipped in CI: {reason}"

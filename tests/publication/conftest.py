"""A small stored study in a data folder of its own."""

import shutil

import pytest

from kt_lab.budget import Budget
from kt_lab.experiment import Experiment
from kt_lab.landscape import landscapes

WORKLOADS = ("softmax/4096x640", "int4_gemm/1x1x7168x8192")


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    """The data folder of "tiny_one": two searchers, two workloads, two seeds, 40 trials."""
    data = tmp_path_factory.mktemp("stored") / "data"
    for entry in landscapes():
        if entry.workload in WORKLOADS and entry.gpu == "h200":
            folder = data / "landscapes" / entry.kernel / entry.gpu
            folder.mkdir(parents=True, exist_ok=True)
            for suffix in (".json", ".parquet"):
                shutil.copy(entry.path.with_suffix(suffix), folder)
    budget = Budget(trials=40)
    study = Experiment("tiny_one", WORKLOADS, ("pattern", "random"), 2, budget, gpu="h200")
    study.run(directory=data / "runs" / "tiny_one")
    return data


@pytest.fixture
def data(stored, monkeypatch):
    """The same, as the data of this process and of those that it starts."""
    monkeypatch.setenv("KT_LAB_DATA", str(stored))
    return stored

"""Landscapes of the study by formula, complete as recordings are, and a few recorded ones."""

import pytest

from kt_lab.kernels import get_kernel, get_workload
from kt_lab.landscape import load_landscape
from kt_lab.moe_study import recorded, tunings
from tests.moe_landscapes import moe_landscape

SHAPES = (
    "moe_weights_atomic/1x8192x5120",
    "moe_weights_atomic/16x8192x5120",
    "moe_weights_atomic/8x2048x1408",
    "moe_weights_cast/1x8192x5120",
    "moe_weights_reduction/1x8192x5120",
    "jagged_rowwise/16640x8192x1x1x1",
    "jagged_rowwise/16640x8192x64x2x1",
    "jagged_rowwise/32768x2048x32x1x1",
)
BYTES_PER_US = 4e6


def completed(key, **options):
    """One landscape by formula with floors, a baseline and what its GPU is like."""
    made = moe_landscape(get_workload(key), **options)
    kernel = get_kernel(made.kernel)
    moved = kernel.bytes_moved(get_workload(key))
    facts = made.manifest["facts"][0] | {"sms": 132, "l2_bytes": 60 * 2**20}
    made.manifest |= {
        "bytes_moved": moved,
        "bytes_floor_us": moved / BYTES_PER_US,
        "baseline": {"name": "torch", "samples_us": [1000.0, 900.0, 1100.0]},
        "facts": [facts],
    }
    return made


@pytest.fixture(scope="session")
def exact():
    """Without noise, so that every answer follows from the formula."""
    return [completed(key, noise=0.0, extra=20) for key in SHAPES]


@pytest.fixture(scope="session")
def noisy():
    return [completed(key, noise=0.01, seed=i, extra=20) for i, key in enumerate(SHAPES)]


@pytest.fixture(scope="session")
def turned():
    """One recorded shape in both layouts, and its copy."""
    keys = ("jagged_colwise/16640x5120x64x2x1", "jagged_colwise/16640x5120x64x2x2")
    return [load_landscape(key, gpu="h200") for key in (*keys, "tokens_transpose/16640x5120")]


@pytest.fixture(scope="session")
def data(noisy, tmp_path_factory):
    """A folder of recorded data with these landscapes alone."""
    root = tmp_path_factory.mktemp("data")
    for made in noisy:
        name = made.workload.partition("/")[2]
        made.save(root / "landscapes" / made.kernel / made.gpu / name)
    return root


@pytest.fixture(scope="session")
def result(data):
    """Repeated tunings of two shapes, computed here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KT_LAB_DATA", str(data))
        return tunings.tunings(shapes=SHAPES[:2], repeats=3, workers=1)


@pytest.fixture
def recorded_here(data, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(data))
    return recorded.open_study()

"""Landscapes of kernels of one's own, recorded with a simulated GPU and replayed."""

import json

import pytest

from kt_lab.landscape import load_landscape
from tests.capture.notebook import CellError
from tests.capture.test_variety import CELL
from tests.record.test_record import SERVICES

RECORD = """
from pathlib import Path
from kt_lab.record import Recording, RecordOptions, SessionOptions, SessionRecording, record
from kt_lab.kernels import get_workload

wide = ParameterSpace(
    [PowerOfTwo("BLOCK", 16, 256), PowerOfTwo("num_warps", 1, 8)],
    default={"BLOCK": 32, "num_warps": 4},
)
sizes = [{"n": 100}, {"n": 1000}]
options = RecordOptions(compile_workers=1, contention=0)

def recorded(kernel, directory, workloads=None, spread=record):
    chosen = kernel.workloads if workloads is None else workloads
    return [str(path) for path in spread(
        chosen, directory=directory, options=options, kernel=kernel, services=services
    )]
"""


@pytest.fixture(scope="module")
def cell(notebook):
    notebook(CELL)
    notebook(RECORD, services=SERVICES)
    notebook("mine = capture(doubled, **usual | {'space': wide, 'extents': sizes})")
    return notebook


def test_a_kernel_of_ones_own_is_recorded_and_replayed(cell, tmp_path):
    paths = cell("recorded(mine, directory)", directory=str(tmp_path))
    places = [tmp_path / "doubled" / "test" / f"{n}.parquet" for n in (100, 1000)]
    assert paths == sorted(map(str, places))
    landscape = load_landscape(paths[0])
    assert (landscape.kernel, landscape.workload) == ("doubled", "doubled/100")
    assert len(landscape.table) == landscape.space.size == 20
    manifest = json.loads(places[0].with_suffix(".json").read_text())
    assert manifest["extents"] == {"n": 100}
    assert manifest["bytes_moved"] == 2 * 4 * 100  # each tensor once
    compared = cell(
        "from kt_lab.comparison import compare\n"
        "told = compare(['random', 'scout'], paths, seeds=2, trials=10, workers=1)\n"
        "sorted(map(list, set(zip(told['workload'], told['searcher']))))",
        paths=paths,
    )
    assert [workload for workload, _ in compared[::2]] == ["doubled/100", "doubled/1000"]


def test_its_recording_goes_on_until_its_source_changes(cell, tmp_path):
    cell("recorded(mine, directory, ['doubled/100'])", directory=str(tmp_path))
    journal = tmp_path / "journal.jsonl"
    before = journal.read_text().count('"visit"')
    cell("recorded(mine, directory, ['doubled/100'])", directory=str(tmp_path))
    assert journal.read_text().count('"visit"') == before
    cell("other = capture(doubled, **usual | {'space': wide, 'extents': sizes, 'rtol': 1e-5})")
    with pytest.raises(CellError, match="kernel sources, got another"):
        cell("recorded(other, directory, ['doubled/100'])", directory=str(tmp_path))


def test_a_session_times_it_again(cell, tmp_path):
    cell("paths = recorded(mine, directory)", directory=str(tmp_path))
    saved = cell(
        "import os\n"
        "os.environ['KT_LAB_DATA'] = directory\n"
        "from kt_lab.landscape import load_landscape\n"
        "session = SessionRecording(\n"
        "    ['doubled/1000'], name='monday', cache=Path(directory), kernel=mine,\n"
        "    options=SessionOptions(compile_workers=1), services=services,\n"
        "    load=lambda key, gpu: load_landscape(paths[1]),\n"
        ")\n"
        "saved = session.run()\n"
        "del os.environ['KT_LAB_DATA']\n"  # other tests' cells come after this one
        "import pandas as pd\n"
        "sorted(set(pd.read_parquet(saved)['workload']))"
    )
    assert saved == ["doubled/1000"]


@pytest.mark.parametrize(
    ("workloads", "told"),
    [
        ("['doubled/100', mine.workloads[0]]", "each workload once.* got doubled/100"),
        ("[get_workload('softmax/4096x640')]", "of the kernel doubled only.* got softmax"),
        ("['doubled/2x3']", "must have the extents n, got 2x3"),
    ],
)
def test_what_is_not_its_workload_is_refused(cell, tmp_path, workloads, told):
    with pytest.raises(CellError, match=told):
        cell(f"recorded(mine, directory, {workloads})", directory=str(tmp_path))
    assert not list(tmp_path.iterdir())

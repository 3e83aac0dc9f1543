"""Where figures come from: recordings, runs and stored results tell it, and files hold it."""

import json

import pandas as pd
from matplotlib import pyplot

from kt_lab.atlas import tails_figure
from kt_lab.cells import Cell, run_cell
from kt_lab.comparison import incumbent_figure
from kt_lab.landscape import load_landscape
from kt_lab.origins import told

WORKLOAD = "softmax/4096x640"


def test_a_recording_is_named_with_its_hash_gpu_driver_versions_and_timer():
    landscape = load_landscape(WORKLOAD, gpu="h200")
    [(key, facts)] = told([landscape])["landscapes"].items()
    assert key == f"{WORKLOAD} on h200"
    assert facts["sha256"] == landscape.manifest["sha256"]
    assert facts["gpu"] == "NVIDIA H200"
    assert facts["protocol"].startswith("cuda-events")
    assert all(facts[name] for name in ("driver", "torch", "triton"))
    assert told(landscape) == told([landscape])


def test_runs_tell_who_ran_and_what_was_replayed_and_given_landscapes_count():
    cells = [Cell(WORKLOAD, "h200", "random", "random", (), 4, seed, 5, None) for seed in (0, 1)]
    runs = pd.concat([run_cell(cell) for cell in cells])
    found = told(runs)
    assert found["runs"] == {"searchers": ["random"], "lanes": [4], "seeds": 2}
    assert found["landscapes"] == told(load_landscape(WORKLOAD, gpu="h200"))["landscapes"]
    elsewhere = runs.assign(workload="mine/1")
    assert told(elsewhere)["landscapes"] == {"mine/1 on h200": None}


def test_results_tell_what_they_were_measured_with_or_else_where_their_rows_searched():
    first, last = {"commit": "a"}, {"commit": "b"}
    stored = {"rows": [{"workload": WORKLOAD, "gpu": "h200"}], "provenance": last}
    assert told(stored) == {"measured": [last]}
    assert told(stored | {"resumed": [first]})["measured"] == [first, last]
    del stored["provenance"]
    assert [*told(stored)] == ["landscapes"]
    assert told() == told({"rows": []}) == {}


def test_what_is_told_is_written_beside_the_figure_and_the_same_twice(tmp_path):
    landscape = load_landscape(WORKLOAD, gpu="h200")
    runs = run_cell(Cell(WORKLOAD, "h200", "random", "random", (), 4, 0, 5, None))
    for drawing in (tails_figure([landscape]), incumbent_figure(runs, landscapes=[landscape])):
        paths = [drawing.save("one", directory=tmp_path / folder)["json"] for folder in "ab"]
        first, second = (path.read_bytes() for path in paths)
        assert first == second
        origin = json.loads(first)["provenance"]
        assert origin["landscapes"][f"{WORKLOAD} on h200"]["gpu"] == "NVIDIA H200"
        asked = drawing.save("one", directory=tmp_path, provenance={"study": "mine"})["json"]
        assert json.loads(asked.read_text())["provenance"] == origin | {"study": "mine"}
    pyplot.close("all")

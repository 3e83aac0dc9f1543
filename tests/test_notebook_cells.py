"""Cells of notebooks, run one by one: on another tuner's landscape, and in another order."""

import json
import re
from pathlib import Path

import matplotlib
import pandas as pd
import pytest

from kt_lab.cells import recorded
from kt_lab.formats import read_cache
from kt_lab.ui.landscape_figure import roofline_figure
from tests.formats.files import hub, write

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
ENDS = ("seconds", "configs")


def run_cells(name, *told, **given):
    """Runs the code cells that hold one of the texts, in their order; returns their names."""
    cells = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    names = dict(given)
    for source in sources:
        if any(text in source for text in told):
            exec(source, names)
    return names


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """The hub's landscape in a folder of recorded data of its own."""
    found = read_cache(write(tmp_path / "a.json", hub()))
    (folder := tmp_path / "landscapes" / found.kernel / found.gpu).mkdir(parents=True)
    found.save(folder / "4096x4096.parquet")
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    recorded.cache_clear()
    yield found
    recorded.cache_clear()


def test_a_search_is_told_step_by_step_where_the_first_reading_failed(imported):
    of = {"WORKLOAD": imported.workload, "GPU": imported.gpu, "TRIALS": 6, "LANES": 16}
    shown = []
    for seed in range(20):
        told = run_cells("13_how_scout_searches.ipynb", "import", "run_cell(", **of, SEED=seed)
        shown.append(told["shown"])
    failed = [s for s in shown if s["latency_us"].isna().iloc[0]]
    assert failed
    for table in failed:
        assert table["incumbent"].isna().iloc[0]
        assert table["incumbent"].notna().iloc[-1]


def test_what_is_said_of_helions_spaces_is_what_the_tables_hold():
    told = run_cells("13_how_scout_searches.ipynb", "import", "def over_helion")
    both = [told["large_table"](told["stored"](name)) for name in ("large", "large-judged")]
    table = pd.concat(both).set_index("kernel")
    cells = json.loads((NOTEBOOKS / "13_how_scout_searches.ipynb").read_text())["cells"]
    text = next(t for t in map("".join, (c["source"] for c in cells)) if "- At equal configs" in t)
    seconds, configs = (re.search(f"- At equal {n}.*?\n-", text, re.S)[0] for n in ENDS)
    said = {name: ratio for ratio, name in re.findall(r"(\d\.\d\d) on (\w+)", seconds)}
    assert said == {name: f"{table['equal_ratio'][name]:.2f}" for name in said}
    said = dict(re.findall(r"(\w+) \((\d\.\d\d)\)", configs))
    assert said == {name: f"{table['end_ratio'][name]:.2f}" for name in said}
    said = re.findall(r"(\w+) \((\d) %\)", configs)
    assert said == [(name, f"{100 * (table['end_ratio'][name] - 1):.0f}") for name, _ in said]
    assert told["over_helion"]("large").shape == (7, 6)  # as wide as a page


def test_a_landscape_of_one_visit_and_without_a_timer_is_told(imported):
    of = {"recorded": imported, "OUTPUT": "recorded"}
    told = run_cells("02_record_landscape.ipynb", "import pandas", "timer floor", "again =", **of)
    assert told["facts"]["timer floor (µs)"] != told["facts"]["timer floor (µs)"]  # not a number
    assert told["told"].empty


def test_a_roofline_of_unknown_bytes_says_so(imported):
    caption = roofline_figure(imported, {"optimum": imported.best}).caption
    assert caption.endswith("Share of the bytes floor: not known.")


def test_a_figure_tells_the_search_that_it_draws_whatever_the_parameters_were(tmp_path):
    matplotlib.use("agg")
    of = {"WORKLOAD": "softmax/4096x640", "RUNNER": "h200", "SEARCHER": "pattern", "TRIALS": 9}
    name, of = "04_tune_live.ipynb", of | {"OUTPUT": str(tmp_path)}
    told = run_cells(name, "import pandas", "where = ", "panel.start()", **of)
    told["panel"].choose("softmax/65536x512", searcher="random", trials=5)
    told["panel"].start()
    told = run_cells(name, "panel.save", "progress_figure(", **told)
    said = told["drawing"].caption
    assert said.startswith("Incumbent on softmax/65536x512: random, replay of NVIDIA H200, 5 t")
    assert told["points"]["spent_trials"].max() == 5

"""Every notebook runs top to bottom without a GPU, and leaves what it promises."""

import re
from pathlib import Path

import pandas as pd
import papermill
import pytest

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
SMALL = {
    "00_start_here.ipynb": (
        {"SEARCHERS": "pattern,lfbo_pattern", "SEEDS": 2, "TRIALS": 40},
        ["start_here"],
    ),
    "05_compare_searchers.ipynb": (
        {"SEEDS": 2, "TRIALS": 30},
        ["compare_ratios", "compare_quality", "compare_convergence"],
    ),
}


def test_every_notebook_is_run_here():
    assert sorted(SMALL) == sorted(p.name for p in NOTEBOOKS.glob("*.ipynb"))
    assert len(SMALL) == 2


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_notebook_runs_and_saves_its_figures(name, tmp_path):
    parameters, figures = SMALL[name]
    parameters = parameters | {"OUTPUT": str(tmp_path / "figures")}
    path = NOTEBOOKS / name
    assert set(parameters) <= set(papermill.inspect_notebook(str(path)))
    executed = papermill.execute_notebook(
        str(path),
        str(tmp_path / name),
        parameters=parameters,
        kernel_name="python3",
        cwd=str(NOTEBOOKS),
        progress_bar=False,
        log_output=False,
        execution_timeout=120,  # seconds a cell: a deadlock must not hold up the suite
    )
    cells = [c for c in executed.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in cells)
    shown = [o for c in cells for o in c.outputs if "image/png" in o.get("data", {})]
    assert len(shown) == len(figures)
    for figure in figures:
        for suffix in ("pdf", "png", "csv", "json"):
            assert (tmp_path / "figures" / f"{figure}.{suffix}").stat().st_size > 100
        points = pd.read_csv(tmp_path / "figures" / f"{figure}.csv")
        assert len(points) > 3
    text = executed.cells[-1].source
    assert re.search(r"what it does not", text)

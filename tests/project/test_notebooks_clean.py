"""Notebooks are thin drivers: stripped, with one parameters cell, short cells, and listed."""

import json
import re
import subprocess
import sys

import pytest

from tests.project.source_tree import ROOT

CELL_LINES = 15
TAGGED_LINES = {"searcher": 25}  # a whole algorithm in one cell, so tagged
SCALARS = (bool, int, float, str, type(None))


@pytest.fixture(scope="module")
def notebooks():
    """Every notebook by name; none at all would let each test below pass for nothing."""
    found = {path.name: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    assert found, "notebooks/ must hold at least one notebook"
    return found


def cells(path, kind="code"):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def text(cell):
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def test_notebooks_are_stripped(notebooks):
    command = [sys.executable, "-m", "nbstripout", "--verify", *map(str, notebooks.values())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    hint = "strip them: .venv/bin/nbstripout notebooks/*.ipynb"
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{hint}"


def test_notebooks_name_a_kernel_that_every_machine_has(notebooks):
    for name, path in notebooks.items():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        assert notebook["metadata"].get("kernelspec", {}).get("name") == "python3", name


def test_each_notebook_has_one_cell_of_parameters(notebooks):
    """One tagged cell of plain assignments, so that papermill and a reader can change them."""
    for name, path in notebooks.items():
        tagged = [c for c in cells(path) if "parameters" in c["metadata"].get("tags", ())]
        assert len(tagged) == 1, f"{name} must have one cell tagged parameters, has {len(tagged)}"
        values = {}
        exec(compile(text(tagged[0]), name, "exec"), {}, values)
        assert values, f"{name}: the parameters cell assigns nothing"
        assert all(isinstance(value, SCALARS) for value in values.values()), name


def allowed(cell):
    return max(TAGGED_LINES.get(t, CELL_LINES) for t in ["", *cell["metadata"].get("tags", ())])


def test_cells_are_short(notebooks):
    long = [
        f"{name}, cell {number}: {count} lines"
        for name, path in notebooks.items()
        for number, cell in enumerate(cells(path))
        if (count := len(text(cell).splitlines())) > allowed(cell)
    ]
    assert not long, f"at most {CELL_LINES} lines a code cell; move the rest into kt_lab:\n{long}"


def test_each_notebook_begins_with_a_title(notebooks):
    for name, path in notebooks.items():
        prose = cells(path, "markdown")
        assert prose, name
        assert text(prose[0]).startswith("# "), name


def test_the_readme_lists_every_notebook(notebooks):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"notebooks/([\w.-]+\.ipynb)", readme))
    assert listed == set(notebooks)

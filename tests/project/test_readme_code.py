"""What a newcomer copies from the README and from notebook 04 runs."""

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kt_lab import tune_live

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"```python\n(.+?)```", re.DOTALL)
BLOCKS = FENCED.findall((ROOT / "README.md").read_text("utf-8"))
ON_A_GPU = "tune_live("


def of_notebook():
    cells = json.loads((ROOT / "notebooks" / "04_tune_live.ipynb").read_text("utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    (block,) = (block for text in texts for block in FENCED.findall(text))
    return block


def run(code, folder):
    path = folder / "copied.py"
    path.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_code_to_copy():
    assert len(BLOCKS) == 3
    assert sum(ON_A_GPU in block for block in BLOCKS) == 2


def test_a_search_by_replay_finds_something(tmp_path):
    (block,) = (block for block in BLOCKS if ON_A_GPU not in block)
    config, latency_us = run(block, tmp_path).rsplit(maxsplit=1)
    assert "num_warps" in config
    assert 0 < float(latency_us) < 10


def of_readme():
    (block,) = (block for block in BLOCKS if "capture(" in block)
    return block


@pytest.mark.parametrize("copied", [of_readme, of_notebook])
def test_a_kernel_of_ones_own_is_captured_as_it_is_written(copied, tmp_path):
    pytest.importorskip("triton")
    *code, last = copied().strip().splitlines()
    assert last.startswith((ON_A_GPU, "TunerPanel("))
    told = run("\n".join([*code, "print(kernel.workloads[0].key)"]), tmp_path)
    assert told.strip() == f"sigmoid/{2**24}"


def test_the_call_that_notebook_04_names_is_one():
    text = (ROOT / "notebooks" / "04_tune_live.ipynb").read_text("utf-8")
    (call,) = re.findall(r"`(kt_lab\.tune_live\(.+?\))`", text)
    made = ast.parse(call, mode="eval").body
    asked = inspect.signature(tune_live)
    asked.bind(*made.args, **{keyword.arg: keyword.value for keyword in made.keywords})

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


def blocks_of_notebook():
    cells = json.loads((ROOT / "notebooks" / "04_tune_live.ipynb").read_text("utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    return [block for text in texts for block in FENCED.findall(text)]


def of_notebook():
    (block,) = (block for block in blocks_of_notebook() if "capture(" in block)
    return block


def run(code, folder):
    path = folder / "copied.py"
    path.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_code_to_copy():
    assert len(BLOCKS) == 5
    assert sum(ON_A_GPU in block for block in BLOCKS) == 2


def test_a_search_by_replay_finds_something(tmp_path):
    (block,) = (block for block in BLOCKS if "ReplayRunner" in block)
    config, latency_us = run(block, tmp_path).rsplit(maxsplit=1)
    assert "num_warps" in config
    assert 0 < float(latency_us) < 10


def of_readme():
    (block,) = (block for block in BLOCKS if "capture(" in block)
    return block


def looked_at():
    (block,) = (block for block in BLOCKS if "check_configs(" in block)
    return block


@pytest.mark.parametrize("copied", [of_readme, of_notebook])
def test_a_kernel_of_ones_own_is_looked_at_without_a_gpu(copied, tmp_path):
    pytest.importorskip("triton")
    *code, _ = copied().strip().splitlines()
    told = run("\n".join([*code, looked_at()]), tmp_path)
    assert re.findall(r"^\d +(\w+)", told, re.MULTILINE) == ["ok"] * 8
    assert "'configs': 35, 'ok': 35" in told


@pytest.mark.parametrize("copied", [of_readme, of_notebook])
def test_a_kernel_of_ones_own_is_captured_as_it_is_written(copied, tmp_path):
    pytest.importorskip("triton")
    *code, last = copied().strip().splitlines()
    assert last.startswith((ON_A_GPU, "TunerPanel("))
    told = run("\n".join([*code, "print(kernel.workloads[0].key)"]), tmp_path)
    assert told.strip() == f"sigmoid/{2**24}"


def test_a_kernel_of_ones_own_is_recorded_and_searched(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the simulated GPU, which is of the tests
    (block,) = (block for block in BLOCKS if "= compare(" in block)
    fakes = {name: f"tests.record.fake_gpu:{name}_service" for name in ("compile", "timing")}
    block = block.replace('"recorded")', f'"recorded", services={fakes})')
    block = block.replace("seeds=10", "seeds=2, trials=20, workers=1").replace("\n", "\n    ")
    *code, _ = of_readme().strip().splitlines()
    main = 'if __name__ == "__main__":  # as workers read this file again; a notebook needs none'
    told = run(
        "\n".join([*code, main, f"    {block}", "    print(runs.searcher.unique())"]), tmp_path
    )
    assert "scout" in told
    assert (tmp_path / "recorded" / "sigmoid" / "test" / f"{2**24}.parquet").exists()


def test_the_loop_over_shapes_of_notebook_04_names_what_there_is(tmp_path):
    pytest.importorskip("triton")
    (loop,) = (block for block in blocks_of_notebook() if "kernel.workloads:" in block)
    imports, _, body = loop.partition("\n\n")
    assert "with GpuRunner(workload, kernel=kernel)" in body
    *captured, _ = of_notebook().strip().splitlines()
    made = "\n".join(captured).replace('extents={"n": 2**24}', 'extents=[{"n": 256}, {"n": 512}]')
    told = run(f"{made}\n{imports}\nprint(*(w.key for w in kernel.workloads))", tmp_path)
    assert told.split() == ["sigmoid/256", "sigmoid/512"]


def test_the_call_that_notebook_04_names_is_one():
    text = (ROOT / "notebooks" / "04_tune_live.ipynb").read_text("utf-8")
    (call,) = re.findall(r"`(kt_lab\.tune_live\(.+?\))`", text)
    made = ast.parse(call, mode="eval").body
    asked = inspect.signature(tune_live)
    asked.bind(*made.args, **{keyword.arg: keyword.value for keyword in made.keywords})

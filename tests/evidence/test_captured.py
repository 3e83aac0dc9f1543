"""Kernels that are captured for the evidence: right on small shapes, and told as recorded."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kt_lab.evidence import captured

ROOT = Path(__file__).resolve().parents[2]
# Shapes that divide by nothing, where a kernel takes such.
SMALL = {
    "adamw_step": "3001",
    "all_pairs": "301",
    "block_sparse_matmul": "128x100x256x3x64",
    "causal_conv1d": "2x37x70",
    "conv2d": "2x7x5x24x40",
    "decode_attention": "2x3x4x70x128",
    "ell_spmv": "301x777x32",
    "embedding_bag": "90x21x72x5",
    "gelu_linear": "100x72x256",
    "histogram": "3001x64",
    "linear_attention": "2x70x64x128",
    "lora_linear": "40x72x100x16",
    "max_pool2d": "2x3x13x21",
    "nearest": "70x150x128",
    "nf4_dequantise": "3000",
    "row_cumsum": "13x777",
    "selective_scan": "2x12x20x16",
    "splitk_matmul": "24x40x200",
    "stencil": "33x101",
    "upsample_bilinear": "2x5x7x24",
    "w8_gemv": "70x900",
}
CHECK = """
import json
import sys

import numpy as np

from kt_lab.evidence.captured import kernels
from kt_lab.inspect.interpreted import check_configs
from kt_lab.kernels import subject, workload_of_shape

if __name__ == "__main__":
    found = {}
    for name, kernel in kernels().items():
        small = workload_of_shape(f"{name}/{json.loads(sys.argv[1])[name]}", kernel)
        some = kernel.space(small).sample(4, rng=np.random.default_rng(0))
        told = check_configs(subject(small, kernel), some)
        found[name] = [*told["status"], *filter(None, told["error"])]
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def result():
    return json.loads((ROOT / "data/evidence/captured.json").read_text())


def test_every_kernel_is_right_where_nothing_divides(tmp_path):
    pytest.importorskip("triton")
    (tmp_path / "check.py").write_text(CHECK)
    command = [sys.executable, "check.py", json.dumps(SMALL)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(SMALL, ["ok"] * 4)


def test_what_is_stored_is_of_these_kernels(result):
    pytest.importorskip("triton")
    known = captured.kernels()
    for row in result["rows"]:
        (workload,) = known[row["kernel"]].workloads
        assert row["workload"] == workload.key
        assert row["configs"] == known[row["kernel"]].space(workload).size
        assert row["says"] == known[row["kernel"]].description


def test_a_table_says_what_was_recorded(result):
    table = captured.report(result)
    assert table.count("\n") == 1 + len(result["rows"])
    cumsum = next(line for line in table.splitlines() if "row_cumsum" in line)
    assert "1,512 (756)" in cumsum
    assert "| fails |" in cumsum  # its default does not compile

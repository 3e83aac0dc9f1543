"""How several GPUs speed a recording up: every number is of a complete recording."""

from pathlib import Path

import numpy as np
import pytest

from kt_lab.evidence import record_scaling
from kt_lab.record import RecordOptions
from kt_lab.record import lanes as lanes_module

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {
    "compile": "tests.record.fake_gpu:compile_service",
    "timing": "tests.record.fake_gpu:timing_service",
}


def test_a_recording_on_two_gpus_is_measured_and_compared_with_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KT_LAB_LOCKS", str(tmp_path))
    monkeypatch.setattr(lanes_module, "gpu_uuid", lambda index: ("GPU-a", "GPU-b")[index])
    rows, latencies = [], []
    for gpus in (1, 2):
        options = RecordOptions(
            devices=tuple(range(gpus)),
            slices=True,
            limit=30,
            compile_workers=2 * gpus,
            contention=0,
        )
        folder = tmp_path / str(gpus)
        row, latency_us = record_scaling.measure(
            "softmax/4096x640", folder, options, services=SERVICES
        )
        rows.append(row | {"gpus": gpus, "workers": 2 * gpus})
        latencies.append(latency_us)
    assert [row["configs"] for row in rows] == [30, 30]
    assert rows[0]["readings"] == rows[1]["readings"] > 30
    assert all(0 < row["visits_s"] < row["seconds"] - row["start_s"] for row in rows)
    assert len(rows[1]["offsets"]) == 2
    (told,) = record_scaling.agreement(latencies)
    assert told["spearman"] > 0.8  # half of the configs are a quarter slower on the second GPU
    result = {"workload": "softmax/4096x640", "rows": rows, "agreement": [told]}
    assert "2 GPUs" in record_scaling.report(result)


def test_speed_up_is_over_the_first_row_and_efficiency_per_gpu():
    rows = [
        {"gpus": 2, "workers": 12, "configs": 9, "visits_s": 30.0, "seconds": 40.0},
        {"gpus": 4, "workers": 24, "configs": 9, "visits_s": 20.0, "seconds": 30.0},
        {"gpus": 2, "workers": 24, "configs": 9, "visits_s": 24.0, "seconds": 34.0},
        {"gpus": 4, "workers": 48, "configs": 9, "visits_s": 20.0, "seconds": 30.0},
    ]
    found = record_scaling.table(rows)
    assert found["speedup"].tolist() == [1.0, 1.5, 1.0, 1.2]
    assert found["efficiency"].tolist() == [1.0, 0.75, 1.0, 0.6]
    assert found["whole"].tolist() == pytest.approx([1.0, 40 / 30, 1.0, 34 / 30])
    assert found["each"].tolist() == [6, 6, 12, 12]
    first, other = np.array([1.0, 2.0, np.inf]), np.array([1.1, 2.2, 3.0])
    (told,) = record_scaling.agreement([first, other])
    assert told == pytest.approx({"spearman": 1.0, "offset": 0.1})

"""Reading every config: what a search can be asked for where readings are noisy."""

import argparse

import numpy as np
import pytest

from kt_lab.cells import Cell, recorded, run_cell
from kt_lab.evidence import cold, dojo_figures, exhausted, sizes
from kt_lab.stats.curves import incumbent_curves
from kt_lab.study import levels

WORKLOAD = "tokens_transpose/16640x1408"


def test_a_row_tells_how_searches_end_that_read_everything(tmp_path, monkeypatch):
    parser = argparse.ArgumentParser()
    exhausted.add_arguments(parser)
    args = parser.parse_args(["--kernels", "tokens_transpose", "--seeds", "2", "--workers", "1"])
    args.out = tmp_path / "exhausted.json"
    entries = [e for e in sizes.landscapes() if (e.workload, e.gpu) == (WORKLOAD, "h200")]
    monkeypatch.setattr(sizes, "landscapes", lambda: entries)
    [row] = exhausted.run(args)["rows"]
    size = recorded(WORKLOAD, "h200").space.size
    ends = []
    for seed in range(2):
        run = run_cell(Cell(WORKLOAD, "h200", "random", "random", (), 16, seed, size, None))
        assert run["config"].nunique() == size  # everything, each once
        ends.append(incumbent_curves(run)["judged_us"].iloc[-1])
    ratios = np.array(ends) / levels(WORKLOAD, gpu="h200")["optimum_us"]
    assert row["worst"] == pytest.approx(ratios.max(), abs=1e-5)
    assert row["median"] == pytest.approx(np.median(ratios), abs=1e-5)
    told = exhausted.by_kernel([row, row | {"p90": row["p90"] ** 3}])
    assert told.loc["tokens_transpose", "p90"] == pytest.approx(row["p90"] ** 2)
    assert "1 workload on h200" in exhausted.report({"rows": [row], "gpu": "h200", "seeds": 2})


def test_every_held_out_workload_was_read_through():
    stored = sizes.landscapes()
    wanted = {e.workload for e in stored if e.kernel in cold.KERNELS and e.gpu == "h200"}
    assert {row["workload"] for row in dojo_figures.stored("exhausted")["rows"]} == wanted

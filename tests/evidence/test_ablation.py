"""Every variant of the flagship is another search, and leaves nothing behind."""

import argparse
import json

import numpy as np
import pandas as pd
import pytest

from kt_lab.cells import Cell, recorded, run_cell
from kt_lab.evidence import ablation
from kt_lab.landscape import landscapes
from kt_lab.search import features, posterior, scout

WORKLOAD = "softmax/256x128256"  # some of its configs fail


def configs(name, *, seed=0, trials=60):
    variant = ablation.VARIANTS[name]
    options = tuple(variant.options.items())
    cell = Cell(WORKLOAD, "h200", name, ablation.WHOLE, options, 16, seed, trials, None)
    with ablation.changed(variant):
        return run_cell(cell)["config"].tolist()


@pytest.fixture(scope="module")
def whole():
    return configs(ablation.WHOLE)


@pytest.mark.parametrize("name", [n for n in ablation.VARIANTS if n != ablation.WHOLE])
def test_a_variant_searches_otherwise_and_is_taken_back(name, whole):
    before = [features._role_sums, features._law_sides, posterior._FEW, scout._FLAT, scout.Scales]
    assert configs(name) != whole
    after = [features._role_sums, features._law_sides, posterior._FEW, scout._FLAT, scout.Scales]
    assert after == before


def test_the_whole_is_what_it_was_after_all_variants(whole):
    assert configs(ablation.WHOLE) == whole
    assert whole[0] == recorded(WORKLOAD, "h200").space.index(
        recorded(WORKLOAD, "h200").space.default
    )


def test_the_workloads_are_recorded_and_none_is_of_the_kernels_that_judge():
    from kt_lab.evidence.cold import KERNELS

    known = {e.workload for e in landscapes() if e.gpu == "h200"}
    assert set(ablation.WORKLOADS) <= known
    assert not {name.partition("/")[0] for name in ablation.WORKLOADS} & set(KERNELS)


def test_variants_are_paired_with_the_whole_by_kernel():
    rows = [
        {
            "gpu": "h200",
            "lanes": 16,
            "kernel": kernel,
            "workload": f"{kernel}/w",
            "searcher": name,
            "seed": seed,
            "budget": 50.0,
            "judged_us": 10.0 * factor**costs * (1 + seed / 100),
            "axis": "spent_trials",
        }
        for kernel, factor in zip("abcdefgh", np.linspace(1.01, 1.08, 8), strict=True)
        for name, costs in (("scout", 0), ("1 start", 1), ("8 starts", -1))
        for seed in range(3)
    ]
    told = {row["variant"]: row for row in ablation.paired(pd.DataFrame(rows))}
    assert told["1 start"]["ratio"] == pytest.approx(1 / told["8 starts"]["ratio"])
    assert told["1 start"]["ratio"] == pytest.approx(
        float(np.exp(np.log(np.linspace(1.01, 1.08, 8)).mean()))
    )
    assert told["1 start"]["low"] <= told["1 start"]["ratio"] <= told["1 start"]["high"]
    assert (told["1 start"]["worse"], told["8 starts"]["worse"]) == (8, 0)
    assert told["1 start"]["p_holm"] == pytest.approx(2 * 2 / 2**8)


def test_a_short_ablation_is_stored_told_and_not_searched_again(tmp_path, monkeypatch):
    parser = argparse.ArgumentParser()
    ablation.add_arguments(parser)
    asked = "--workloads softmax/4096x640 rope/4x4096x32x8x128 --seeds 1 --trials 50 --workers 1"
    args = parser.parse_args([*asked.split(), "--variants", "scout", "uniform starts"])
    args.out = tmp_path / "ablation.json"
    first = ablation.run(args)
    assert "starts are drawn uniformly" in ablation.report(first)
    assert {row["budget"] for row in first["paired"]} == {25.0, 30.0, 50.0}
    close = ablation.reached(first).set_index("variant")
    for name in args.variants:
        seconds = [row["runs"]["close_s"][args.variants.index(name)] for row in first["rows"]]
        assert close.loc[name, "close"] == np.mean([each is not None for each in seconds])
    assert "name both" in ablation.report(first | {"paired": []})
    monkeypatch.setattr(ablation, "_row", lambda *_: pytest.fail("searched again"))
    assert (
        json.loads(json.dumps(ablation.run(args)["rows"]))
        == json.loads(args.out.read_text())["rows"]
    )

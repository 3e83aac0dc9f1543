"""The evidence of repeated tunings: lists, costs, totals, families, and a stored result."""

import argparse
import json

import numpy as np
import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence import families, tuners
from kt_lab.evidence.repeated import distinct
from kt_lab.kernels import get_workload
from kt_lab.kernels.moe_spaces import published
from kt_lab.landscape import load_landscape
from tests.moe_landscapes import moe_landscape
from tests.runners.tables import config, make_landscape

SHAPES = (
    "jagged_rowwise/16640x8192x16x2x1",
    "jagged_rowwise/32768x2048x32x1x1",
    "jagged_rowwise/16640x1408x16x4x1",
    "moe_weights_atomic/1x8192x5120",
)


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    tuners.add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for seed, key in enumerate(SHAPES):
        made = moe_landscape(get_workload(key), seed=seed)
        made.save(root / "landscapes" / made.kernel / made.gpu / key.partition("/")[2])
    return root


@pytest.fixture(scope="module")
def result(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KT_LAB_DATA", str(data))
        return tuners.run(parsed("--repeats", "4", "--workers", "1"))


def counts(landscape):
    return {name: len(listed) for name, _, listed in tuners.lists_of(landscape)}


def test_lists_are_the_published_spaces_with_and_without_duplicates():
    jagged = moe_landscape(get_workload(SHAPES[0]))
    assert counts(jagged) == {
        "pr3952": 16,
        "pr3952, distinct": 8,
        "pr3972": 3,
        "pr4113": 36,
        "pr4113, distinct": 18,
        "wide": len(jagged.table),
    }
    atomic = moe_landscape(get_workload(SHAPES[3]))
    found = counts(atomic)
    assert (found["pr3952_first"], found["pr3952_first, distinct"]) == (8, 4)
    assert (found["pr3952"], found["pr3952, distinct"]) == (24, 12)
    incumbents = {name: incumbent for name, incumbent, _ in tuners.lists_of(atomic)}
    assert incumbents["pr3952_acq_rel"]["SEM"] == "acq_rel"
    assert incumbents["pr3952"] == published("moe_weights_atomic", "original")[0]
    for name, incumbent, listed in tuners.lists_of(atomic):
        assert incumbent in listed, name
        if "distinct" in name:
            assert distinct(atomic, listed) == listed


def test_other_kernels_have_lists_as_authors_write_them():
    made = load_landscape("rms_norm/16x8192", gpu="h200")
    found = counts(made)
    assert [found[f"author {n}"] for n in (8, 16, 24, 36, 45)] == [8, 16, 24, 36, 45]
    assert found["wide"] == len(made.table)


def test_cold_cost_counts_a_specialisation_once_and_lanes_share():
    made = make_landscape(contention=None)
    listed = [config(at) for at in (0, 1, 2, 3)]
    found = tuners.cold_cost(made, listed, incumbent=config(0), lanes=2)
    assert found == {"single_compile_s": 1.0, "compile_s": 4.0, "lanes_compile_s": 2.0}
    table = made.table.reset_index(drop=True).assign(specialisation="one", compile_workers=1)
    made = type(made)(table, made.manifest | {"contention": {"a": 0.5, "p": 1.0}})
    found = tuners.cold_cost(made, listed, incumbent=config(0))
    assert found == {"single_compile_s": 1.0, "compile_s": 1.0, "lanes_compile_s": 1.0}


def test_a_result_is_small_and_its_totals_are_those_of_its_lines(result):
    text = json.dumps(result, indent=1)
    assert len(text) < 40_000
    table = tuners.read_table(result["table"])
    assert table.groupby(["workload", "gpu"]).ngroups == result["shapes"] == 4
    assert len(table) == 3 * 6 + 9
    plain = table[~table["list"].str.endswith((", distinct", "wide"))]
    total = result["totals"][0]
    assert (total["lists"], total["tuned"]) == ("as published", len(plain))
    for tuner in ("naive", "guarded"):
        told = total[tuner]
        assert told["tunings"] == 4 * len(plain)
        assert told["regressions"] == plain[f"{tuner}_regressions"].sum()
        assert told["agreement"] == pytest.approx(plain[f"{tuner}_agreement"].mean(), rel=5e-3)
        gain = np.log1p(plain[f"{tuner}_true_gain"]).sum()
        oracle = np.log1p(plain["oracle_gain"]).sum()
        assert told["kept"] == pytest.approx(gain / oracle, rel=1e-2)
        assert np.log1p(told["true_gain"]) * len(plain) == pytest.approx(gain, rel=1e-2)
        held = plain.dropna(subset="naive_apparent_gain")  # for both: the naive one has no other
        promised = np.log1p(held[f"{tuner}_apparent_gain"]).mean()
        assert np.log1p(told["apparent_gain"]) == pytest.approx(promised, rel=1e-2)
        assert total[f"other_{tuner}"]["tunings"] == 4 * len(plain)
    labels = [row["lists"] for row in result["totals"]]
    assert {"16", "16, distinct", "24", "24, fenced", "24, fenced, distinct"} <= set(labels)
    report = tuners.report(result)
    assert "as published: no regression: yes" in report
    assert "tuned on one family and run on another" in report


def test_the_guarded_tuner_does_what_is_asked_on_known_landscapes(result):
    assert all(result["targets"]["as published"].values())
    naive, guarded = (result["totals"][0][t] for t in ("naive", "guarded"))
    assert guarded["agreement"] >= 0.95 > naive["agreement"]
    assert abs(guarded["confirmed_gain"] - guarded["true_gain"]) < 0.005
    assert result["totals"][0]["cold_s"]["compile_s"] > 4 * 0.5


def test_a_family_is_named_by_its_source():
    assert families.family("Llama 4, 16 experts: benchmarked") == "Llama 4"
    assert families.family("DeepSeek-MoE-16B width, one expert") == "DeepSeek-MoE-16B"
    assert families.family("somebody's shape, decoded") == "somebody's shape"


def test_what_one_family_wants_costs_another_and_a_duel_on_its_shape_prevents_it(result):
    table = tuners.read_table(result["families"])
    assert set(table["list"]) == {"wide", "pr3952"}
    assert set(table["kernel"]) == {"jagged_rowwise"}, "one shape is no two families"
    assert len(table) == 2 * 3 * 3
    away = table[table["tuned"] != table["ran"]]
    assert (away["guarded_worst"] <= away["loss_worst"] + 1e-9).all()
    own = table[table["tuned"] == table["ran"]]
    assert (own["loss_worst"] < 0.01).all()


def test_a_tuner_that_keeps_nothing_of_a_gain_misses_its_target():
    found = {"regressions": 0, "kept": 0.0, "agreement": 1.0}
    total = {"guarded": found, "timing_ratio": {"geomean": 0.1}}
    assert [*tuners._targets(total).values()] == [True, False, True, True]
    total["guarded"]["kept"] = None  # there was none to keep
    assert all(tuners._targets(total).values())


def test_some_shapes_do_not_take_the_place_of_all(data, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(data))
    whole = data / "evidence" / "repeated.json"
    given = parsed("--workloads", SHAPES[0], "--repeats", "1", "--workers", "1")
    with pytest.raises(UsageError, match="need a file of their own, --out"):
        tuners.run(argparse.Namespace(**vars(given), out=whole))
    assert tuners.run(argparse.Namespace(**vars(given), out=data / "some.json"))["shapes"] == 1
    with pytest.raises(UsageError, match="need --repeats >= 1, got 0"):
        tuners.run(parsed("--repeats", "0"))


def test_nothing_recorded_is_told(data, monkeypatch):
    monkeypatch.setenv("KT_LAB_DATA", str(data))
    with pytest.raises(UsageError, match="recorded: jagged_rowwise, moe_weights_atomic"):
        tuners.run(parsed("--kernels", "softmax"))

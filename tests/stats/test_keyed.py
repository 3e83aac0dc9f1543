import numpy as np
import pandas as pd
import pytest

from kt_lab.errors import UsageError
from kt_lab.keys import Key
from kt_lab.landscape import Landscape, load_landscape
from kt_lab.space import ParameterSpace, PowerOfTwo
from kt_lab.stats.keyed import (
    compare_keys,
    crossings,
    key_values,
    regret_matrix,
    shared_picks,
)
from tests.runners.tables import config
from tests.stats.exact_landscapes import RISING, exact

FALLING = RISING[::-1]  # the best is (128, 1)


def pairs(table):
    return regret_matrix(table).set_index(["visit", "tuned", "workload"])


def test_a_pick_costs_on_another_workload_what_it_reads_there():
    found = pairs(crossings([exact(RISING), exact(FALLING, "b")]))
    for visit in range(2):
        here, there = "a on test", "b on test"
        assert found.loc[(visit, here, here), "regret"] == 0
        across = found.loc[(visit, here, there)]
        assert across["config"] == config(0)
        assert (across["status"], across["regret"]) == ("ok", pytest.approx(np.exp(0.3) - 1))


def test_a_landscape_without_readings_is_told():
    table = exact(RISING).table.assign(status="compile_error")
    empty = [[] for _ in range(len(table))]
    silent = Landscape(table.assign(samples_us=empty, visit=empty), exact(RISING, "b").manifest)
    with pytest.raises(UsageError, match=r"got none of \['b on test'\]; leave them out"):
        crossings([exact(RISING), silent])


def test_a_pick_is_judged_by_the_visit_that_it_did_not_read():
    lucky, truth = np.full(16, 2.0), np.full(16, 2.0)
    lucky[5], truth[5] = 1.0, 4.0  # the first visit flatters config 5
    truth[7] = 1.5
    found = pairs(crossings([exact(lucky, other=truth), exact(np.full(16, 3.0), "b")]))
    here = ("a on test", "a on test")
    assert found.loc[(0, *here), "config"] == config(5)
    assert found.loc[(1, *here), "config"] == config(7)
    # pooled medians: 1.0 and 4.0 -> 2.5 of config 5, 1.75 of config 7, 2.0 elsewhere
    assert found.loc[(0, *here), "optimum_regret"] == pytest.approx(4.0 / 1.75 - 1)
    assert found.loc[(1, *here), "optimum_regret"] == pytest.approx(2.0 / 1.75 - 1)
    across = found.loc[(1, "b on test", "a on test")]  # config 0, judged 2.0; own pick 2.0
    assert across["regret"] == 0


def test_what_failed_and_what_is_not_held_are_told_apart():
    failing = FALLING.copy()
    failing[0, 0] = np.nan
    narrow = ParameterSpace([PowerOfTwo("BLOCK", 32, 64)], default={"BLOCK": 32})
    made = exact(RISING, "narrow")
    table = made.table.reset_index(drop=True).iloc[[4, 8]].drop(columns="p_num_stages")
    table["p_BLOCK"] = [0, 1]
    facts = {"space": narrow.describe(), "fingerprint": narrow.fingerprint}
    small = Landscape(pd.DataFrame(table), made.manifest | facts)
    found = pairs(crossings([exact(RISING), exact(failing, "b"), small])).xs(0)
    failed = found.loc[("a on test", "b on test")]
    assert (failed["status"], failed["regret"]) == ("failed", np.inf)
    absent = found.loc[("a on test", "narrow on test")]  # BLOCK = 16
    assert absent["status"] == "not held"
    assert np.isnan(absent["regret"])
    carried = found.loc[("narrow on test", "a on test")]  # with a's default num_stages
    assert carried["regret"] == pytest.approx(np.exp(0.1) - 1)


def test_each_rule_shares_its_own_pick():
    middle = np.full((4, 4), 2.0)
    middle[3, 3] = 1.1
    first, second, third = middle.copy(), middle.copy(), middle.copy()
    first[0, 0], second[1, 1], third[1, 1] = 1.0, 1.0, 1.0
    first[1, 1] = 1.5
    table = crossings([exact(x, n) for x, n in ((first, "a"), (second, "b"), (third, "c"))])
    values = dict.fromkeys(table["workload"].unique(), ())
    picks = {
        rule: shared_picks(table, values, rule=rule).query("visit == 0")
        for rule in ("first", "geomean", "minimax")
    }
    assert set(picks["first"]["config"]) == {config(0)}
    assert picks["first"]["regret"].tolist() == pytest.approx([0, 1, 1])
    assert set(picks["minimax"]["config"]) == {config(15)}
    assert set(picks["geomean"]["config"]) == {config(15)}, "1.1 ** 3 < 1.5"
    assert picks["geomean"]["sharing"].eq(3).all()


def test_keys_with_and_without_an_extent_are_compared():
    found = [exact(RISING, "a", E=1, N=64), exact(FALLING, "b", E=128, N=64)]
    table = crossings(found)
    keys = {"N": key_values(found, Key(("N",))), "E, N": key_values(found, Key(("E", "N")))}
    rows = compare_keys(table, keys).set_index("key")
    short, whole = rows.loc["N"], rows.loc["E, N"]
    assert (short["tunings"], whole["tunings"]) == (1, 2)
    assert (whole["regret"], whole["worst"]) == (0, 0)
    assert short["regret"] == pytest.approx(np.exp(0.15) - 1)
    assert (short["worst"], short["worst_on"]) == (pytest.approx(np.exp(0.3) - 1), "b on test")
    assert short["failed"] == short["not_held"] == 0
    gpus = [exact(RISING, "a", gpu="x"), exact(FALLING, "a", gpu="y")]
    assert set(key_values(gpus, Key(("gpu",))).values()) == {("x",), ("y",)}


def test_what_a_recorded_kernel_loses_without_its_batch():
    names = ("16x14336", "2048x4864", "8192x14336")
    found = [load_landscape(f"swiglu/{name}", gpu="h200") for name in names]
    table = crossings(found)
    keys = {str(t): key_values(found, Key(t)) for t in (("M", "N"), ("N",))}
    for rule in ("first", "minimax"):
        rows = compare_keys(table, keys, rule=rule)
        assert rows["tunings"].tolist() == [3, 2]
        assert rows["regret"].iloc[0] == rows["failed"].iloc[0] == 0
    lost = shared_picks(table, keys["('N',)"])
    assert set(lost.loc[lost["status"] != "ok", "workload"]) <= {"8192x14336 on h200"}

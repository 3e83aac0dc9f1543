"""The flagship on other tuners' landscapes: read from their files, searched, told."""

import argparse
import json

import numpy as np
import pytest

from kt_lab.evidence import foreign
from kt_lab.evidence.resuming import columns, rows_of
from kt_lab.formats import write_cache, write_t4
from kt_lab.landscape import load_landscape

WORKLOAD = "tokens_transpose/16640x1408"
SEARCHERS = ("scout", "random")


def asked(folder, *more):
    parser = argparse.ArgumentParser()
    foreign.add_arguments(parser)
    effort = ["--searchers", *SEARCHERS, "--seeds", "3", "--trials", "30", "--workers", "1"]
    args = parser.parse_args([*map(str, more), *effort])
    args.out = folder / "foreign.json"
    return args


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    path = write_cache(load_landscape(WORKLOAD), folder / "other.json")
    return folder, path, json.loads(json.dumps(foreign.run(asked(folder, path))))


def test_a_file_of_another_tuner_is_searched_and_named(stored):
    (row,) = stored[2]["rows"]
    landscape = load_landscape(WORKLOAD)
    assert (row["workload"], row["file"]) == (WORKLOAD, "other.json")
    assert row["configs"] == len(landscape.table)
    assert row["failed"] == int((landscape.status != "ok").sum())
    assert row["optimum_us"] == pytest.approx(landscape.optimum_us, rel=0.01)
    assert len(rows_of(row["runs"])) == len(SEARCHERS) * 3


def test_the_table_tells_every_searcher_and_is_what_the_runs_hold(stored):
    result = stored[2]
    table = foreign.table(result)
    assert set(table["searcher"]) == set(SEARCHERS)
    assert set(table["budget"]) == {25, 30}
    runs = [run_["judged_us"] for run_ in rows_of(result["rows"][0]["runs"])]  # at 25, 30, ...
    at = table[(table["searcher"] == "random") & (table["budget"] == 30)].iloc[0]
    ratios = sorted(us[1] / result["rows"][0]["optimum_us"] for us in runs[3:])  # random's
    assert [at["median"], at["worst"]] == pytest.approx([ratios[1], ratios[2]])
    assert (at["low"] <= at["median"]) & (at["median"] <= at["high"])
    logs = np.log(np.array(runs, float)[:, 1]).reshape(2, 3)
    best = SEARCHERS[int(np.argmin(logs.mean(axis=1)))]
    assert table["searcher"].iloc[0] == best  # on average in the end
    text = foreign.report(result)
    assert "Scout" in text
    assert "| 30 trials | p90 |" in text
    assert "3 seeds" in text


def test_a_stored_file_is_not_searched_again_and_another_is(stored, monkeypatch):
    folder, path, result = stored
    monkeypatch.setattr(foreign, "_row", lambda *_: pytest.fail("searched again"))
    again = foreign.run(asked(folder, path))
    assert json.loads(json.dumps(again["rows"])) == result["rows"]
    other = write_t4(load_landscape(WORKLOAD), folder / "results.json")
    with pytest.raises(pytest.fail.Exception, match="searched again"):
        foreign.run(asked(folder, other, "--format", "t4"))


def test_runs_that_find_nothing_are_slow_and_never_close(stored):
    result = json.loads(json.dumps(stored[2]))
    row = result["rows"][0]
    runs = rows_of(row["runs"])
    for run_ in runs[:3]:
        run_ |= {"judged_us": [None] * 5, "close_s": None}
    row["runs"] = columns(runs)
    own = foreign.table(result).set_index(["searcher", "budget"]).loc["scout"]
    assert np.isinf(own["median"]).all()
    assert (own["close"] == 0).all()
    assert np.isinf(own["close_s"]).all()

"""Results are stored row by row, small and readable, and a stopped command goes on."""

import json

from kt_lab.evidence.resuming import Rows, as_text, columns, rows_of, short


def test_a_result_is_json_with_a_line_for_every_row():
    result = {
        "gpu": "h200",
        "seeds": 8,
        "rows": [{"workload": "softmax/4x6", "us": [1.5, None]}, {"workload": "b", "us": []}],
        "none": [],
        "plain": [1, 2],
    }
    text = as_text(result)
    assert json.loads(text) == result
    assert [line for line in text.splitlines() if "softmax" in line] == [
        '  {"workload":"softmax/4x6","us":[1.5,null]},'
    ]
    assert len(text.splitlines()) == 2 + 4 + 2 + 2


def test_numbers_are_stored_short_and_what_is_none_is_null():
    assert [short(us, 4) for us in (1234.56, 0.000123456, None, float("inf"))] == [
        1235.0,
        0.0001235,
        None,
        None,
    ]


def test_fractions_of_a_row_are_short_and_whole_numbers_keep_all_digits(tmp_path):
    rows = Rows(tmp_path / "x.json", {}, {}, again=False)
    nested = {"us": [1.23456789012, None], "size": 123456789012.0, "n": 123456789012}
    rows.once({"op": "a"}, lambda: {"read": nested, "name": "1.23456789012"})
    [row] = rows.result["rows"]
    assert row["read"] == nested | {"us": [1.234568, None]}
    assert row["name"] == "1.23456789012"
    assert json.loads((tmp_path / "x.json").read_text())["rows"] == [row]


def test_rows_come_back_from_their_columns():
    rows = [{"seed": 0, "us": [1.5, None]}, {"seed": 1, "us": []}]
    assert columns(rows) == {"seed": [0, 1], "us": [[1.5, None], []]}
    assert rows_of(columns(rows)) == rows
    assert rows_of(columns([])) == []


def test_numbers_that_come_again_and_again_are_stored_once():
    rows = [{"seed": seed, "us": [48.125, 40.96, None, 48.125]} for seed in range(5)]
    told = columns(rows)
    assert told["us"] == {"values": [48.125, 40.96, None], "at": [[0, 1, 2, 0]] * 5}
    assert rows_of(json.loads(json.dumps(told))) == rows


def test_what_is_stored_is_not_measured_again_and_other_facts_begin_anew(tmp_path):
    path, asked = tmp_path / "rows.json", []

    def measure(key):
        asked.append(key)
        return {"us": 1.0}

    for facts in ({"seeds": 1}, {"seeds": 1}, {"seeds": 2}):
        rows = Rows(path, facts, {"commit": "c"}, again=False)
        for key in ("a", "b"):
            rows.once({"workload": key}, lambda k=key: measure(k))
        assert rows.has({"workload": "a"})
        assert not rows.has({"workload": "c"})
    assert asked == ["a", "b", "a", "b"]
    assert json.loads(path.read_text()) == rows.result


def test_rows_that_are_measured_once_more_take_their_places_and_others_stay(tmp_path):
    path = tmp_path / "rows.json"
    rows = Rows(path, {}, {"commit": "c"}, again=False)
    for name in "abc":
        rows.once({"workload": name}, lambda: {"us": 1.0, "samples": [1.0]})
    again = Rows(path, {}, {"commit": "d"}, again=True)
    assert not again.has({"workload": "b"})
    for us in (2.0, 3.0):  # the second time it is there
        again.once({"workload": "b"}, lambda us=us: {"us": us})
    stored = json.loads(path.read_text())
    assert [(r["workload"], r["us"]) for r in stored["rows"]] == [
        ("a", 1.0),
        ("b", 2.0),
        ("c", 1.0),
    ]
    assert (stored["provenance"], stored["resumed"]) == ({"commit": "d"}, [{"commit": "c"}])


def test_provenances_that_differ_in_time_only_are_kept_once(tmp_path):
    path = tmp_path / "rows.json"
    for commit, utc in (("c", "1"), ("c", "2"), ("d", "3"), ("c", "4"), ("d", "5")):
        rows = Rows(path, {}, {"utc": utc, "commit": commit}, again=False)
        rows.once({"workload": utc}, dict)
    stored = json.loads(path.read_text())
    assert stored["provenance"] == {"utc": "5", "commit": "d"}
    assert [(p["commit"], p["utc"]) for p in stored["resumed"]] == [("c", "1"), ("d", "3")]


def test_a_row_may_tell_its_own_seconds(tmp_path):
    rows = Rows(tmp_path / "rows.json", {}, {}, again=False)
    rows.once({"workload": "a"}, lambda: {"seconds": 42.0})
    assert rows.result["rows"] == [{"seconds": 42.0, "workload": "a"}]


def test_rows_that_were_done_side_by_side_are_put_in_order(tmp_path):
    rows = Rows(tmp_path / "rows.json", {}, {}, again=False)
    for name in "cxab":
        rows.once({"workload": name, "seed": 0}, lambda: {"points": [[1, None]]})
    rows.in_order([{"workload": name, "seed": 0} for name in "abc"])
    assert [row["workload"] for row in rows.result["rows"]] == list("xabc")

"""How more workers speed an experiment up: the arithmetic, the same results, and the figure."""

import argparse

import pytest

from kt_lab.evidence import scaling

ROWS = [
    {"way": way, "workers": n, "start_s": 1.0, "seconds": s, "runs": 8, "trials": 80, "same": True}
    for way, n, s in [
        ("in process", 1, 12.0),
        ("process pool", 1, 12.0),
        ("process pool", 2, 8.0),
        ("Dask", 2, 6.0),
    ]
]


def test_speed_up_and_efficiency_are_of_the_first_row():
    table = scaling.table(ROWS)
    assert table["speedup"].tolist() == [1.0, 1.0, 1.5, 2.0]
    assert table["efficiency"].tolist() == [1.0, 1.0, 0.75, 1.0]


def test_every_way_is_run_and_gives_the_same_results():
    parser = argparse.ArgumentParser()
    scaling.add_arguments(parser)
    given = ["--workloads", "softmax/4096x640", "--searchers", "random", "--seeds", "4"]
    result = scaling.run(parser.parse_args([*given, "--trials", "10", "--workers", "2"]))
    rows = result["rows"]
    assert [(row["way"], row["workers"]) for row in rows] == [
        ("in process", 1),
        ("process pool", 2),
        ("Dask", 2),
    ]
    assert all(row["same"] for row in rows)
    assert {row["trials"] for row in rows} == {40}
    assert rows[0]["processes"] == 1
    assert scaling.report(result).count("same results") == 3


def test_the_figure_draws_a_line_for_each_way_and_counts_what_is_not_the_same():
    drawing = scaling.figure(scaling.table(ROWS))
    (ax,) = drawing.figure.axes
    labels = [line.get_label() for line in ax.get_lines()]
    assert [name for name in labels if not name.startswith("_")] == [
        "in process",
        "process pool",
        "Dask",
    ]
    assert "Dask with 2 workers 2.00 (100% of perfect)" in drawing.caption
    assert "All results are the same" in drawing.caption
    other = scaling.figure(scaling.table([*ROWS[:3], ROWS[3] | {"same": False}]))
    assert "All results DIFFER" in other.caption
    with pytest.raises(ValueError, match="speedup"):
        scaling.figure(scaling.table(ROWS).drop(columns="speedup"))

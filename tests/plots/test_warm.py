"""The figure of warm starts: its lines, and what the caption counts."""

import pytest
from matplotlib import pyplot

from kt_lab.errors import UsageError
from kt_lab.evidence.warm_figures import searched, table_of, warm_figure
from kt_lab.evidence.warm_tables import summary


def result():
    rows = [
        {
            "workload": f"{kernel}/{number}",
            "kernel": kernel,
            "gpu": "h200",
            "mode": mode,
            "ratios": [scale * 2.0, scale],
        }
        for mode, scale, kernels in (("cold", 1.5, "ab"), ("twin", 1.0, "a"))
        for kernel in kernels
        for number in range(2)
    ]
    return {"budgets": [1, 10], "rows": rows, "summary": summary(rows), "seeds": 3}


def test_a_line_per_mode_on_two_logarithmic_panels(tmp_path):
    drawing = warm_figure(result())
    left, right = drawing.figure.axes
    drawn = [
        line.get_ydata().tolist() for line in left.lines if line.get_marker() not in ("", "None")
    ]
    assert drawn == [pytest.approx([200.0, 50.0]), pytest.approx([100.0, 0.3])]
    assert left.get_xscale() == left.get_yscale() == right.get_yscale() == "log"
    assert "on 2 landscapes of 1 kernel (H200), searched" in drawing.caption
    assert "less than 0.3 % above is drawn on the lower edge" in drawing.caption
    assert "cold 3.00 to 1.500 and twin (same shape, other GPU) 2.00 to 1.000" in drawing.caption
    paths = drawing.save("warm", directory=tmp_path)
    assert all(path.stat().st_size > 100 for path in paths.values())
    pyplot.close(drawing.figure)


def test_the_table_counts_what_each_mode_searched():
    found = result()
    found["rows"] += [row | {"mode": "kernel"} for row in found["rows"] if row["mode"] == "cold"]
    counts = table_of(found).drop_duplicates("mode").set_index("mode")
    assert counts["landscapes"].to_dict() == {"cold": 4, "twin": 2, "kernel": 4}
    assert counts["kernels"].to_dict() == {"cold": 2, "twin": 1, "kernel": 2}


def test_landscapes_that_only_cold_searches_have_are_left_out():
    found = result()
    alone = next(row for row in found["rows"] if row["kernel"] == "b")
    alone["ratios"] = [9.0, 9.0]
    table = table_of(found).set_index(["mode", "budget"])
    assert table.loc[("cold", 10), ["worst", "landscapes"]].tolist() == [1.5, 2]
    cold = found | {"rows": [row for row in found["rows"] if row["mode"] == "cold"]}
    assert set(table_of(cold)["landscapes"]) == {4}


def test_a_searcher_that_does_not_read_its_prior_is_refused():
    with pytest.raises(UsageError, match="got 'random'; choose one that does: scout"):
        searched("rope/4x4096x32x8x128", "h200", searcher="random", seeds=1, trials=2)

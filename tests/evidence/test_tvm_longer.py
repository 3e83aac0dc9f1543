"""More trials of MetaSchedule beside fewer: what may be joined, and what may be claimed."""

import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence.tvm_longer import longer_lines, longer_means, longer_table, longest


def row(workload, best_us, tuned_us, trials, *, threads=1, size="cache"):
    paths = {"best": {"min_us": best_us}, "tvm_tuned": {"min_us": tuned_us}}
    about = {"workload": workload, "threads": threads, "operator": workload.partition("/")[0]}
    about |= {"chain": False, "size": size, "tuning": {"trials": trials}}
    return about | {"paths": {name: path | {"disturbed": False} for name, path in paths.items()}}


@pytest.fixture
def result():
    rows = [
        row("softmax/1", 1.0, 2.0, 64),
        row("softmax/1", 1.0, 2.0, 64, threads=2),
        row("multiply/1", 4.0, 5.0, 1),  # all that MetaSchedule knows
        row("multiply/1", 4.0, 5.0, 1, threads=2),
        row("matmul/1", 3.0, 3.0, 0),  # MetaSchedule crashed, which says nothing
        row("softmax/9", 1.0, 4.0, 64, size="memory"),
        row("matmul/9", 1.0, 4.0, 64, size="memory"),
    ]
    return {"trials": 64, "rows": rows}


@pytest.fixture
def longer():
    rows = [row("softmax/1", 0.9, 1.0, 256), row("softmax/9", 3.0, 2.0, 256, size="memory")]
    return {"trials": 256, "rows": rows}


def test_what_knows_no_more_stands_beside_what_was_given_more(result, longer):
    keys = [(r["workload"], r["threads"], r["tuning"]["trials"]) for r in longest(result, longer)]
    assert keys == [("softmax/1", 1, 256), ("softmax/9", 1, 256), ("multiply/1", 1, 1)]
    table = longer_table(result, longer).set_index("workload")
    assert table.loc["softmax/1", ["trials", "more_trials"]].tolist() == [64, 256]
    assert table.loc["softmax/1", ["ratio", "more_ratio"]].tolist() == [0.5, 0.9]
    assert table.loc["multiply/1", ["ratio", "more_ratio"]].tolist() == [0.8, 0.8]


def test_a_win_is_claimed_where_every_workload_of_a_size_is_in(result, longer):
    result["rows"] = [r for r in result["rows"] if r["workload"] != "matmul/1"]
    means = {mean["size"]: mean for mean in longer_means(result, longer)}
    assert means["cache"]["ratio"] == pytest.approx((0.9 * 0.8) ** 0.5)
    assert means["cache"]["before"] == pytest.approx((0.5 * 0.8) ** 0.5)
    assert (means["cache"]["workloads"], means["cache"]["of"]) == (2, 2)
    assert (means["memory"]["workloads"], means["memory"]["of"]) == (1, 2)
    text = longer_lines([result], longer)
    assert "all 2 workloads of cache size on 1 thread 0.85 [0.80, 0.90], 0 lost, a win" in text
    assert (
        "1 of 2 workloads of memory size on 1 thread so far, 1 lost, which have no mean yet"
        in text
    )
    assert "| `softmax/1` | 1 | 64 | 0.50 | 256 | 0.90 |" in text
    longer["rows"][0]["paths"]["best"]["min_us"] = 1.3
    assert "a win" not in longer_lines([result], longer)


def test_a_size_that_lacks_a_workload_is_no_win(result, longer):
    text = longer_lines([result], longer)  # matmul/1 crashed
    assert "2 of 3 workloads of cache size on 1 thread so far" in text
    assert "a win" not in text


def test_too_few_trials_win_nothing(result, longer):
    result["rows"] = [r for r in result["rows"] if r["workload"] != "matmul/1"]
    text = longer_lines([result], longer | {"trials": 128})
    assert "0.85 [0.80, 0.90], 0 lost (" in text
    assert "a win" not in text


def test_where_tvm_crashed_in_either_nothing_is_compared(result, longer):
    crashed = {"paths": {"best": {"min_us": 1.0, "disturbed": False}}, "tuning": {"trials": 0}}
    longer["rows"].append(row("matmul/1", 1.0, 9.0, 256))
    result["rows"][4] |= crashed  # the same workload
    longer["rows"][1] |= crashed
    assert set(longer_table(result, longer)["workload"]) == {"softmax/1", "multiply/1"}
    assert [mean["size"] for mean in longer_means(result, longer)] == ["cache"]
    assert "2 of 3 workloads of cache size" in longer_lines([result], longer)


def on(cpu, result, *, slower=1.0):
    """The result as another CPU's: what LLVM calls it, and how much slower TVM is there."""
    rows = []
    for told in result["rows"]:
        tuned = told["paths"]["tvm_tuned"]
        paths = told["paths"] | {"tvm_tuned": tuned | {"min_us": slower * tuned["min_us"]}}
        rows.append(told | {"tuning": told["tuning"] | {"target": {"mcpu": cpu}}, "paths": paths})
    return result | {"rows": rows}


def test_rows_of_two_cpus_are_not_joined(result, longer):
    longer = on("rocketlake", longer)
    other, own = on("znver5", result, slower=2.0), on("rocketlake", result)
    for told in (longest, longer_table, longer_means):
        with pytest.raises(UsageError, match=r"of the same CPU, got rows of rocketlake, znver5"):
            told(other, longer)
    mixed = own | {"rows": [*own["rows"][:-1], other["rows"][-1]]}
    with pytest.raises(UsageError, match=r"rocketlake, znver5; give the stored result"):
        longer_means(mixed, longer)
    with pytest.raises(UsageError, match="of the same CPU"):
        longer_lines([other], longer)
    text = longer_lines([other, own], longer)
    assert "on a CPU that LLVM calls rocketlake" in text
    assert "| `multiply/1` | 1 | 1 | 0.80 | 1 | 0.80 |" in text  # 0.40 on the other


def test_a_search_that_crashed_names_no_cpu_and_hinders_nothing(result, longer):
    result, longer = on("rocketlake", result), on("rocketlake", longer)
    del result["rows"][4]["tuning"]["target"]
    assert len(longest(result, longer)) == 3


def test_what_more_trials_alone_were_given_has_no_row_before(result, longer):
    result["rows"] = [r for r in result["rows"] if r["size"] == "cache"]
    result["rows"].append(row("softmax/9", 1.0, 4.0, 64, threads=2, size="memory"))
    table = longer_table(result, longer).set_index("workload")
    assert table.loc["softmax/9", ["trials", "ratio"]].isna().all()
    assert table.loc["softmax/9", "more_ratio"] == 1.5
    means = {mean["size"]: mean for mean in longer_means(result, longer)}
    assert (means["memory"]["workloads"], means["memory"]["of"]) == (1, 1)
    assert means["memory"]["before"] is None
    text = longer_lines([result], longer)
    assert "all 1 workloads of memory size on 1 thread 1.50 [1.50, 1.50], 1 lost. " in text
    assert "| `softmax/9` | 1 |  |  | 256 | 1.50 |" in text

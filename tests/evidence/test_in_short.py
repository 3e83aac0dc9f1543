"""The README's first findings: what is stored, and no more."""

import json
import shutil

import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence import in_short
from kt_lab.evidence.helion_field_tables import AS_LONG, DEFAULT
from kt_lab.landscape import data_directory


@pytest.fixture
def stored(tmp_path):
    """A copy of the stored results, which a test may change."""
    colds = ("cold", "cold-unseen", "cold-captured")
    tvms = ("tvm", "tvm-xeon", "tvm-256", "tvm-zen4", "tvm-zen4-256", "tvm-zen2", "tvm-zen2-256")
    fields = ("helion_field", "helion_field-h100")
    for name in (*colds, "warm_live", "live", "large", "large-judged", *fields, *tvms):
        shutil.copy(data_directory() / "evidence" / f"{name}.json", tmp_path)
    return tmp_path


def change(folder, name, change_):
    path = folder / f"{name}.json"
    result = json.loads(path.read_text())
    change_(result)
    path.write_text(json.dumps(result))


def test_what_nobody_knew_is_told_of_its_own_runs(stored):
    def doubled(result):
        for mean in result["means"]:
            if (mean["searcher"], mean["budget"]) == ("scout", 200):
                mean["estimate"] = 2.0

    before = in_short.block(stored)
    assert "| since: 13 workloads of 3 kernels | Scout |" in before
    change(stored, "cold-unseen", doubled)
    after = in_short.block(stored)
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line[:9] for line in changed] == ["| since: "]
    assert changed[0].endswith("| 2.000 |")


def test_a_searcher_that_found_nothing_in_time_is_told_as_such(stored):
    lines = in_short.block(stored).splitlines()
    (first,) = [at for at, line in enumerate(lines) if "| captured: " in line]
    assert lines[first + 1].startswith("|  | TPE (Optuna) | inf | ")
    assert "inf: some run had found nothing yet that works" in in_short.block(stored)


def test_a_win_over_tvm_is_claimed_only_of_enough_programs(stored):
    change(stored, "tvm", lambda result: result.update(trials=64))
    assert "64 are too few to claim a win over TVM" in in_short.block(stored)
    change(stored, "tvm", lambda result: result.update(trials=256))
    assert "| znver5 | 256 | cache and memory |" in in_short.block(stored)
    assert "too few" not in in_short.block(stored)


def test_more_programs_are_told_where_every_workload_had_them(stored):
    told = "| rocketlake | up to 256 | cache | 1 | 14 |"
    assert told in in_short.block(stored)

    def one_fewer(result):
        result["rows"] = [row for row in result["rows"] if row["operator"] != "softmax"]

    change(stored, "tvm-256", one_fewer)
    assert told not in in_short.block(stored)


def test_programs_are_told_of_sizes_that_are_complete_alone(stored):
    assert "| znver2 | 64 | cache and memory | 1 | 28 |" in in_short.block(stored)

    def one_of_memory(result):
        result["rows"] = [row for row in result["rows"] if row["size"] == "cache"]
        result["rows"].append(dict(result["rows"][0], size="memory", workload="multiply/9"))

    change(stored, "tvm-zen2", one_of_memory)
    after = in_short.block(stored)
    assert "| znver2 | 64 | cache | 1 | 14 |" in after
    assert after.count("| znver2 | 64 |") == 1


def test_more_programs_of_one_cpu_are_not_told_with_fewer_of_another(stored):
    assert "| rocketlake | up to 256 |" in in_short.block(stored)

    def elsewhere(result):
        for row in result["rows"]:
            row["tuning"]["target"]["mcpu"] = "znver5"

    change(stored, "tvm-xeon", elsewhere)
    with pytest.raises(UsageError, match="of the same CPU, got rows of rocketlake, znver5"):
        in_short.block(stored)


def test_kernels_that_are_slower_than_helions_are_counted(stored):
    def slower(result):
        for row in result["rows"]:
            if row["run"] == "race":
                ours = [i for i, name in enumerate(row["names"]) if name.endswith("/s")]
                for i in ours:
                    row["medians_us"]["events"][i] *= 100

    for name in ("large", "large-judged"):
        change(stored, name, slower)
    told = "| 10 (none faster and 10 slower by the interval over seeds) |"
    assert in_short.block(stored).count(told) == 1


def test_kernels_that_are_slower_than_at_full_effort_are_counted(stored):
    def twice_as_slow(result):
        for row in result["rows"]:
            if row["search"] == "race" and row["op"] == "swiglu":
                ours = [n for n, name in enumerate(row["names"]) if name.startswith(AS_LONG)]
                for n in ours:
                    row["medians_us"]["events"][n] *= 2

    def slower():
        at = "| Pattern (Helion) at full effort, NVIDIA H200 |"
        (line,) = (line for line in in_short.block(stored).splitlines() if line.startswith(at))
        return line.split(" | ")[-1]

    assert slower() == "none by more than 1% |"
    change(stored, "helion_field", twice_as_slow)
    assert slower() == "1 by more than 1% |"


def test_helions_default_is_told_of_the_gpu_that_it_ran_on(stored):
    told = "| LFBO-Tree (Helion) at full effort, NVIDIA H200, "
    own = in_short.block(stored).split(told)[1:]
    assert [row.split(" |")[0] for row in own] == ["several hosts"] * 2 + ["the same host and GPU"]
    assert [row.split(" | ")[2] for row in own] == ["9", "9", "8"]

    def elsewhere(result):
        for row in result["rows"]:
            row.pop("machine", None)

    change(stored, "helion_field", elsewhere)
    assert "the same host" not in in_short.block(stored)

    def without(result):
        result["rows"] = [row for row in result["rows"] if row["search"] != DEFAULT]

    change(stored, "helion_field", without)
    assert told not in in_short.block(stored)

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
    colds = ("cold", "cold-unseen")
    tvms = ("tvm", "tvm-xeon", "tvm-256", "tvm-zen4", "tvm-zen4-256", "tvm-zen2")
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
    assert "On 13 workloads of 3 kernels that were recorded when all of it was set" in before
    change(stored, "cold-unseen", doubled)
    after = in_short.block(stored)
    assert (before.count("2.000"), after.count("2.000")) == (0, 1)
    assert before.splitlines()[1:] == after.splitlines()[1:]


def test_a_win_over_tvm_is_claimed_only_of_enough_programs(stored):
    change(stored, "tvm", lambda result: result.update(trials=64))
    assert "fewer, too few to claim a win" in in_short.block(stored)
    change(stored, "tvm", lambda result: result.update(trials=256))
    assert "players measured 256 programs" in in_short.block(stored)
    assert "too few" not in in_short.block(stored)


def test_more_programs_are_told_where_every_workload_had_them(stored):
    told = "With up to 256 programs each, on one CPU (Intel"
    assert told in in_short.block(stored)

    def one_fewer(result):
        result["rows"] = [row for row in result["rows"] if row["operator"] != "softmax"]

    change(stored, "tvm-256", one_fewer)
    assert told not in in_short.block(stored)


def test_narrow_vectors_are_told_of_sizes_that_are_complete_alone(stored):
    told = "On a CPU with AVX2 alone (znver2 as LLVM calls it): "
    assert f"{told}0." in in_short.block(stored)

    def one_of_memory(result):
        result["rows"] = [row for row in result["rows"] if row["size"] == "cache"]
        result["rows"].append(dict(result["rows"][0], size="memory", workload="multiply/9"))

    change(stored, "tvm-zen2", one_of_memory)
    _, _, after = in_short.block(stored).partition(told)
    assert "14 workloads of cache size on 1 thread" in after
    assert "memory size" not in after


def test_more_programs_of_one_cpu_are_not_told_with_fewer_of_another(stored):
    assert "programs each, on one CPU (Intel(R) Xeon(R) Processor): " in in_short.block(stored)

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
    told = (
        "on 10 kernels, 10 of them slower (none faster and 10 slower by the interval over seeds)"
    )
    assert told in in_short.block(stored)


def test_kernels_that_are_slower_than_at_full_effort_are_counted(stored):
    def twice_as_slow(result):
        for row in result["rows"]:
            if row["search"] == "race" and row["op"] == "swiglu":
                ours = [n for n, name in enumerate(row["names"]) if name.startswith(AS_LONG)]
                for n in ours:
                    row["medians_us"]["events"][n] *= 2

    told = "(NVIDIA H200; none more than 1% slower)"
    assert told in in_short.block(stored)
    change(stored, "helion_field", twice_as_slow)
    assert told.replace("none more", "1 more") in in_short.block(stored)


def test_helions_default_is_told_of_the_gpu_that_it_ran_on(stored):
    told = "Helion's default, at full effort (NVIDIA H200, several hosts): "
    assert in_short.block(stored).count(told) == 1
    own = in_short.block(stored).split(told)[1].split(";")
    assert own[0].endswith("of its seconds on 9 kernels")
    assert own[1].startswith(" of runs that shared machine and GPU ")

    def elsewhere(result):
        for row in result["rows"]:
            row.pop("machine", None)

    change(stored, "helion_field", elsewhere)
    assert "shared machine" not in in_short.block(stored)

    def without(result):
        result["rows"] = [row for row in result["rows"] if row["search"] != DEFAULT]

    change(stored, "helion_field", without)
    assert "Helion's default, at" not in in_short.block(stored)

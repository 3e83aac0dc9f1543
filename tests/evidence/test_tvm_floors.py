"""Floors of what stands beside TVM: measured rates, and how near to them either side is."""

import argparse
import json

import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence import tvm_floors
from kt_lab.evidence.ceilings import Ceilings
from kt_lab.evidence.dojo_words import dojo_block
from kt_lab.evidence.tvm_floors import floor_lines, floors_table, with_floors

BYTES = {"multiply/65536": 786_432, "matmul/512x512x512": 3_145_728}


def beside(workload, best_us, tuned_us, *, threads=1, size="cache"):
    paths = {"best": {"min_us": best_us}, "tvm_tuned": {"min_us": tuned_us}}
    row = {"workload": workload, "threads": threads, "operator": workload.partition("/")[0]}
    return row | {"size": size, "chain": False, "paths": paths}


def ceiling(workload, *, threads=1, turn=0, copy=100.0, read=50.0, gflop=100.0):
    rates = {"copy_gb_s": copy, "read_gb_s": read, "gflop_s": gflop}
    return {"bytes": BYTES[workload], "threads": threads, "turn": turn} | rates


@pytest.fixture
def result():
    rows = [
        beside("multiply/65536", 8.0, 16.0),
        beside("matmul/512x512x512", 3000.0, 2800.0),
        beside("multiply/65536", 4.0, 8.0, threads=2),
    ]
    return {"rows": rows, "provenance": {"cpu": "a CPU"}}


@pytest.fixture
def floors():
    rows = [
        ceiling("multiply/65536", gflop=90.0),
        ceiling("multiply/65536", turn=1, copy=98.304),
        ceiling("matmul/512x512x512", copy=60.0),
        ceiling("multiply/65536", threads=2, copy=80.0, read=40.0, gflop=200.0),
    ]
    return {"of": "tvm-x", "rows": rows, "provenance": {"cpu": "a CPU"}}


def test_a_floor_is_of_the_highest_rates_of_any_turn(result, floors):
    table = floors_table(result, floors).set_index(["workload", "threads"])
    one = table.loc["multiply/65536", 1]
    assert one["floor_us"] == pytest.approx(786_432 / 100.0 / 1e3)
    assert (one["floor_by"], one["best_share"]) == ("copy", pytest.approx(one["floor_us"] / 8))
    assert one["floor_ratio"] == pytest.approx(one["floor_us"] / 16)
    product = table.loc["matmul/512x512x512", 1]
    assert product["floor_us"] == pytest.approx(2 * 512**3 / 100.0 / 1e3)
    assert product["floor_by"] == "flops"
    # two threads can do what one did
    assert table.loc["multiply/65536", 2]["floor_us"] == pytest.approx(one["floor_us"])


def test_rows_without_a_floor_or_a_side_are_left_out(result, floors):
    del floors["rows"][2]
    result["rows"][0]["paths"].pop("tvm_tuned")
    table = floors_table(result, floors)
    assert table[["workload", "threads"]].to_numpy().tolist() == [["multiply/65536", 2]]
    (row,) = with_floors(result, floors)["rows"]
    assert row == result["rows"][2] | {"floor_us": table["floor_us"][0], "floor_by": "copy"}


def test_means_are_of_whole_sizes_and_say_who_is_near(result, floors):
    text = floor_lines(result, floors)
    assert "the highest of 2 turns" in text
    assert "--of tvm-x" in text
    assert (
        "On 1 thread a program at every floor would take of tuned TVM's time: cache size" in text
    )
    assert "tuned TVM 90% and more on 1 of 2" in text
    assert "2 threads" not in text  # of which matmul is missing
    assert "| `matmul/512x512x512` | 1 | 2684 | flops | 3000 | 2800 |" in text
    del result["rows"][1]
    result["rows"].append(beside("multiply/65536", 9.0, 9.0, size="memory"))
    floors["rows"].append(ceiling("multiply/65536") | {"bytes": 201_326_592})
    both = floor_lines(result, floors)
    assert "memory size" in both
    assert "both sizes" in both
    assert floor_lines(result, floors) in dojo_block(None, None, floors=[(result, floors)])


def test_ceilings_are_measured_once_for_as_many_bytes(tmp_path, monkeypatch, result):
    folder = tmp_path / "evidence"
    folder.mkdir()
    asked = []

    def measure(size, *, threads, **_):
        asked.append((size, threads))
        return Ceilings(threads, size, copy_gb_s=10.0 * len(asked), read_gb_s=1.0, gflop_s=50.0)

    monkeypatch.setattr(tvm_floors, "data_directory", lambda: tmp_path)
    monkeypatch.setattr(tvm_floors, "measure_ceilings", measure)
    parser = argparse.ArgumentParser()
    tvm_floors.add_arguments(parser)
    given = parser.parse_args(["--of", "tvm-x", "--threads", "1", "--turns", "2"])
    args = argparse.Namespace(**vars(given), out=tmp_path / "floors.json")
    (folder / "tvm-x.json").write_text(json.dumps(result))
    with pytest.raises(UsageError, match="must be measured on the CPU of the rows, a CPU"):
        tvm_floors.run(args)
    result["provenance"]["cpu"] = tvm_floors.provenance()["cpu"]
    (folder / "tvm-x.json").write_text(json.dumps(result))
    found = tvm_floors.run(args)
    assert asked == [(786_432, 1), (3_145_728, 1)] * 2
    assert tvm_floors.run(args)["rows"] == found["rows"]
    assert len(asked) == 4
    told = tvm_floors.report(found)
    assert "turn 1: copy 40.0 GB/s" in told
    assert "| `matmul/512x512x512` | 1 |" in told

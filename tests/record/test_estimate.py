"""What a recording will take, from a landscape whose costs are known exactly."""

import pytest

from kt_lab import load_landscape
from kt_lab.landscape import landscapes
from kt_lab.record import RecordOptions, estimate
from tests.runners.tables import FLUSH_US, make_landscape


def seconds(table):
    return table.set_index("phase")["seconds"]


def test_each_phase_adds_up_what_was_recorded():
    landscape = make_landscape()  # 16 specialisations of 1 s, latencies 10, 15, ... 85 µs
    options = RecordOptions(visits=3, repetitions=10, fewest=5)
    table = estimate(landscape, options, workers=4)
    told = seconds(table)
    assert told["compile"] == pytest.approx(16 / 4)
    good = landscape.latency_us[landscape.status == "ok"]
    launches = [10 if us <= 2 * good.min() else 5 for us in good]
    visit = sum(n * (us + FLUSH_US) for n, us in zip(launches, good, strict=True)) * 1e-6
    extra = 16 * 0.012 + 0.5  # checks, overheads, and the failure of one config
    assert told["visit 1, with checks"] == pytest.approx(visit + extra)
    assert told["visits 2 to 3"] == pytest.approx(2 * visit)
    assert told["expected"] == pytest.approx(4 + 2 * visit), "compiling takes longer here"
    assert table["count"].tolist() == [16, sum(launches), 2 * sum(launches), 16]


def test_a_limit_and_a_larger_space_scale():
    landscape = make_landscape()
    half = seconds(estimate(landscape, RecordOptions(limit=8), workers=4))
    whole = seconds(estimate(landscape, RecordOptions(), workers=4))
    double = seconds(estimate(landscape, RecordOptions(), workers=4, configs=32))
    for phase in ("compile", "visit 1, with checks", "visit 2"):
        assert half[phase] == pytest.approx(whole[phase] / 2)
        assert double[phase] == pytest.approx(2 * whole[phase])
    assert seconds(estimate(landscape, RecordOptions(limit=99), workers=4))[
        "compile"
    ] == pytest.approx(whole["compile"])
    own = estimate(landscape, RecordOptions(compile_workers=8), workers=4)
    assert seconds(own)["compile"] == pytest.approx(whole["compile"] / 2)


def test_shared_binaries_are_compiled_once():
    entry = next(e for e in landscapes() if e.workload == "softmax/4096x640" and e.gpu == "h200")
    landscape = load_landscape(entry.workload, gpu="h200")
    table = estimate(landscape, RecordOptions(), workers=1)
    assert table["count"].iloc[0] == landscape.table["specialisation"].nunique() < entry.configs
    few = estimate(landscape, RecordOptions(limit=60), workers=1)
    assert 0 < few["count"].iloc[0] <= 60

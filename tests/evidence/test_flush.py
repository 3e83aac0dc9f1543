"""Whether the L2 is empty: every way is timed for both hints, beside launches on copies."""

import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence import flush
from kt_lab.trial import Config


def test_a_config_is_timed_with_and_without_the_hint_and_others_are_refused():
    both = flush.hinted({"BLOCK": 4, "EVICTION": "evict_first"})
    assert both == {
        "": Config(BLOCK=4, EVICTION=""),
        "evict_last": Config(BLOCK=4, EVICTION="evict_last"),
    }
    with pytest.raises(UsageError, match="EVICTION"):
        flush.hinted({"BLOCK": 4})


def test_each_way_prepares_its_launches_as_it_says():
    seen, prepared = [], []
    plans = {
        hint: [lambda name=f"{hint}{copy}": seen.append(name) for copy in range(3)]
        for hint in ("", "last")
    }

    def take(launch, *, flush, prepare, warm_up):
        prepared.append((len(flush), bool(prepare), warm_up))
        before = len(seen)
        for _ in range(4):
            launch()
        return [float(len(set(seen[before:])))] * 4

    row = flush._row(lambda: plans, take, list(range(100)), lambda: None, 2)
    assert row["copies"] == 3
    for ways in row["samples_us"].values():
        assert {way: blocks[0] for way, blocks in ways.items()} == {
            way: 3.0 if way.startswith("copies") else 1.0 for way in flush.WAYS
        }
        assert all(len(blocks) == 2 for blocks in ways.values())
    assert prepared.count((32, False, 2)) == 4, "nothing is flushed where the L2 may be warm"
    assert prepared.count((100, True, 2)) == 8
    assert seen.count("0") + seen.count("last0") >= 2 * 2 * flush._POLLUTE


def test_ratios_are_paired_with_launches_on_copies_of_the_same_hint():
    ways = {way: [10.0, 20.0] * 4 for way in flush.WAYS}
    cheated = ways | {"written": [5.0, 10.0] * 4}
    rows = [{"workload": "softmax/a", "samples_us": {"": ways, "evict_last": cheated}}]
    table = flush.ratios({"rows": rows}).set_index(["hint", "way"])
    assert table.loc[("", "written"), ["low", "ratio", "high"]].tolist() == [1.0, 1.0, 1.0]
    assert table.loc[("evict_last", "written"), "ratio"] == pytest.approx(0.5)
    told = flush.report({"gpu": "h200", "rows": rows})
    assert "softmax/a, no hint" in told
    assert "0.500" in told

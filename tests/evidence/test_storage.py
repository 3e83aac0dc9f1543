"""The fault matrix of the store, in small: nothing lost, doubled or corrupted, and it is told."""

from argparse import ArgumentParser

import pytest

from kt_lab.evidence import storage
from kt_lab.evidence.storage_faults import FAULTS


def matrix(*arguments):
    parser = ArgumentParser()
    storage.add_arguments(parser)
    return storage.run(parser.parse_args(arguments))


def test_twenty_faults_leave_the_table_as_if_nothing_had_been():
    result = matrix("--times", "0.07", "--seed", "1")
    rows = result["rows"]
    assert {row["fault"] for row in rows} == set(FAULTS)
    assert sum(row["times"] for row in rows) >= 20
    for row in rows:
        assert row["misfits"] == [], row["fault"]
        assert row["same"] == row["fits"] == row["times"]
        assert (row["lost"], row["doubled"], row["corrupted"]) == (0, 0, 0)
    assert "20 of 20 tables as if undisturbed; 0 runs lost" in storage.report(result)


def test_a_journal_that_trusts_its_lines_is_found_out(monkeypatch):
    monkeypatch.setattr("kt_lab.store.journal.zlib.crc32", lambda *_: 0)
    [row] = matrix("--times", "0.3", "--faults", "bit flipped before it")["rows"]
    assert row["misfits"]
    assert row["corrupted"] + row["times"] - row["fits"] > 0


@pytest.mark.parametrize("fault", ["torn tail", "kill -9 of both"])
def test_runs_that_are_computed_again_are_found_out(fault, monkeypatch):
    """As if no journal were read on resuming."""
    monkeypatch.setattr("kt_lab.store.sharing.Shared._note", lambda *_: None)
    [row] = matrix("--times", "0.15", "--faults", fault)["rows"]
    assert row["doubled"] > 0

"""A journal is read as it was written, or says which line is not; writing never ruins it."""

import json
import os
import resource
import threading
from contextlib import contextmanager

import pandas as pd
import pytest

from kt_lab import cli
from kt_lab.errors import StoreError
from kt_lab.formats.text import write_text
from kt_lab.landscape import Landscape
from kt_lab.store import Journal, read_journal, read_table, repair, write_table
from tests.runners.tables import make_landscape

RECORDS = [{"n": n, "text": "é\n" * n, "values": [0.1, None, True]} for n in range(6)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "made" / "runs.jsonl"
    write(path, RECORDS)
    return path


def write(path, records):
    with Journal(path) as journal:
        for record in records:
            journal.append(record)


@contextmanager
def room(size):
    """No file may grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_records_come_back_and_go_on(path):
    assert read_journal(path) == RECORDS
    write(path, [{"more": 1}])
    with Journal(path) as journal:
        assert journal.records == [*RECORDS, {"more": 1}]
    assert read_journal(path.with_name("none.jsonl")) == []


def test_every_flipped_bit_is_told_with_its_line_or_tears_the_end_off(path):
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << (at % 8)]) + raw[at + 1 :])
        if at == len(raw) - 1:
            assert read_journal(path) == RECORDS[:-1]
            continue
        line = raw[:at].count(b"\n") + 1
        with pytest.raises(StoreError, match=rf"got line {line} of runs\.jsonl: .*doctor"):
            read_journal(path)


def test_repair_keeps_every_sound_record_and_the_damaged_file(path):
    lines = path.read_bytes().splitlines(keepends=True)
    flipped = lines[3][:20] + b"X" + lines[3][21:]
    split = lines[5][:15] + b"\n" + lines[5][16:]
    cases = [
        ([*lines[:3], flipped, *lines[4:]], [0, 1, 3, 4, 5]),
        ([*lines[:3], lines[3].replace(b"\n", b" "), *lines[4:]], [0, 1, 4, 5]),
        ([*lines[:5], split, lines[6]], [0, 1, 2, 3, 5]),
        ([*lines[:3], *lines[4:]], [0, 1, 3, 4, 5]),  # a whole line is gone
        ([*lines[:3], lines[2], *lines[3:]], [0, 1, 2, 3, 4, 5]),  # or is there twice
        ([b"\0" * 40 + b"\n", *lines[1:]], [0, 1, 2, 3, 4, 5]),  # the version's own
    ]
    for number, (damaged, kept) in enumerate(cases):
        path.write_bytes(b"".join(damaged))
        with pytest.raises(StoreError, match=r"every line .* got line \d of"):
            Journal(path)
        found = repair(path)
        assert found.damaged
        assert found.aside.read_bytes() == b"".join(damaged)
        assert found.aside.name == f"runs.jsonl.damaged{number or ''}"
        write(path, [{"later": 1}])
        assert read_journal(path) == [*(RECORDS[n] for n in kept), {"later": 1}], number
        assert found.kept == len(kept)
    assert repair(path).aside is None


def test_the_doctor_says_what_is_damaged_and_mends_it(path, capsys):
    assert cli.main(["doctor", "--journal", str(path)]) == 0
    assert "6 records, none damaged" in capsys.readouterr().out
    raw = path.read_bytes()
    path.write_bytes(raw[:60] + b"?" + raw[61:])
    assert cli.main(["doctor", "--journal", str(path)]) == 0
    said = capsys.readouterr().out
    assert "line 2: its checksum does not fit" in said
    assert "5 records kept" in said
    assert "runs.jsonl.damaged" in said
    assert read_journal(path) == RECORDS[1:]


def test_the_doctor_does_not_call_a_torn_line_alone_sound(path, capsys):
    path.write_bytes(path.read_bytes()[:25])
    assert cli.main(["doctor", "--journal", str(path)]) == 2
    assert "must hold a sound record to be mended, got none in" in capsys.readouterr().err


def test_nothing_is_left_of_a_journal_that_nothing_was_written_to(path):
    new = path.with_name("new.jsonl")
    Journal(new).close()
    assert not new.exists()
    Journal(path).close()
    assert len(read_journal(path)) == len(RECORDS)


def test_a_tail_that_was_torn_anywhere_is_dropped(path):
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        whole = max(0, raw[:length].count(b"\n") - 1)
        assert read_journal(path) == RECORDS[:whole]
        write(path, RECORDS[whole:])
        assert path.read_bytes() == raw


def test_an_older_journal_is_read_and_goes_on_in_the_newer_form(path):
    plain = "".join(json.dumps(r) + "\n" for r in RECORDS[:3])
    path.write_text(plain + '{"n": 3, "te')
    assert read_journal(path) == RECORDS[:3]
    write(path, RECORDS[3:])
    assert path.read_bytes().startswith(plain.encode())
    assert read_journal(path) == RECORDS
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'{"n":4', b'{"n":5'))
    with pytest.raises(StoreError, match="got line 6 of"):
        read_journal(path)
    path.write_text('{"n": 0}\nnot json\n{"n": 1}\n')
    assert repair(path).damaged[0][0] == 2
    assert read_journal(path) == [{"n": 0}, {"n": 1}]


def test_a_plain_line_in_a_newer_journal_is_damage(path):
    with path.open("a") as file:
        file.write('{"n": 7}\n')
    with pytest.raises(StoreError, match="got line 8 of"):
        Journal(path)


def test_a_newer_version_is_refused_and_left_alone(path, monkeypatch):
    monkeypatch.setattr("kt_lab.store.journal.VERSION", 3)
    path.unlink()
    write(path, RECORDS)
    monkeypatch.undo()
    before = path.read_bytes()
    for touch in (Journal, read_journal, repair):
        with pytest.raises(
            StoreError, match=r"of version 2 or older, got version 3 in runs\.jsonl"
        ):
            touch(path)
    assert path.read_bytes() == before


def test_one_writer_at_a_time_even_within_a_process(path):
    with Journal(path), pytest.raises(StoreError, match="one writer"):
        Journal(path)
    with Journal(path), pytest.raises(StoreError, match="nobody's use"):
        repair(path)
    Journal(path).close()


@pytest.mark.parametrize("text", ['{"my": "results of a week"}', "abc", "\0\0"])
def test_what_is_no_journal_is_refused_and_left_as_it_is(tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"begin with its version, .* mine\.json, which is left"):
        Journal(path)
    assert path.read_text() == text


def test_a_full_disk_is_told_and_the_journal_goes_on_afterwards(path):
    size = path.stat().st_size
    with Journal(path) as journal:
        for more in (0, 1, 20, 200):
            with room(size + more), pytest.raises(StoreError) as told:
                journal.append({"long": "x" * 1000})
            assert "runs.jsonl must be writable" in str(told.value)
            assert "the 7 lines before are safe: make room" in str(told.value)
            assert path.stat().st_size == size
        journal.append({"short": 1})
    assert read_journal(path) == [*RECORDS, {"short": 1}]


def test_an_interrupt_in_the_middle_of_a_line_leaves_none_of_it(path):
    with Journal(path) as journal:
        real = journal._file

        class Struck:
            def write(self, raw):
                real.write(raw[:5])
                raise KeyboardInterrupt

            def __getattr__(self, name):
                return getattr(real, name)

        journal._file = Struck()
        with pytest.raises(KeyboardInterrupt):
            journal.append({"n": 9})
        journal._file = real
        journal.append({"n": 10})
    assert read_journal(path) == [*RECORDS, {"n": 10}]


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("no folder")
    for write_there in (Journal, lambda p: write_table(pd.DataFrame({"a": [1]}), p, facts={})):
        with pytest.raises(StoreError, match=r"small\.x must be writable in .*file, got .*Error"):
            write_there(tmp_path / "file" / "small.x")


def test_a_table_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(pd.DataFrame({"a": [1]}), path, facts={"v": 1})
    wide = pd.DataFrame({f"c{n}": [float(n)] for n in range(50)})
    with room(2000), pytest.raises(StoreError, match=r"t\.parquet must be writable"):
        write_table(wide, path, facts={})
    assert os.listdir(tmp_path) == ["t.parquet"]
    assert read_table(path)[1] == {"v": 1}


def test_whatever_is_put_in_the_place_of_a_file_is_whole_or_not_there(tmp_path):
    for name, write in (
        ("text.json", lambda path: write_text(path, "x" * 5000)),
        ("a.parquet", lambda path: make_landscape().save(path)),
    ):
        path = tmp_path / name
        path.write_text("before")
        with room(2000), pytest.raises(StoreError, match="must be writable"):
            write(path)
        assert path.read_text() == "before"
        assert os.listdir(tmp_path) == [name]
        path.unlink()


def test_a_landscape_whose_manifest_does_not_fit_on_the_disk_is_as_it_was(tmp_path):
    path = make_landscape().save(tmp_path / "a")
    longer = make_landscape()
    longer.table["check_s"] = 0.5
    longer.manifest["note"] = "x" * 10**6
    with room(5 * 10**5), pytest.raises(StoreError, match="nothing that was stored is touched"):
        longer.save(path)
    assert sorted(os.listdir(tmp_path)) == ["a.json", "a.parquet"]
    assert "note" not in Landscape.load(path).manifest


def test_every_flipped_bit_of_a_table_is_told_or_changes_nothing(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame({"config": [3, 1, 2] * 9, "status": ["ok", "timeout", "ok"] * 9})
    write_table(frame.astype({"status": "category"}), path, facts={"seed": 1})
    whole, raw = read_table(path), path.read_bytes()
    told = 0
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
        try:
            frame, facts = read_table(path)
        except StoreError:
            told += 1
            continue
        pd.testing.assert_frame_equal(frame, whole[0])
        assert facts == whole[1]
    assert told > 0.95 * len(raw)


def test_a_lock_is_of_the_file_that_lies_there(path):
    """Whoever waited for a file that was removed meanwhile gets the new one."""
    from kt_lab.store.files import lock

    first = lock(path, wait=True)
    got = []
    thread = threading.Thread(target=lambda: got.append(lock(path, wait=True)))
    thread.start()
    path.unlink()
    second = lock(path, wait=False)
    first.close()
    assert second is None or not got
    if second:
        second.close()
    thread.join(10)
    assert os.fstat(got[0].fileno()).st_ino == path.stat().st_ino
    got[0].close()

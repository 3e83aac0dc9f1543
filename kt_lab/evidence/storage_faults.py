"""What can happen to stored runs, made to happen: kills, damage, full disks, clocks, strangers.

Every fault is a function of a Bench, a folder, the case's number and a generator; it leaves the
folder as the fault did and returns what was said meanwhile.
"""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kt_lab.evidence.storage_bench import NAME, WORKLOAD, Bench, Said
from kt_lab.store import Shared, journal, read_table, write_table

_LATEST_S = 0.25  # after which a part that was not killed has ended


# -- kills ----------------------------------------------------------------------------------------


def _strike(bench: Bench, child: Any, rng: Any) -> bool:
    """Kills a process a random time after a random number of runs; False: it had ended."""
    count, until = int(rng.integers(len(bench.records))), time.monotonic() + 60
    while bench.tally.read_bytes().count(b"\n") < count and time.monotonic() < until:
        if not child.is_alive():
            return False
        time.sleep(0.001)
    time.sleep(float(rng.uniform(0, 0.03 if count else _LATEST_S)))
    alive = child.is_alive()
    child.kill()
    return alive


def kill_one(bench: Bench, folder: Path, _: int, rng: Any) -> Said:
    """Kills one of two processes that share the runs; the other one goes on."""
    struck, other = bench.start(folder), bench.start(folder)
    said = [] if _strike(bench, struck[0], rng) else ["not struck"]
    return said + bench.ends(*other) + bench.ends(*struck)


def kill_all(bench: Bench, folder: Path, _: int, rng: Any) -> Said:
    """Kills both of two processes that share the runs, one soon after the other."""
    first, second = bench.start(folder), bench.start(folder)
    struck = _strike(bench, first[0], rng)
    second[0].kill()
    return [*([] if struck else ["not struck"]), *bench.ends(*first), *bench.ends(*second)]


# -- damage ---------------------------------------------------------------------------------------


def _journals(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{NAME}*.jsonl"))


def torn_tail(bench: Bench, folder: Path, case: int, rng: Any) -> Said:
    """Cuts a journal off: at, after or within checksum, number, record and end of any line."""
    bench.spread(folder, rng)
    path = rng.choice(_journals(folder))
    lines = path.read_bytes().splitlines(keepends=True)
    last = (0, 1, len(lines) - 1, int(rng.integers(len(lines))))[case // 8 % 4]
    size = len(lines[last])
    within = (0, 1, 8, 9, 11, int(rng.integers(size)), size - 2, size - 1)[case % 8]
    path.write_bytes(b"".join(lines[:last]) + lines[last][:within])
    return []


def _flip(path: Path, at: int, rng: Any) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(raw)


def flip_tail(bench: Bench, folder: Path, case: int, rng: Any) -> Said:
    """Flips a bit of a journal's last complete line, every fifth time of its end."""
    bench.spread(folder, rng)
    path = rng.choice(_journals(folder))
    raw = path.read_bytes()
    start = raw.rfind(b"\n", 0, -1) + 1
    _flip(path, len(raw) - 1 if case % 5 == 4 else int(rng.integers(start, len(raw))), rng)
    return []


def flip_middle(bench: Bench, folder: Path, _: int, rng: Any) -> Said:
    """Flips a bit anywhere before a journal's last line."""
    bench.spread(folder, rng)
    path = rng.choice(_journals(folder))
    raw = path.read_bytes()
    _flip(path, int(rng.integers(raw.rfind(b"\n", 0, -1))), rng)
    return []


def cut_middle(bench: Bench, folder: Path, case: int, rng: Any) -> Said:
    """Takes a piece out of the middle of a journal: some bytes, or whole lines."""
    bench.spread(folder, rng, parts=1)
    [path] = _journals(folder)
    raw = path.read_bytes()
    lines = raw.splitlines(keepends=True)
    if case % 2:
        at = int(rng.integers(1, len(lines) - 1))
        path.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
    else:
        at = int(rng.integers(len(raw) - len(lines[-1]) - 1))
        path.write_bytes(raw[:at] + raw[at + int(rng.integers(1, 200)) :])
    return []


def damaged_table(bench: Bench, folder: Path, case: int, rng: Any) -> Said:
    """Flips a bit of the finished table, or cuts it off."""
    folder.mkdir(parents=True)
    path = folder / f"{NAME}.parquet"
    at = int(rng.integers(len(bench.table)))
    path.write_bytes(bench.table[:at] if case % 4 == 3 else bench.table)
    if case % 4 != 3:
        _flip(path, at, rng)
    return []


# -- the disk -------------------------------------------------------------------------------------


def full_disk(bench: Bench, folder: Path, _: int, rng: Any) -> Said:
    """Lets no journal grow beyond a random size."""
    size = sum(len(json.dumps(record)) for record in bench.records)
    return bench.ends(*bench.start(folder, room=int(rng.integers(300, 0.9 * size))))


def full_disk_at_last(bench: Bench, folder: Path, _: int, rng: Any) -> Said:
    """Has room for the last records, not for the table."""
    bench.spread(folder, rng, runs=len(bench.records), parts=len(bench.records))
    most = max(path.stat().st_size for path in _journals(folder)) + 2000
    return bench.ends(*bench.start(folder, room=int(rng.integers(most, 0.9 * len(bench.table)))))


def read_only(bench: Bench, folder: Path, case: int, rng: Any) -> Said:
    """Takes the right to write away: in journals, in their folder, or where that is to be."""
    if case % 3 == 2:
        folder.parent.chmod(0o555)
        said = bench.ends(*bench.start(folder, nobody=True))
        folder.parent.chmod(0o755)
        return said
    bench.spread(folder, rng)
    for path in [folder] if case % 3 else _journals(folder):
        path.chmod(0o555 if path == folder else 0o444)
    folder.chmod(0o555 if case % 3 else 0o777)
    said = bench.ends(*bench.start(folder, nobody=True))
    for path in (folder, *_journals(folder)):
        path.chmod(0o755)
    return said


# -- clocks and strangers -------------------------------------------------------------------------


def clock_back(bench: Bench, folder: Path, case: int, rng: Any) -> Said:
    """Two processes share runs: one clock steps back at every look, files are of any time."""
    bench.spread(folder, rng)
    for path in _journals(folder):
        os.utime(path, (t := float(rng.uniform(0, 4e9)), t))
    one, other = bench.start(folder, clock=case), bench.start(folder)
    return bench.ends(*one) + bench.ends(*other)


def foreign_journal(bench: Bench, folder: Path, case: int, rng: Any) -> Said:
    """Leaves the journal of another experiment, space, kernel or version under the same name."""
    folder.mkdir(parents=True)
    if case % 5 < 4:
        facts = _other_facts(bench, case % 5)
        bench.journal(folder, 0, facts, [])  # and what its process wrote later
        with Shared(folder / f"{NAME}.parquet", facts) as other:
            list(other.claims(r["cell"] for r in bench.records[:2]))
        return []
    known, journal.VERSION = journal.VERSION, journal.VERSION + 1
    try:
        bench.journal(folder, int(rng.integers(2)), bench.facts, range(4))
    finally:
        journal.VERSION = known
    return []


def _other_facts(bench: Bench, case: int) -> dict[str, Any]:
    others = (
        {"seeds": 5},
        {"workloads": ["softmax/65536x512"]},
        {"landscapes": {WORKLOAD: "0" * 64}},  # another recording: of other code or another space
        {"budget": {"trials": 7, "seconds": None}},
    )
    return bench.facts | others[case % len(others)]


def foreign_table(bench: Bench, folder: Path, case: int, _: Any) -> Said:
    """Leaves the table of another experiment under the same name."""
    folder.mkdir(parents=True)
    path = folder / f"{NAME}.parquet"
    path.write_bytes(bench.table)
    frame, facts = read_table(path)
    write_table(frame, path, facts=facts | _other_facts(bench, case))
    return []


_NO_ROOM = r"must be writable in .*(safe|touched): make room"
_DAMAGED = r"every line of a journal must be as it was written, got line \d+ of"
# fault -> (how to, times, what must be said by then, or on resuming; "": nothing)
FAULTS: dict[str, tuple[Callable[..., Said], int, str]] = {
    "kill -9 of one of two": (kill_one, 40, ""),
    "kill -9 of both": (kill_all, 30, ""),
    "torn tail": (torn_tail, 32, ""),
    "bit flipped in the last line": (flip_tail, 25, _DAMAGED),
    "bit flipped before it": (flip_middle, 25, _DAMAGED),
    "piece cut out": (cut_middle, 16, _DAMAGED),
    "table damaged": (damaged_table, 20, r"a stored table must be"),
    "disk full": (full_disk, 25, _NO_ROOM),
    "disk full at the table": (full_disk_at_last, 6, _NO_ROOM),
    "read-only": (read_only, 9, _NO_ROOM),
    "clock steps back": (clock_back, 8, ""),
    "journal of something else": (foreign_journal, 10, r"must belong to .*got other|of version 2"),
    "table of something else": (foreign_table, 4, r"must answer the same request, got other"),
}


def fits(said: Said, wanted: str) -> bool:
    """Whether what was said is what the fault must have said, and nothing else."""
    errors = [words for words in said if words not in ("done", "not struck")]
    if not wanted:
        return not errors
    return bool(errors) and all(re.search(wanted, words) for words in errors)

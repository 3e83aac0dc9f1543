"""The fault matrix of the store: what it says, and whether the table is as if nothing had been.

Every fault is injected into the stored runs of a small experiment. Then the experiment is run
again, as its error asks where there is one, and its table is compared with that of an undisturbed
run in every column but the measured CPU seconds.
"""

import argparse
import tempfile
import zlib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import StoreError
from kt_lab.evidence.storage_bench import NAME, Bench, counted, experiment, plain
from kt_lab.evidence.storage_faults import FAULTS, fits
from kt_lab.experiment import load_runs
from kt_lab.provenance import provenance
from kt_lab.store import read_journal, repair

_ROUNDS = 4  # of obeying an error and running again: several journals may be damaged
_COUNTS = ("lost", "doubled", "corrupted")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault.

    Attributes:
        said: Errors by then and on resuming.
        fits: Whether these are what the fault must have said.
        same: Whether the table, returned and stored, is that of an undisturbed run.
        lost: Runs that sound journals held, or that the table should hold, and does not.
        doubled: Runs computed though a sound journal held them.
        corrupted: Runs that differ from an undisturbed one.
        struck: Whether the fault came in time; a kill may come too late.
    """

    said: list[str]
    fits: bool
    same: bool
    lost: int
    doubled: int
    corrupted: int
    struck: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds how often."""
    parser.add_argument("--times", type=float, default=1.0, help="of the usual number of each")
    parser.add_argument("--faults", nargs="+", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Injects every fault many times."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)  # some parts run as a user without rights
        bench = Bench(root / "alone")
        for name in args.faults:
            outcomes = [
                _outcome(bench, name, case, seed=args.seed, folder=root / f"{len(rows)}-{case}")
                for case in range(max(1, round(args.times * FAULTS[name][1])))
            ]
            rows.append(_row(name, outcomes))
    return {"runs": len(bench.records), "rows": rows, "provenance": provenance()}


def _row(name: str, outcomes: list[Outcome]) -> dict[str, Any]:
    said = Counter(words for each in outcomes for words in each.said[:1])
    return {
        "fault": name,
        "times": len(outcomes),
        "struck": sum(each.struck for each in outcomes),
        "fits": sum(each.fits for each in outcomes),
        "same": sum(each.same for each in outcomes),
        **{count: sum(getattr(each, count) for each in outcomes) for count in _COUNTS},
        "told": sum(bool(each.said) for each in outcomes),
        "example": said.most_common(1)[0][0] if said else "",
        "misfits": [asdict(each) for each in outcomes if not (each.fits and each.same)],
    }


def _outcome(bench: Bench, name: str, case: int, *, seed: int, folder: Path) -> Outcome:
    """Injects a fault, and runs again until the table is there."""
    inject, _, wanted = FAULTS[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), case])
    bench.tally.write_bytes(b"")
    folder.mkdir()
    kept = folder / "runs"
    said = inject(bench, kept, case, rng)
    struck = "not struck" not in said
    before = Counter(bench.tally.read_bytes().split())
    held: set[str] = set()
    runs = stored = None
    for _ in range(_ROUNDS):
        held |= _held(kept, bench.facts)
        bench.tally.write_bytes(b"")
        try:
            with counted(bench.tally):
                runs = experiment().run(directory=kept)
            stored = load_runs(kept / f"{NAME}.parquet", expect=bench.facts)
            break
        except StoreError as error:
            said.append(f"{type(error).__name__}: {error}")
            _obey(kept, str(error))
        except Exception as error:  # nothing else may come of it: a misfit
            said.append(f"{type(error).__name__}: {error}")
            break
    again = Counter(bench.tally.read_bytes().split())
    known = {key.encode() for key in held}
    missing, corrupted = _compare(bench.alone, runs)
    told = [words for words in said if words not in ("done", "not struck")]
    # A tail cut off at the end of a line is a journal as it once was: nothing can be told.
    silent = name in ("bit flipped in the last line", "table damaged") and not told
    return Outcome(
        said=[words.replace(f"{kept}", "DIRECTORY") for words in told],
        fits=silent or fits(said, wanted),
        same=stored is not None
        and plain(runs).equals(plain(bench.alone))
        and plain(stored).equals(plain(bench.alone))
        and not [*kept.glob("*.jsonl"), *kept.glob("*.lock"), *kept.glob("*.partial")],
        lost=missing,
        doubled=sum(n - 1 for n in (before | again).values()) + len(known & again.keys()),
        corrupted=corrupted,
        struck=struck,
    )


def _held(folder: Path, facts: dict[str, Any]) -> set[str]:
    """Returns the runs that sound journals hold for the experiment."""
    held = set()
    for path in folder.glob("*.jsonl"):
        try:
            records = read_journal(path)
        except StoreError:
            continue
        if records and facts == records[0].get("facts", facts):
            held |= {record["cell"] for record in records if "cell" in record}
    return held


def _obey(folder: Path, words: str) -> None:
    """Does what an error asks for."""
    for path in [*folder.glob("*.jsonl"), *folder.glob("*.parquet")]:
        if path.name not in words:
            continue
        if "kt-lab doctor" in words:
            repair(path)
        elif "away" in words or "newer kt_lab" in words:
            path.rename(path.with_name(path.name + ".away"))


def _compare(alone: pd.DataFrame, runs: pd.DataFrame | None) -> tuple[int, int]:
    """Returns how many runs a table lacks, and how many differ."""
    keys = ["workload", "searcher", "lanes", "seed"]
    wanted = dict(list(plain(alone).groupby(keys, observed=True)))
    found = {} if runs is None else dict(list(plain(runs).groupby(keys, observed=True)))
    both = [key for key in wanted if key in found]
    differ = [k for k in both if not _rows(wanted[k]).equals(_rows(found[k]))]
    return len(wanted) - len(both), len(differ)


def _rows(run: pd.DataFrame) -> pd.DataFrame:
    return run.reset_index(drop=True)


def report(result: dict[str, Any]) -> str:
    """Returns the matrix for people."""
    rows = result["rows"]
    total = {name: sum(row[name] for row in rows) for name in ("times", "same", "fits", *_COUNTS)}
    lines = [f"{total['times']} faults in the stored runs of an experiment of {result['runs']}:"]
    for row in rows:
        lines.append(
            f"  {row['fault']:29s} {row['times']:3d} times, {row['told']:3d} told, "
            f"{row['fits']:3d} as it must be, {row['same']:3d} tables as if undisturbed; "
            f"{row['lost']} lost, {row['doubled']} doubled, {row['corrupted']} corrupted"
        )
    lines.append(
        f"{total['same']} of {total['times']} tables as if undisturbed; {total['lost']} runs "
        f"lost, {total['doubled']} computed twice, {total['corrupted']} silently corrupted; "
        f"{total['fits']} said what they must"
    )
    return "\n".join(lines)

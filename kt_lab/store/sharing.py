"""Shared: the runs of one table while several processes compute them together.

Every process appends to a journal of its own, `<name>.jsonl`, `<name>.1.jsonl` and so on, under a
lock that ends with it, and reads the journals of the others. Before it computes a run it says so
in its journal, while it holds `<name>.lock`; a claim counts as long as the journal that holds it
has a living writer, so the run of a process that died is taken over. Nothing depends on clocks.

On one machine no run is computed twice. Between machines that share a network file system with
working locks (NFS 4, Lustre with flock), one may see seconds late what another wrote, and then
compute a run once more; the first record of a run counts, and the table is the same.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

from kt_lab.closing import Closing
from kt_lab.errors import StoreError
from kt_lab.store.files import lock
from kt_lab.store.journal import Follower, Journal


class Shared(Closing):
    """The runs of one table, some of them still to be computed by this process or another.

    Attributes:
        runs: Key -> what is known of every finished run, in order of arrival.
    """

    def __init__(self, target: Path | None, facts: Mapping[str, Any]):
        """Takes up the journals that there are, and begins one, or goes on with a dead one's.

        Args:
            target: The table; the journals lie beside it. None: nothing is kept nor shared.
            facts: What makes two tables the same, in JSON types.

        Raises:
            StoreError: A journal is damaged, of another table, or cannot be written.
        """
        self.target, self._facts = target, facts
        # Every record says whose it is: a journal may lose the facts that it begins with.
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        self._of = {"of": digest[:16]}
        self.runs: dict[str, Any] = {}
        self._mine: set[str] = set()
        self._others: dict[Path, _Part] = {}
        self._taken: set[str] = set()
        self._journal: Journal | None = None
        if target is None:
            return
        with self.alone():
            own = next(path for path in _names(target) if _free(path))
            self._journal = Journal(own)
            try:
                self._note(_Part(own), self._journal.records)
                self._look()
                self._journal.append({"facts": facts}, sync=True)  # earlier claims end here
            except BaseException:
                self._journal.close()
                raise

    def alone(self) -> Any:
        """While open, no other process claims a run or writes the table."""
        return closing(lock(self.target.with_suffix(".lock"), wait=True))

    def claims(self, keys: Iterable[str]) -> Iterator[str]:
        """Yields runs that are to be computed by this process, each claimed as it is yielded.

        Those that another process has in hand are left out: ask again once they may have ended.
        """
        for key in keys:
            if key in self.runs or key in self._mine or key in self._taken:
                continue
            if self._journal is not None:
                with self.alone():
                    self._look()
                    if key in self.runs or key in self._taken:
                        continue
                    self._journal.append({"claim": key} | self._of)
            self._mine.add(key)
            yield key

    def add(self, key: str, run: Any) -> None:
        """Keeps a run that this process computed."""
        if self._journal is not None:
            self._journal.append({"cell": key, "rows": run} | self._of)
        self.runs[key] = run

    def look(self) -> None:
        """Takes in what other processes finished, and what they dropped by ending."""
        if self._journal is not None:
            with self.alone():
                self._look()

    def close(self) -> None:
        """Ends this process' part; the journals stay. May be called twice."""
        if self._journal is not None:
            self._journal.close()

    def _look(self) -> None:
        self._taken = set()
        for path in _journals(self.target):
            if path == self._journal.path:
                continue
            dead = _free(path)  # asked first: a writer says all that it has to say before it ends
            part = self._others.setdefault(path, _Part(path))
            self._note(part, part.read.fresh())
            self._taken |= set() if dead else part.claimed

    def _note(self, part: "_Part", records: Iterable[Mapping]) -> None:
        for record in records:
            if not part.known and record.get("of") != self._of["of"]:
                self._require_same(record.get("facts", {}), part.read.path.name)
            part.known = True
            if "facts" in record:  # a writer begins: those before it have ended
                part.claimed.clear()
            elif "claim" in record:
                part.claimed.add(record["claim"])
            else:
                part.claimed.discard(record["cell"])
                self.runs.setdefault(record["cell"], record["rows"])

    def _require_same(self, facts: Mapping[str, Any], name: str) -> None:
        if facts != self._facts:
            both = facts.keys() | self._facts.keys()
            other = sorted(k for k in both if facts.get(k) != self._facts.get(k))
            raise StoreError(
                f"a journal must belong to the same experiment, got other {', '.join(other)} in "
                f"{name}; give another name or directory, or move the journal away"
            )


class _Part:
    """What is known of one journal: whether it is of this table, what its writer has in hand."""

    def __init__(self, path: Path):
        self.read, self.known, self.claimed = Follower(path), False, set()


def sweep(target: Path) -> None:
    """Removes the journals of a table that is stored, unless somebody still reads or writes them.

    Whoever computes the table may call it, the last one with success.
    """
    left = [target.with_suffix(".lock"), *_journals(target)]
    if target.exists() and any(path.exists() for path in left):
        with suppress(FileNotFoundError, StoreError), closing(lock(left[0], wait=True)):
            if all(_free(path) for path in _journals(target)):
                for path in (*_journals(target), left[0]):
                    path.unlink()


def _free(path: Path) -> bool:
    """Whether nobody writes a journal; to be asked only by whoever is alone."""
    file = lock(path, wait=False)
    if file:
        file.close()
    return file is not None


def _names(target: Path) -> Iterator[Path]:
    # No experiment's name holds a plus, so nobody else's first journal is taken for ours.
    return (target.with_name(f"{target.stem}{f'+{n}' if n else ''}.jsonl") for n in count())


def _journals(target: Path) -> list[Path]:
    """Returns the journals of a table that there are."""
    ours = re.compile(re.escape(target.stem) + r"(\+\d+)?\.jsonl")
    folder = target.parent
    return sorted(p for p in folder.glob("*.jsonl") if ours.fullmatch(p.name))

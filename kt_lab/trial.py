"""The frozen records of a run: config, proposal, measurement, trial, history."""

import statistics
from collections.abc import Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kt_lab.errors import UsageError, whole
from kt_lab.parameters import plain

OK = "ok"
CENSORED = "censored"
STATUSES = (
    OK,
    CENSORED,
    "invalid",
    "compile_error",
    "launch_error",
    "wrong_result",
    "timeout",
    "crashed",
)


class Config(Mapping):
    """A complete, immutable, hashable assignment of values to parameter names."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None, /, **named: Any):
        """Copies the mapping; later changes to `values` are not seen."""
        self._values = dict(values or {}, **named)
        try:
            self._hash = hash(frozenset(self._values.items()))
        except TypeError:  # a file has lists for tuples
            self._values = {name: plain(value) for name, value in self._values.items()}
            self._hash = hash(frozenset(self._values.items()))

    def __getitem__(self, name: str) -> Any:
        """Returns the value of one parameter."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterates over parameter names in the space's order."""
        return iter(self._values)

    def __len__(self) -> int:
        """Returns the number of parameters."""
        return len(self._values)

    def keys(self) -> KeysView[str]:
        """Returns the parameter names: a dict's own view, which compares fast."""
        return self._values.keys()

    def __hash__(self) -> int:
        """Hashes by content, so that configs can be set members and dict keys."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Compares by content, with any mapping."""
        if isinstance(other, Config):
            return self._hash == other._hash and self._values == other._values
        return isinstance(other, Mapping) and self._values == dict(other)

    def __repr__(self) -> str:
        """Shows the config as the call that makes it."""
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"

    def __reduce__(self):
        """Pickles by content: the hash of a string differs between processes."""
        return Config, (self._values,)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A searcher's wish to have one config measured.

    Attributes:
        id: Unique within one searcher, in order of asking, from 0.
        config: What to measure. The same config may be proposed again to re-measure it.
        repetitions: How many timed launches; None leaves it to the runner.
        cutoff_us: Timing may stop early once the config is clearly slower than this, in
            microseconds; the measurement is then `censored`. None: never.
        origin: Which part of the algorithm wants it ("start", "neighbour", "polish", "retime"...).
        generation: Of an algorithm that has generations: 0 for the starts, then 1, 2...
        predicted: What the model said of the config when it chose it, in the unit that the
            searcher's class tells as `predicts`; None: no model chose it.
    """

    id: int
    config: Config
    repetitions: int | None = None
    cutoff_us: float | None = None
    origin: str = ""
    generation: int | None = None
    predicted: float | None = None

    def __post_init__(self):
        """Checks what a searcher of one's own may have mistaken."""
        if not isinstance(self.config, Config):
            got = f"got {self.config!r}; write Config({{...}}), or take one of the space"
            raise UsageError(f"a proposal's config must be a Config, {got}")
        if self.repetitions is not None:
            whole("repetitions", self.repetitions, low=1)
        if (cutoff := self.cutoff_us) is not None and not cutoff > 0:
            raise UsageError(f"cutoff_us must be > 0 microseconds, got cutoff_us={cutoff!r}")


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a runner found out about one proposal.

    Attributes:
        status: One of STATUSES.
        samples_us: Every timed launch in order, in microseconds, > 0; empty unless ok or censored.
        compile_s: Wall-clock seconds in the compile lane, >= 0; 0 when already compiled.
        check_s: Seconds of the correctness check in the timing lane.
        measure_s: All seconds in the timing lane, the check included.
        info: Extra facts by name (registers, shared_bytes, code_hash...).
        error: One line saying what went wrong; empty when ok.
    """

    status: str
    samples_us: tuple[float, ...] = ()
    compile_s: float = 0.0
    check_s: float = 0.0
    measure_s: float = 0.0
    info: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def __post_init__(self):
        """Refuses a status that nobody would know how to count, and times that cannot be."""
        if self.status not in STATUSES:
            raise UsageError(f"status must be one of {STATUSES}, got {self.status!r}")
        if self.status == OK and not (self.samples_us and all(us > 0 for us in self.samples_us)):
            raise UsageError(f"an 'ok' needs samples, each above 0 µs, got {self.samples_us}")

    @property
    def latency_us(self) -> float | None:
        """Median of the samples in microseconds; None unless the status is ok."""
        return statistics.median(self.samples_us) if self.status == OK else None

    @property
    def bound_us(self) -> float | None:
        """Lower bound of the latency of a censored reading, in microseconds; else None."""
        return min(self.samples_us) if self.status == CENSORED and self.samples_us else None


@dataclass(frozen=True, slots=True)
class Trial:
    """One numbered event of a run: proposal and measurement.

    Attributes:
        number: Position in the history, from 0, in order of completion.
        first: Whether this is the config's first measurement (only those spend budget trials).
        machine_s: Compile and timing clock at completion, seconds since the run began.
        search_s: The searcher's own CPU seconds so far (ask and tell, cumulative).
    """

    number: int
    proposal: Proposal
    measurement: Measurement
    first: bool = True
    machine_s: float = 0.0
    search_s: float = 0.0

    @property
    def config(self) -> Config:
        """The measured config."""
        return self.proposal.config

    @property
    def latency_us(self) -> float | None:
        """Median latency in microseconds; None unless the status is ok."""
        return self.measurement.latency_us

    @property
    def status(self) -> str:
        """The measurement's status."""
        return self.measurement.status

    @property
    def elapsed_s(self) -> float:
        """What a user would have waited: machine and searcher seconds."""
        return self.machine_s + self.search_s


def supersedes(*, old: int | None, new: int) -> bool:
    """Whether a reading of `new` repetitions replaces one of `old` as the config's value.

    A reading with at least as many repetitions wins, so that a lucky quick reading does not
    outlive a careful one. `old` is None when there is none.
    """
    return old is None or new >= old


class History(Sequence):
    """The ordered trials of one run, and what stands out of them.

    `kt_lab.cells.history_table` makes it the tidy table that `kt_lab.stats` reads.
    """

    def __init__(self, trials: Sequence[Trial] = ()):
        """Takes the trials in order of completion."""
        self._trials = tuple(trials)

    def __getitem__(self, index):
        """Returns one trial, or a History for a slice."""
        found = self._trials[index]
        return History(found) if isinstance(index, slice) else found

    def __len__(self) -> int:
        """Returns the number of trials, re-measurements included."""
        return len(self._trials)

    def __eq__(self, other: object) -> bool:
        """Compares trial by trial."""
        return isinstance(other, History) and self._trials == other._trials

    __hash__ = None

    @property
    def readings(self) -> dict[Config, Trial]:
        """The trial that stands for each config measured ok: most repetitions, then latest."""
        best: dict[Config, Trial] = {}
        for trial in self._trials:
            if trial.status == OK:
                old = best.get(trial.config)
                count = len(trial.measurement.samples_us)
                if supersedes(old=old and len(old.measurement.samples_us), new=count):
                    best[trial.config] = trial
        return best

    @property
    def incumbent(self) -> Trial | None:
        """The standing trial with the lowest median latency; None when nothing is ok."""
        return min(self.readings.values(), key=lambda t: (t.latency_us, t.number), default=None)

    @property
    def trials_spent(self) -> int:
        """First measurements of distinct configs, failures included."""
        return sum(trial.first for trial in self._trials)

    def count(self, status: str) -> int:
        """Returns how many trials ended with this status."""
        return sum(trial.status == status for trial in self._trials)

"""What the timing process is asked, and what it answers; all of it picklable."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kt_lab.errors import UsageError
from kt_lab.runners.c.memory import Block


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a program is timed: warm, in batches, until the machine was quiet.

    Attributes:
        samples: Batches in a round, >= 1; each gives one sample, its mean.
        batch_us: A batch has as many calls as take at least this long.
        limit_s: A round ends after its fifth sample once it has taken this long.
    """

    samples: int = 30
    batch_us: float = 200.0
    limit_s: float = 1.0

    def __post_init__(self):
        """Refuses a protocol without samples."""
        if self.samples < 1 or self.batch_us <= 0 or self.limit_s <= 0:
            raise UsageError(
                "a timing protocol has samples >= 1, batch_us > 0 and limit_s > 0, got "
                f"{self.samples}, {self.batch_us}, {self.limit_s}"
            )

    @property
    def name(self) -> str:
        """Names it in tables: "c-warm-30x200us"."""
        return f"c-warm-{self.samples}x{self.batch_us:g}us"


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled program; picklable.

    Attributes:
        path: Of the shared object.
        symbol: The function that takes an array of buffers.
        blocks: Its buffers, in order.
    """

    path: str
    symbol: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A task: run once on some inputs; answers the outputs."""

    binary: Binary
    inputs: Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Measure:
    """A task: check on every case, then time on the first; answers a Reading.

    Attributes:
        binary: What to measure.
        folder: Of the cases, as `store_case` wrote them.
        cases: Their names.
        tolerance: What `operators.error` may reach.
        protocol: How to time.
        cutoff_us: Timing may stop early once slower than this; None: never.
    """

    binary: Binary
    folder: str
    cases: tuple[str, ...]
    tolerance: float
    protocol: Protocol
    cutoff_us: float | None = None


@dataclass(frozen=True, slots=True)
class Race:
    """A task: time binaries in alternation; answers medians, shape (rounds, binaries).

    They work on the same inputs and outputs, as they would one at a time.

    Attributes:
        binaries: Checked before.
        folder: Of the cases.
        case: Whose inputs they get.
        order: Positions of the binaries in the order of timing, shape (rounds, binaries).
        samples: Batches of a binary in a round.
        batch_us: A batch has as many calls as take at least this long.
    """

    binaries: tuple[Binary, ...]
    folder: str
    case: str
    order: np.ndarray
    samples: int
    batch_us: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of a Measure.

    Attributes:
        status: ok, censored or wrong_result.
        error: What was wrong.
        samples_us: Means of the batches of the quietest round.
        check_s: Seconds of the check.
        deviation: The worst `operators.error` of all cases.
        calls: In a batch.
        rounds: That were timed.
        load: How many processes wanted to run, the mean of the last minute; NaN where unknown.
    """

    status: str
    error: str = ""
    samples_us: tuple[float, ...] = ()
    check_s: float = 0.0
    deviation: float = 0.0
    calls: int = 0
    rounds: int = 0
    load: float = float("nan")


def store_case(folder: Path, case: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the inputs and expected outputs of a case, by the names of their buffers."""
    (folder / case).mkdir()
    for name, array in arrays.items():
        np.save(folder / case / f"{name}.npy", array)

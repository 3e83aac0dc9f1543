"""Budget: the limit of a run in trials, in seconds, or both."""

import math
from dataclasses import dataclass
from numbers import Real

from kt_lab.errors import BudgetError


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used so far.

    Attributes:
        trials: First measurements of distinct configs, failures included.
        seconds: Machine seconds: compiling and timing, re-measurements included.
    """

    trials: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Budget:
    """The limit of a run; the run ends when either limit is reached.

    Attributes:
        trials: First measurements of distinct configs, >= 1; None: no limit.
        seconds: Machine seconds, > 0; None: no limit.

    Raises:
        BudgetError: Neither limit is given, or one of them allows nothing.
    """

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self):
        """Checks that the budget allows something."""
        if self.trials is None and self.seconds is None:
            raise BudgetError(
                "a budget must limit trials or seconds, got neither; pass trials=200"
            )
        for name, limit in (("trials", self.trials), ("seconds", self.seconds)):
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, Real)):
                raise BudgetError(f"Budget.{name} must be a number, got {name}={limit!r}")
        if self.trials is not None:
            if not (self.trials >= 1 and self.trials % 1 == 0):
                raise BudgetError(
                    f"Budget.trials must be a whole number >= 1, got trials={self.trials}"
                )
            object.__setattr__(self, "trials", int(self.trials))  # NumPy's are not JSON
        if self.seconds is not None and not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise BudgetError(f"Budget.seconds must be finite and > 0, got seconds={self.seconds}")
        if self.seconds is not None and not isinstance(self.seconds, int):
            object.__setattr__(self, "seconds", float(self.seconds))

    def done(self, spent: Spent) -> bool:
        """Whether either limit is reached."""
        return self.left(spent).trials == 0 or self.left(spent).seconds <= 0

    def left(self, spent: Spent) -> "Left":
        """Returns what may still be used; infinite where there is no limit."""
        trials = math.inf if self.trials is None else max(0, self.trials - spent.trials)
        seconds = math.inf if self.seconds is None else max(0.0, self.seconds - spent.seconds)
        return Left(trials=trials, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Left:
    """What a budget still allows: trials and machine seconds, math.inf where unlimited."""

    trials: float
    seconds: float

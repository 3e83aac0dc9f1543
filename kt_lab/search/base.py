"""The ask/tell base of every searcher, and the options that describe themselves to widgets."""

import dataclasses
import itertools
import numbers
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kt_lab.budget import Budget
from kt_lab.errors import UnknownName, UsageError, whole
from kt_lab.prior import Prior
from kt_lab.rows import ENUMERABLE
from kt_lab.space import ParameterSpace, Space
from kt_lab.trial import Config, Proposal, Trial


def option(
    default: Any,
    doc: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple | None = None,
) -> Any:
    """Returns a dataclass field that carries what a widget needs to edit it.

    Args:
        default: The value when the caller says nothing.
        doc: One sentence.
        unit: Unit of the value ("configs", "generations"); empty when it has none.
        low: Smallest value allowed, included.
        high: Largest value allowed, included.
        choices: The only values allowed.
    """
    metadata = {"doc": doc, "unit": unit, "low": low, "high": high, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Options:
    """Base of every searcher's options: checks type, range and choices of each field."""

    def __post_init__(self):
        """Checks every field against its metadata.

        Raises:
            UsageError: A value has the wrong type, or is outside its range or choices.
        """
        for field in dataclasses.fields(self):
            value = _typed(field, getattr(self, field.name), kinds_of(type(self), field))
            object.__setattr__(self, field.name, value)
            low, high, choices = (field.metadata.get(k) for k in ("low", "high", "choices"))
            if value is None:
                continue
            if choices is not None and value not in choices:
                raise UsageError(f"{field.name} must be one of {choices}, got {value!r}")
            if (low is not None and not value >= low) or (high is not None and not value <= high):
                raise UsageError(
                    f"{field.name} must be in [{'-inf' if low is None else low}, "
                    f"{'inf' if high is None else high}], got {field.name}={value!r}"
                )


def kinds_of(cls: type, field: dataclasses.Field) -> tuple:
    """Returns the types that a field of an options class may have: of a union, each."""
    kind = field.type
    if isinstance(kind, str):  # as `from __future__ import annotations` leaves them
        kind = typing.get_type_hints(cls)[field.name]
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def _typed(field: dataclasses.Field, value: Any, kinds: tuple) -> Any:
    """Returns the value as the field's own type, or raises UsageError."""
    is_bool = isinstance(value, bool)
    if (bool in kinds and is_bool) or (value is None and type(None) in kinds):
        return value
    if int in kinds and isinstance(value, numbers.Integral) and not is_bool:
        return int(value)
    if float in kinds and isinstance(value, numbers.Real) and not is_bool:
        return float(value)
    if str in kinds and isinstance(value, str):
        return value
    if {bool, int, float, str}.isdisjoint(kinds):
        return value  # a type of the searcher's own, checked by the searcher
    wanted = " or ".join(getattr(k, "__name__", str(k)) for k in kinds)
    raise UsageError(f"{field.name} must be of type {wanted}, got {field.name}={value!r}")


class Searcher(ABC):
    """An algorithm that is asked for proposals and told trials.

    It never sees a runner, a file or a clock. Subclasses write `ask` and `tell`, number their
    proposals with `propose`, and set `done` once they will never propose again.

    Attributes:
        name: The registry's name.
        Options: A frozen dataclass of `option` fields.
        needs: "Space", or "ParameterSpace" when the algorithm looks at parameters.
        enumerates: Whether it lists its ParameterSpace beforehand; it then refuses one that is
            too large for that, and the conformance suite asks for the refusal.
        predicts: What `Proposal.predicted` is: "p_good", the model's probability that the config
            is among the good; "latency_us", its mean in microseconds; None: there is none.
        space: What it chooses from.
        seed: Fixes every random choice.
        budget: The run's budget, or None; never enforced here.
        prior: What is known beforehand, or None.
        options: An instance of `Options`.
        done: True once it will never propose again.
        seeded: False when the algorithm, as configured, draws nothing: all seeds run alike.
    """

    name: ClassVar[str] = ""
    Options: ClassVar[type] = Options
    needs: ClassVar[str] = "Space"
    enumerates: ClassVar[bool] = False
    predicts: ClassVar[str | None] = None

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        budget: Budget | None = None,
        prior: Prior | None = None,
        **options: Any,
    ):
        """Checks the arguments; nothing is proposed yet.

        Raises:
            UnknownName: An option that `Options` does not have.
            UsageError: A value outside its range, a negative seed, or a space of a wrong kind or
                too large to be listed.
        """
        if self.needs == "ParameterSpace" and not isinstance(space, ParameterSpace):
            raise UsageError(
                f"searcher {self.name!r} needs a ParameterSpace, got {type(space).__name__}; "
                "use a searcher that takes any Space, such as 'random'"
            )
        if self.enumerates and not space.enumerable:
            raise UsageError(
                f"searcher {self.name!r} lists its space beforehand, which must have at most "
                f"{ENUMERABLE:,} combinations, got {space.cartesian_size:,}; restrict it with "
                "ParameterSpace.only, or use a searcher that lists nothing, such as 'lfbo_pattern'"
            )
        seed = whole("seed", seed, low=0)
        if not isinstance(prior, Prior | None):
            made = "kt_lab.transfer.known_prior makes one"
            raise UsageError(f"prior must be a Prior, got {prior!r}; {made}")
        known = [f.name for f in dataclasses.fields(self.Options)]
        for name in options:
            if name not in known:
                raise UnknownName(f"option of {self.name or type(self).__name__}", name, known)
        self.space = space
        self.seed = seed
        self.budget = budget
        self.prior = prior
        self.options = self.Options(**options)
        self.done = False
        self.seeded = True
        self._proposed = 0

    @abstractmethod
    def ask(self, n: int) -> list[Proposal]:
        """Returns up to n proposals; fewer or none while it waits for results, or when done."""

    @abstractmethod
    def tell(self, trials: Iterable[Trial]) -> None:
        """Learns from trials: in any order, failed, repeated, or never asked for."""

    def close(self) -> None:  # noqa: B027 - most searchers hold nothing
        """Lets go of resources; may be called more than once."""

    def propose(
        self,
        config: Config,
        *,
        repetitions: int | None = None,
        cutoff_us: float | None = None,
        origin: str = "",
        generation: int | None = None,
        predicted: float | None = None,
    ) -> Proposal:
        """Returns the next numbered proposal; ids count from 0 in order of asking."""
        asked = (repetitions, cutoff_us, origin, generation, predicted)
        proposal = Proposal(self._proposed, config, *asked)
        self._proposed += 1
        return proposal


def count(n: int) -> int:
    """Returns how many proposals are asked for, or raises UsageError."""
    return whole("n", n, low=0)


def prior_configs(space: Space, prior: Prior | None) -> Sequence[Config]:
    """Returns the prior's configs that worked and are members of the space, each once.

    The sources take turns, the nearest first, each in its own order: the best of every one, then
    the second best.
    """
    sources: dict[tuple[str, str], list[Config]] = {}
    for r in sorted(prior.readings if prior else (), key=lambda r: r.octaves):
        if r.latency_us is not None and space.contains(r.config):
            sources.setdefault((r.workload, r.gpu), []).append(r.config)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*sources.values()))
    return list(dict.fromkeys(config for config in turns if config is not None))

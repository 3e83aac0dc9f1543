"""Tuning keys: what of a call a pick depends on, and the table from its values to configs.

A key that is too short shares one pick among calls that want different ones; a key that is too
long tunes again for nothing; a name that no argument has keys on nothing at all. So a key is an
object that is checked, evaluated and compared (`kt_lab.stats.keyed`) before it is used.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kt_lab.constraints import Constraint
from kt_lab.decisions import Winner
from kt_lab.errors import UnknownName, UsageError
from kt_lab.space import ParameterSpace
from kt_lab.trial import Config
from kt_lab.workload import Kernel, Workload

BESIDE = ("dtype", "gpu")
"""What a key may name beside the extents of a shape, or the arguments of a function."""


@dataclass(frozen=True)
class Key:
    """What a pick depends on.

    Attributes:
        terms: Expressions over extents, "dtype" and "gpu" in the language of
            `kt_lab.constraints`: "N", "next_power_of_two(M)" (one bucket per doubling),
            "cdiv(M, G)" (rows of a mean group), "M <= 16". None: one pick for every call. A text
            is one term.
        edges: Buckets of a term by explicit edges: {"M": (16, 256)} makes its value 0 up to and
            including 16, 1 up to 256, 2 beyond.

    Raises:
        ConstraintError: A term is outside the language.
        UsageError: Terms repeat, or edges do not increase or belong to no term.
    """

    terms: tuple[str, ...] = ()
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    _parsed: tuple[Constraint, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self):
        """Parses the terms and copies the edges into an immutable mapping."""
        one = isinstance(self.terms, str)  # Key("N") would else be of the text's characters
        object.__setattr__(self, "terms", (self.terms,) if one else tuple(self.terms))
        object.__setattr__(self, "edges", Config({k: tuple(v) for k, v in self.edges.items()}))
        object.__setattr__(self, "_parsed", tuple(Constraint(t, t) for t in self.terms))
        if len(set(self.terms)) < len(self.terms):
            raise UsageError(f"the terms of a key must differ, got {', '.join(self.terms)}")
        for term, edges in self.edges.items():
            if term not in self.terms or any(b <= a for a, b in pairwise(edges)):
                raise UsageError(
                    f"edges must increase and belong to a term of the key, got {term}: {edges}; "
                    f"terms: {', '.join(self.terms)}"
                )

    @property
    def names(self) -> frozenset[str]:
        """Everything that the terms name."""
        return frozenset().union(*(term.names for term in self._parsed))

    def check(self, kernel: Kernel) -> "Key":
        """Returns the key if every workload of a kernel has all that it names.

        Raises:
            UnknownName: The key names something else.
        """
        known = set.intersection(*({*w.extents, *BESIDE} for w in kernel.workloads))
        for name in sorted(self.names - known):
            raise UnknownName(f"a tuning key's argument of {kernel.name}", name, known)
        return self

    def __call__(self, workload: Workload, *, gpu: str = "") -> tuple:
        """Returns the key's value for a workload: integers, booleans and texts.

        Args:
            workload: The shape and dtype.
            gpu: Short name of the GPU, for keys that name it.
        """
        facts = {**workload.extents, "dtype": workload.dtype} | ({"gpu": gpu} if gpu else {})
        if unknown := sorted(self.names - facts.keys()):
            raise UnknownName(f"a tuning key's argument of {workload.key}", unknown[0], facts)
        values = {term.name: term.value(facts).item() for term in self._parsed}
        values |= {term: bisect_left(ends, values[term]) for term, ends in self.edges.items()}
        return tuple(values.values())


@dataclass(frozen=True)
class Dispatch:
    """Which config to use for which value of a key; the kernel's default for every other value.

    Attributes:
        key: What the configs depend on.
        configs: Config by value of the key.
    """

    key: Key
    configs: Mapping[tuple, Config]

    def config(
        self,
        workload: Workload,
        default: Config,
        *,
        gpu: str = "",
        space: ParameterSpace | None = None,
    ) -> Config:
        """Returns the config of a workload, in its own parameters; on a miss its default.

        Args:
            workload: The shape and dtype.
            default: What it uses where nothing was decided.
            gpu: Short name of the GPU, for keys that name it.
            space: Of the workload: a config of another shape with the same key that is no member,
                as one that takes ends to be aligned, is a miss.
        """
        found = carried(self.configs.get(self.key(workload, gpu=gpu), default), default)
        return found if space is None or space.contains(found) else default

    @classmethod
    def of_winners(
        cls, key: Key, decided: Sequence[Winner], *, others: Sequence[Workload] = ()
    ) -> "Dispatch":
        """Returns the table of decisions; where workloads differ, the default stays.

        Args:
            key: What tells them apart.
            decided: Of one kernel and GPU, each with the config of its workload.
            others: Workloads that use the default.
        """
        default = {key(w, gpu=winner.gpu) for w in others for winner in decided[:1]}
        configs: dict[tuple, set[Config]] = {}
        for winner in decided:
            about = Workload(winner.kernel, winner.workload, winner.extents, winner.dtype)
            configs.setdefault(key(about, gpu=winner.gpu), set()).add(winner.config)
        agreed = {v: next(iter(c)) for v, c in configs.items() if len(c) == 1}
        return cls(key, {v: c for v, c in agreed.items() if v not in default})


def carried(config: Config, default: Config) -> Config:
    """Returns a config of another workload in the parameters of this one.

    A parameter that this one lacks is left out, one that only it has gets its default.

    Args:
        config: Of the other workload.
        default: Of this one.
    """
    if config.keys() == default.keys():
        return config
    return Config({name: config.get(name, value) for name, value in default.items()})

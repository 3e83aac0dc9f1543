"""The search algorithms of the real Helion as searchers: its own classes, not reproductions.

Needs the package `helion` (1.4.0 and 1.5.1 are tested), but neither Triton nor a GPU. Helion's
classes get the space and a benchmark provider that hands over; algorithm, random numbers and
surrogate are Helion's own. How parameters become Helion's fragments is `mapping`; it matters more
than the choice of the algorithm, so report it with results.

What differs from Helion tuning its own kernels: finalisation is left out (`kt_lab.confirm` does it
for every searcher alike), and so is what needs a compiler (adaptive compile timeouts, seeds from
compiler heuristics). The surrogate's forest runs on one thread: sums of probabilities then do not
depend on which thread was first, and equal readings give equal proposals.

What differs between the releases: 1.5.1 labels its surrogate with re-timed readings, selects at
least two candidates a step, lets rejected ones be proposed again and polishes after the last
generation; 1.4.0 does none of that, and its `invalid="viable"` is added here in 1.5.1's manner.
"""

import importlib
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import ClassVar

from kt_lab.errors import UsageError, install
from kt_lab.parameters import Parameter
from kt_lab.search.base import Options, option, prior_configs
from kt_lab.search.peers.handoff import PeerSearcher, Search
from kt_lab.space import ParameterSpace


@dataclass(frozen=True, slots=True)
class Axis:
    """How Helion sees one parameter.

    Attributes:
        name: The parameter's name.
        kind: The parameter's kind in kt_lab.
        role: The parameter's role in kt_lab, or None.
        fragment: Helion's class for it; "BlockSizeFragment" and "NumWarpsFragment" carry a role.
        role_in_helion: "block_size", "num_warps" or "" - what Helion moves first and shrinks.
        coded: Whether Helion sees the position among the values instead of the value.
    """

    name: str
    kind: str
    role: str | None
    fragment: str
    role_in_helion: str
    coded: bool


def mapping(space: ParameterSpace) -> list[dict]:
    """Returns the table of how each parameter of a space becomes a fragment of Helion's.

    | parameter | fragment | Helion's neighbours and encoding |
    |---|---|---|
    | role tile, consecutive powers of two | BlockSizeFragment | double or halve; log2 |
    | role tile, other positive integers | IntegerFragment as a block size, coded | next value |
    | role warps, consecutive powers of two | NumWarpsFragment | double or halve; log2 |
    | PowerOfTwo | PowerOfTwoFragment | double or halve; log2 |
    | Integer by steps of 1 | IntegerFragment | plus or minus 1; the number |
    | Integer by larger steps | IntegerFragment, coded | next value; its position |
    | Ordered | IntegerFragment, coded | next value; its position |
    | Choice | EnumFragment, coded | any other; one-hot; the default comes first |
    | Flag | BooleanFragment | the other; 0 or 1 |

    The first line that fits counts. Block sizes are moved in every proposal, in pairs by
    PatternSearch, and halved in random draws until a thread holds few enough elements; warps are
    moved in every proposal. The role stages means nothing to Helion.

    Args:
        space: Any space of parameters.

    Returns:
        One row per parameter, in order: name, kind, role, fragment, role_in_helion, coded.
    """
    return [asdict(axis(parameter)) for parameter in space.parameters]


def axis(parameter: Parameter) -> Axis:
    """Returns how Helion sees one parameter; see `mapping`."""
    role, kind = parameter.role, type(parameter).__name__
    values = parameter.values
    sized = all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in values)
    meant, coded = "", False
    if role in ("tile", "warps") and sized and _doubling(sorted(values)):
        fragment, meant = _ROLES[role]
    elif role == "tile" and sized:
        fragment, meant, coded = "IntegerFragment", "block_size", True
    elif kind in _FRAGMENTS:
        fragment = _FRAGMENTS[kind]
        coded = kind in ("Choice", "Ordered") or (kind == "Integer" and parameter.step != 1)
    else:
        raise UsageError(
            f"Helion's fragments must be one of {', '.join(_FRAGMENTS)}, got {kind} "
            f"{parameter.name!r}; use a searcher of kt_lab"
        )
    return Axis(parameter.name, kind, role, fragment, meant, coded)


_ROLES = {"tile": ("BlockSizeFragment", "block_size"), "warps": ("NumWarpsFragment", "num_warps")}
_FRAGMENTS = {
    "PowerOfTwo": "PowerOfTwoFragment",
    "Integer": "IntegerFragment",
    "Ordered": "IntegerFragment",
    "Choice": "EnumFragment",
    "Flag": "BooleanFragment",
}


def _doubling(values: list[int]) -> bool:
    return values[0] & (values[0] - 1) == 0 and all(b == 2 * a for a, b in pairwise(values))


@dataclass(frozen=True)
class HelionOptions(Options):
    """What every algorithm of Helion's has; sizes are those of its effort profile."""

    effort: str = option(
        "full",
        "Helion's profile of population, copies and generations.",
        choices=("full", "quick"),
    )
    invalid: str = option(
        "viable",
        'Moves to invalid configs: "viable" drops them before measuring and replaces invalid '
        'random starts, as Helion screens by its backend; "reject" drops them as invalid, and '
        "random starts are not replaced. Neither costs a measurement.",
        choices=("viable", "reject"),
    )
    starts: str = option(
        "helion",
        'Initial configs after the default and the prior: "helion" is what the effort means '
        '(full: Helion\'s shrunk random draws; quick: none); "random" draws them at any effort; '
        '"uniform" draws uniformly from the valid configs.',
        choices=("helion", "random", "uniform"),
    )
    population: int | None = option(
        None,
        "Size of the initial population, or of a population that evolves; None: Helion's.",
        unit="configs",
        low=2,
        high=10_000,
    )
    max_generations: int | None = option(
        None, "Generations at most; None: Helion's.", unit="generations", low=1, high=1000
    )
    rebenchmark_repetitions: int = option(
        40,
        "Timed launches of a re-timing (Helion re-times for four times as long as it times).",
        unit="launches",
        low=1,
        high=100_000,
    )


class HelionSearcher(PeerSearcher):
    """A search class of the real Helion, asked and told."""

    Options: ClassVar[type] = HelionOptions
    algorithm: ClassVar[str] = ""

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace and imports Helion; see `Searcher`.

        Raises:
            UsageError: Helion is not installed, or cannot be imported here.
        """
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        for parameter in space.parameters:
            axis(parameter)
        _driver(self.name)

    def _job(self) -> Search:
        driver = _driver(self.name)
        task = driver.Task(
            space=self.space,
            algorithm=self.algorithm,
            seed=self.seed,
            options=self.options,
            seeds=tuple(prior_configs(self.space, self.prior)),
        )
        return lambda measure: driver.search(task, measure)


def _driver(name: str):
    try:
        return importlib.import_module("kt_lab.search.peers.helion_driver")
    except ImportError as error:
        raise UsageError(
            f"searcher {name!r} needs the package helion, but importing it failed "
            f"({error}); install it: {install('peers')}"
        ) from error


class LFBOTree(HelionSearcher):
    """Helion's default: likelihood-free Bayesian optimisation guided by single trees."""

    name, algorithm = "helion_lfbo_tree", "LFBOTreeSearch"


class LFBOPattern(HelionSearcher):
    """Helion's likelihood-free Bayesian optimisation over random neighbours."""

    name, algorithm = "helion_lfbo_pattern", "LFBOPatternSearch"


class Pattern(HelionSearcher):
    """Helion's exhaustive descents."""

    name, algorithm = "helion_pattern", "PatternSearch"


class DifferentialEvolution(HelionSearcher):
    """Helion's differential evolution, a whole generation per batch as in live Helion.

    At quick effort Helion starts it from one config and stops with an error, as mutation needs
    four; here it then starts from random configs.
    """

    name, algorithm = "helion_de", "DifferentialEvolutionSearch"


class DESurrogate(HelionSearcher):
    """Helion's differential evolution with trials chosen by a random forest."""

    name, algorithm = "helion_de_surrogate", "DESurrogateHybrid"


class Random(HelionSearcher):
    """Helion's random search: one batch, measured once."""

    name, algorithm = "helion_random", "RandomSearch"

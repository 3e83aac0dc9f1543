"""Every Optuna sampler that proposes by itself, made fair on constrained, discrete spaces.

The distributions, the projection of infeasible and repeated asks, and the counts of burnt asks
are those of `kt_lab.search.tpe`; `sampler="tpe"` proposes exactly what that searcher does. A
projected trial keeps what the sampler noted about the asked one, so that an evolutionary sampler
counts it as a member of its generation, with the genes that were measured. Optuna 5.0's samplers:

- "tpe": tree-structured Parzen estimator, `TPESampler`;
- "gp": Gaussian process, Matern 5/2 with automatic relevance, log expected improvement,
  `GPSampler`; needs torch, and about a second of CPU time per ask. A failure counts as the worst
  finite reading;
- "cmaes": covariance matrix adaptation, `CmaEsSampler`; needs cmaes. Choices and flags are drawn
  at random, for it models none of them;
- "qmc": Sobol' points, `QMCSampler`, scrambled, or every seed would run alike;
- "random": independent uniform parameters, `RandomSampler`;
- "nsgaii", "nsgaiii": genetic algorithms, here with one objective.

Not offered: `GridSampler` and `BruteForceSampler` list the space in an order of their own, which
the searcher "random" does better; `PartialFixedSampler` wraps another one.
"""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from kt_lab.errors import UsageError
from kt_lab.search.base import option
from kt_lab.search.tpe import TPEOptions, TPESearch
from kt_lab.trial import Config

_SAMPLERS = {  # name -> class in optuna.samplers, options that it takes, package that it needs
    "tpe": (
        "TPESampler",
        ("n_startup_trials", "n_ei_candidates", "multivariate", "constant_liar"),
        "",
    ),
    "gp": ("GPSampler", ("n_startup_trials",), "torch"),
    "cmaes": ("CmaEsSampler", ("n_startup_trials", "population_size"), "cmaes"),
    "qmc": ("QMCSampler", ("scramble",), ""),
    "random": ("RandomSampler", (), ""),
    "nsgaii": ("NSGAIISampler", ("population_size",), ""),
    "nsgaiii": ("NSGAIIISampler", ("population_size",), ""),
}


@dataclass(frozen=True)
class OptunaOptions(TPEOptions):
    """Options of `optuna`; a sampler reads those that it has, None is its own default."""

    n_startup_trials: int | None = option(
        None,
        "Random configs before the model of tpe, gp or cmaes is used; None: 10, 10 and 1.",
        unit="configs",
        low=0,
        high=100_000,
    )
    sampler: str = option("tpe", "Which of Optuna's samplers.", choices=tuple(_SAMPLERS))
    population_size: int | None = option(
        None,
        "Members of a generation of cmaes, nsgaii or nsgaiii; None: 4 + floor(3 ln d) for d "
        "ordered parameters, 50 and 50.",
        unit="configs",
        low=2,
        high=10_000,
    )
    scramble: bool = option(
        True, "Randomise the points of qmc by the seed. False is Optuna's default."
    )


class OptunaSearch(TPESearch):
    """One of Optuna's samplers, through ask and tell; see `TPESearch` for counts and failures."""

    name: ClassVar[str] = "optuna"
    Options: ClassVar[type] = OptunaOptions

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`.

        Raises:
            UsageError: The sampler needs a package that is not installed.
        """
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        self._label = self.options.sampler
        package = _SAMPLERS[self._label][-1]
        if package and importlib.util.find_spec(package) is None:
            raise UsageError(
                f"Optuna's sampler {self._label!r} needs the package {package}, which is not "
                f"installed; install {package}, or pass another sampler than {self._label!r}"
            )

    def _sampler(self) -> Any:
        import optuna

        kind, names, _ = _SAMPLERS[self._label]
        given = {n: v for n in names if (v := getattr(self.options, n)) is not None}
        if kind == "CmaEsSampler":
            given |= {"warn_independent_sampling": False}
            if "population_size" in given:
                given["popsize"] = given.pop("population_size")
        with _unwarned():  # that qmc and nsgaiii are experimental
            return getattr(optuna.samplers, kind)(seed=self.seed % 2**32, **given)

    def _ask(self) -> tuple[Config, bool, int]:
        with (
            _unwarned()
        ):  # that gp reads an infinite value as the worst finite one: it is meant to
            return super()._ask()


@contextmanager
def _unwarned() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

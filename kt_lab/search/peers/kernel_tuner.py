"""The search strategies of the real Kernel Tuner as searchers: its own code, not reproductions.

Needs the package `kernel-tuner` (1.5.0 is tested), but no GPU. A strategy gets Kernel Tuner's own
`Searchspace` and `CostFunc`, and a runner that hands over. Options are the strategy's own, with
its defaults (`_options` in its module of `kernel_tuner.strategies`); Kernel Tuner's authors have
tuned some of these on kernels of theirs, so they are not arbitrary.

What Kernel Tuner sees:

- Parameters: the position of a value among its parameter's values, 0, 1, 2... Every strategy here
  looks at positions only, so this changes nothing for ordered kinds (PowerOfTwo, Integer), whose
  "adjacent" values stay adjacent. Flag and Choice are ordered too, as given: Kernel Tuner knows
  no unordered parameter. (Strings would do, but the order of a set of strings differs from one
  process to the next, and one strategy draws in it.)
- The valid configs: a list of the members, in the order in which its solver finds them. Which of
  them fail it learns by measuring: a failure costs a trial and is an error config, 1.8e308 to the
  strategy.
- Latencies: milliseconds, as its own. Two strategies accept slow-downs by exp(-slow-down/T) with
  T <= 1, without scaling: on kernels of microseconds they then accept nearly every one.
- The budget: `max_fevals` is the budget's trials, or the size of the space without such a budget.
  Distinct configs count, as in Kernel Tuner's simulation; its live runner counts repeats too.

Kernel Tuner's strategies start from random configs: neither the default nor a prior is used.
"""

import importlib
from dataclasses import asdict, dataclass
from typing import ClassVar

from kt_lab.errors import UsageError, install
from kt_lab.search.base import Options, option
from kt_lab.search.peers.handoff import PeerSearcher, Search


class KernelTunerSearcher(PeerSearcher):
    """A strategy of the real Kernel Tuner, asked and told."""

    strategy: ClassVar[str] = ""
    enumerates = True

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace and imports Kernel Tuner; see `Searcher`.

        Raises:
            UsageError: Kernel Tuner cannot be imported here, or the space is too large to list.
        """
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        _driver(self.name)

    def _job(self) -> Search:
        driver = _driver(self.name)
        task = driver.Task(
            space=self.space,
            strategy=self.strategy,
            options={_NAMES.get(n, n): v for n, v in asdict(self.options).items()},
            trials=self.budget.trials if self.budget else None,
        )
        return lambda measure: driver.search(task, measure)


def _driver(name: str):
    try:
        return importlib.import_module("kt_lab.search.peers.kernel_tuner_driver")
    except ImportError as error:
        raise UsageError(
            f"searcher {name!r} needs the package kernel-tuner, but importing it failed "
            f"({error}); install it: {install('peers')}"
        ) from error


_NAMES = {"evaluations": "budget"}  # a searcher has a budget of its own
_AWARE = "Whether moves that break a constraint are repaired (else they cost nothing and fail)."


@dataclass(frozen=True)
class GreyWolfOptions(Options):
    """Options of `gen_adaptive_tabu_greywolf.py`."""

    evaluations: int = option(
        5000,
        "Evaluations at most, repeats included, over which it cools; Kernel Tuner's `budget`.",
        unit="configs",
        low=1,
    )
    pack_size: int = option(8, "Wolves.", unit="configs", low=3)
    tabu_factor: int = option(3, "Length of the tabu list, in packs.", unit="packs", low=0)
    shake_rate: float = option(
        0.2, "Share of moves that are shaken, to begin with.", low=0, high=1
    )
    jump_rate: float = option(0.15, "Share of shakes that jump.", low=0, high=1)
    stagn_limit: int = option(
        80, "Rounds without progress before a restart.", unit="rounds", low=1
    )
    restart_ratio: float = option(0.3, "Share of the pack that restarts.", low=0, high=1)
    t0: float = option(1.0, "Temperature to begin with.", unit="ms", low=0)
    t_decay: float = option(5.0, "How fast it cools: exp(-t_decay) over the budget.", low=0)
    t_min: float = option(1e-4, "Lowest temperature.", unit="ms", low=1e-12)
    constraint_aware: bool = option(True, _AWARE)


@dataclass(frozen=True)
class VNDXOptions(Options):
    """Options of `gen_hybrid_vndx.py`."""

    evaluations: int = option(
        5000,
        "Evaluations at most, repeats included; Kernel Tuner's `budget`.",
        unit="configs",
        low=1,
    )
    k: int = option(5, "Nearest configs that predict.", unit="configs", low=1)
    cand_pool: int = option(8, "Candidates for each evaluation.", unit="configs", low=2)
    restart_iter: int = option(
        100, "Rejected moves in a row before a restart.", unit="moves", low=1
    )
    tabu_size: int = option(300, "Length of the tabu list.", unit="configs", low=0)
    elite_size: int = option(5, "Configs that cross.", unit="configs", low=1)
    temp0: float = option(1.0, "Temperature to begin with.", unit="ms", low=0)
    cooling: float = option(0.995, "Factor of the temperature per move.", low=0, high=1)
    constraint_aware: bool = option(True, _AWARE)


@dataclass(frozen=True)
class GeneticOptions(Options):
    """Options of `genetic_algorithm.py`."""

    popsize: int = option(26, "Size of a generation.", unit="configs", low=2)
    maxiter: int = option(90, "Generations at most.", unit="generations", low=1)
    method: str = option(
        "single_point",
        "How two configs cross.",
        choices=("single_point", "two_point", "uniform", "disruptive_uniform"),
    )
    mutation_chance: int = option(55, "One child in so many mutates.", unit="children", low=1)
    constraint_aware: bool = option(True, _AWARE)


@dataclass(frozen=True)
class DualAnnealingOptions(Options):
    """Options of `dual_annealing.py`."""

    method: str = option(
        "COBYLA",
        "SciPy's method of local search.",
        choices=(
            *("COBYLA", "L-BFGS-B", "SLSQP", "CG"),
            *("Powell", "Nelder-Mead", "BFGS", "trust-constr"),
        ),
    )


@dataclass(frozen=True)
class BayesOptions(Options):
    """Options of `bayes_opt.py`, whose default method is "multi-ultrafast".

    That method reads the clock, so that equal readings would not give equal proposals. Where
    measuring three configs takes more than five times as long as predicting all, as with real
    kernels, it does what "multi-fast" does, which is the default here.
    """

    covariancekernel: str = option(
        "matern32",
        "Covariance of the Gaussian process.",
        choices=("constantrbf", "rbf", "matern32", "matern52"),
    )
    covariancelengthscale: float = option(1.5, "Its length scale; an axis is 1 long.", low=1e-6)
    method: str = option(
        "multi-fast",
        "Acquisition function, or how several take turns.",
        choices=("poi", "ei", "lcb", "lcb-srinivas", "multi", "multi-advanced", "multi-fast"),
    )
    samplingmethod: str = option(
        "lhs", "How the first configs are drawn.", choices=("lhs", "random")
    )
    popsize: int = option(20, "Configs drawn first.", unit="configs", low=1)


@dataclass(frozen=True)
class GreedyILSOptions(Options):
    """Options of `greedy_ils.py`."""

    neighbor: str = option("Hamming", "What a neighbour is.", choices=("Hamming", "adjacent"))
    restart: bool = option(True, "Whether to move to the first improvement instead of the best.")
    no_improvement: int = option(
        50, "Descents without progress before a random start.", unit="descents", low=1
    )
    random_walk: float = option(
        0.3, "Random moves between descents, as a share of the parameters.", low=0, high=1
    )


class GreyWolf(KernelTunerSearcher):
    """Kernel Tuner's adaptive tabu grey wolf, which a language model designed."""

    name, strategy = "kt_adaptive_tabu_greywolf", "gen_adaptive_tabu_greywolf"
    Options: ClassVar[type] = GreyWolfOptions


class HybridVNDX(KernelTunerSearcher):
    """Kernel Tuner's variable neighbourhood descent, which a language model designed.

    As released (1.5.0), its elite is the slowest configs: the heap that keeps it drops the least.
    """

    name, strategy = "kt_hybrid_vndx", "gen_hybrid_vndx"
    Options: ClassVar[type] = VNDXOptions


class Genetic(KernelTunerSearcher):
    """Kernel Tuner's genetic algorithm, a generation per batch."""

    name, strategy = "kt_genetic", "genetic_algorithm"
    Options: ClassVar[type] = GeneticOptions


class DualAnnealing(KernelTunerSearcher):
    """Kernel Tuner's dual annealing, which is SciPy's over the cube of positions.

    It stops after about `max_fevals` evaluations, of which repeats and invalid configs are most:
    of 200 trials it uses about 60.
    """

    name, strategy = "kt_dual_annealing", "dual_annealing"
    Options: ClassVar[type] = DualAnnealingOptions


class BayesOpt(KernelTunerSearcher):
    """Kernel Tuner's Bayesian optimisation over the listed space.

    As released (1.5.0), its model takes the 1.8e308 of the first failure for a reading, predicts
    nothing but NaN from then on, and the search follows the order of the list.
    """

    name, strategy = "kt_bayes_opt", "bayes_opt"
    Options: ClassVar[type] = BayesOptions


class GreedyILS(KernelTunerSearcher):
    """Kernel Tuner's greedy iterated local search.

    As released (1.5.0), it breaks (PeerError) at a config that has no neighbours.
    """

    name, strategy = "kt_greedy_ils", "greedy_ils"
    Options: ClassVar[type] = GreedyILSOptions

"""Optuna's TPE, made fair on constrained, discrete spaces.

Optuna 5.0 defaults: `TPESampler(n_startup_trials=10, n_ei_candidates=24, multivariate=None,
constant_liar=True)`; None means multivariate for one objective. Optuna 4 defaulted to independent
parameters and no constant liar, which is a different algorithm: a result should name version and
flags. Ordered parameters are `IntDistribution`s over value indices (so a PowerOfTwo is searched by
its exponent), Choice and Flag are `CategoricalDistribution`s.

Optuna knows neither hard constraints nor duplicates, so an ask that is infeasible or already seen
is projected to the nearest unseen valid config, and TPE is told about that one: the asked trial is
ended as FAIL, a state that TPE never reads, and a RUNNING trial at the projected position takes
its place. The constant liar therefore sees pending configs where they really are.
"""

import importlib
import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from kt_lab.parameters import Flag
from kt_lab.search.base import Options, Searcher, count, option
from kt_lab.search.starts import uniform
from kt_lab.trial import Config, Proposal, Trial

_PENALTY = math.inf  # TPE ranks values and nothing else: a failure is worse than any reading
_VERBOSITY = threading.Lock()


@dataclass(frozen=True)
class TPEOptions(Options):
    """Options of `tpe`; every default is Optuna 5.0's."""

    n_startup_trials: int = option(
        10, "Random configs before the model is used.", unit="configs", low=0, high=100_000
    )
    n_ei_candidates: int = option(
        24, "Candidates that the acquisition is maximised over.", low=1, high=100_000
    )
    multivariate: bool | None = option(
        None, "Model parameters jointly; None: Optuna's default, which is to do so."
    )
    constant_liar: bool = option(True, "Treat pending configs as bad, so that batches spread.")
    project: bool = option(
        True,
        "Move infeasible and repeated asks to the nearest unseen valid config. False is plain "
        "TPE: infeasible asks are told as failures for free, repeated ones are measured again.",
    )
    max_burnt: int = option(
        1000,
        "Without projection: asks in a row that may bring nothing new before a uniformly random "
        "unseen config is proposed instead.",
        unit="asks",
        low=1,
        high=10**6,
    )


class TPESearch(Searcher):
    """Tree-structured Parzen estimator by Optuna, through ask and tell.

    Failures, and infeasible asks when `project` is False, are told as infinitely slow, never as
    FAIL (which would hide them, so that they are proposed again). A re-measurement or a config
    that was not asked for is added as one more observation. A prior is ignored.

    Attributes:
        projected_invalid: Infeasible asks that were moved to a valid config.
        projected_duplicate: Feasible asks of seen configs that were moved to an unseen one.
        burnt: Infeasible asks told as failures without a measurement (`project=False` only).
        repeated: Asks of a seen config, measured again (`project=False` only).
    """

    name: ClassVar[str] = "tpe"
    Options: ClassVar[type] = TPEOptions
    needs: ClassVar[str] = "ParameterSpace"
    _label: str = "tpe"  # origin of what is proposed as it was asked for

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; the study is made at the first ask or tell."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        importlib.import_module("optuna")  # here, so that no ask is charged for it
        self.projected_invalid = 0
        self.projected_duplicate = 0
        self.burnt = 0
        self.repeated = 0
        self._idle = 0  # asks in a row without a new config
        self._study: Any = None
        self._distributions: dict[str, Any] = {}
        self._created = 0  # Optuna numbers its trials from 0
        self._pending: dict[int, tuple[Config, int]] = {}  # proposal id -> config, Optuna's number
        self._seen: dict[Config, None] = {}  # members asked for or told

    def ask(self, n: int) -> list[Proposal]:
        """Returns n proposals; fewer once every config of the space has been seen.

        Without projection also once as many have been as the budget has trials.
        """
        self._open()
        proposals: list[Proposal] = []
        wanted, most = count(n), self.space.size if self.space.enumerable else math.inf
        if not self.options.project:  # else repeats, which spend no trial, go on and on
            most = min(most, getattr(self.budget, "trials", None) or math.inf)
        while len(proposals) < wanted and not self.done:
            if len(self._seen) >= most:
                self.done = True
                break
            found = self._projected() if self.options.project else self._plain()
            if found is None:
                self.done = True
                break
            config, number, origin = found
            self._seen[config] = None
            proposals.append(self.propose(config, origin=origin))
            self._pending[proposals[-1].id] = config, number
        return proposals

    def tell(self, trials: Iterable[Trial]) -> None:
        """Tells Optuna where each config really lies; foreign members become observations."""
        self._open()
        for trial in trials:
            value = _value(trial)
            config, number = self._pending.get(trial.proposal.id, (None, -1))
            if config is not None and config == trial.config:
                del self._pending[trial.proposal.id]
                self._study.tell(number, value)
            elif self.space.contains(trial.config):
                self._seen[trial.config] = None
                self._add(trial.config, value)

    def _projected(self) -> tuple[Config, int, str] | None:
        """Asks once; returns the config itself, or the nearest unseen one in its place."""
        config, valid, number = self._ask()
        if valid and config not in self._seen:
            return config, number, self._label
        self.projected_invalid += not valid
        self.projected_duplicate += valid
        self._study.tell(number, state=_fail())
        moved = self.space.nearest_unseen(config, self._seen) or next(self._fallback, None)
        if moved is None:
            return None
        return moved, self._add(moved, None, asked=number), "projected"

    def _plain(self) -> tuple[Config, int, str] | None:
        """Asks until something feasible comes; a uniformly random config after too many asks."""
        while self._idle < self.options.max_burnt:
            config, valid, number = self._ask()
            self._idle = 0 if valid and config not in self._seen else self._idle + 1
            self.burnt += not valid
            self.repeated += valid and self._idle > 0
            if valid:
                return config, number, self._label
            self._study.tell(number, _PENALTY)
        self._idle = 0
        config = next(self._fallback, None)
        return None if config is None else (config, self._add(config, None), "random")

    @cached_property
    def _fallback(self) -> Iterator[Config]:
        """Uniformly random configs that nobody saw."""
        drawn = uniform(self.space, rng=np.random.default_rng(self.seed))
        return (config for config in drawn if config not in self._seen)

    # -- Optuna -------------------------------------------------------------------------------

    def _open(self) -> None:
        """Makes the study at first use; Optuna's log level is as before afterwards."""
        if self._study is not None:
            return
        import optuna

        with _VERBOSITY:
            before = optuna.logging.get_verbosity()
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            try:
                self._study = optuna.create_study(sampler=self._sampler())
            finally:
                optuna.logging.set_verbosity(before)
        for p in self.space.parameters:
            kinds = optuna.distributions
            self._distributions[p.name] = (
                kinds.IntDistribution(0, p.cardinality - 1)
                if p.ordered and not isinstance(p, Flag)
                else kinds.CategoricalDistribution(tuple(range(p.cardinality)))
            )

    def _sampler(self) -> Any:
        """Returns the Optuna sampler that is asked."""
        import optuna

        options = self.options
        return optuna.samplers.TPESampler(
            n_startup_trials=options.n_startup_trials,
            n_ei_candidates=options.n_ei_candidates,
            multivariate=options.multivariate,
            constant_liar=options.constant_liar,
            seed=self.seed % 2**32,
        )

    def _ask(self) -> tuple[Config, bool, int]:
        """Returns what Optuna asks for, whether it is valid, and Optuna's number of it."""
        trial = self._study.ask(fixed_distributions=self._distributions)
        self._created += 1
        params = trial.params
        row = np.asarray([params[name] for name in self.space.names])
        return self.space.config(row), bool(self.space.valid(row[None, :])[0]), trial.number

    def _add(self, config: Config, value: float | None, *, asked: int | None = None) -> int:
        """Adds an observation, or a running trial if value is None; returns Optuna's number.

        What the sampler noted about the trial that was `asked` for (its generation, the state of
        its model) goes over to the one that takes its place.
        """
        import optuna

        states = optuna.trial.TrialState
        noted = {} if asked is None else self._study.get_trials(deepcopy=False)[asked].system_attrs
        row = self.space.row(config).tolist()
        self._study.add_trial(
            optuna.trial.create_trial(
                state=states.RUNNING if value is None else states.COMPLETE,
                value=value,
                params=dict(zip(self.space.names, row, strict=True)),
                distributions=self._distributions,
                system_attrs=noted,
            )
        )
        self._created += 1
        return self._created - 1


def _fail():
    import optuna

    return optuna.trial.TrialState.FAIL


def _value(trial: Trial) -> float:
    """Returns what TPE is told: the latency, a censored reading's bound, or the penalty."""
    if trial.latency_us is not None:
        return trial.latency_us
    bound = trial.measurement.bound_us
    return _PENALTY if bound is None else bound

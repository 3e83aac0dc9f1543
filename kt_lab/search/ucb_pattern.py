"""UCBPatternSearch: pattern search whose neighbours a Gaussian process selects.

Reproduces the UCBPatternSearch of Helion's history (pytorch/helion #1115, removed before it was
merged) with scikit-learn's Gaussian process in the place of BoTorch's:

1. Starts, descents, stops and re-timing are `pattern`'s; there is no patience and no polish.
2. Before the first generation the model is fitted to every finite reading: y = -latency in
   microseconds (`logarithm`: minus its logarithm), standardised by the mean and deviation of
   these readings; x = the encoded config, each column scaled to [0, 1] over the space;
   y(x) ~ GP(0, s^2 k(x, x')) + noise with k the Matern 5/2 kernel with one length scale per
   column. s, the length scales and the noise maximise the marginal likelihood, once.
3. Before every later generation the posterior is conditioned on the latest finite reading of
   every measured config; the hyper-parameters stay.
4. A step draws `num_neighbors` random neighbours as `lfbo_pattern` does, and measures the share
   `frac_selected` that is highest in UCB(x) = mean(x) + sqrt(beta) * deviation(x), of the
   noise-free posterior (Srinivas et al., "Gaussian Process Optimization in the Bandit Setting",
   2010). Failures are unknown to the model. What it predicts of a config is -mean(x) in
   microseconds (`logarithm`: exp(-mean(x)), its median), not the bound.

Differences from the original: BoTorch's MixedSingleTaskGP adds and multiplies a kernel of its own
for categorical columns, and rejected neighbours counted as visited there; here they may be
proposed again, as in `lfbo_pattern`. Linear algebra runs in one thread, so that results do not
depend on the number of cores.
"""

import importlib
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kt_lab.search.base import option
from kt_lab.search.neighbourhood import Row
from kt_lab.search.screened import ScreenedOptions, ScreenedSearcher
from kt_lab.search.threads import single_thread


@dataclass(frozen=True)
class UCBPatternOptions(ScreenedOptions):
    """Options of `ucb_pattern`; every default is the original's."""

    num_neighbors: int = option(
        100, "Neighbours drawn per descent and step.", unit="configs", low=1, high=100_000
    )
    frac_selected: float = option(
        0.3, "Share of the drawn neighbours that is measured.", low=0.0, high=1.0
    )
    beta: float = option(
        2.0, "Weight of the squared uncertainty: 0 trusts the mean alone.", low=0.0, high=1000.0
    )
    logarithm: bool = option(
        False, "Model the logarithm of the latency, so that slow configs do not dominate."
    )


class UCBPatternSearch(ScreenedSearcher):
    """Measures the neighbours with the highest upper confidence bound of speed."""

    name: ClassVar[str] = "ucb_pattern"
    Options: ClassVar[type] = UCBPatternOptions
    predicts: ClassVar[str | None] = "latency_us"

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        importlib.import_module("sklearn.gaussian_process")  # so that no ask is charged for it
        corners = [p.encode(np.arange(p.cardinality)) for p in space.parameters]
        self._low = np.concatenate([c.min(axis=0) for c in corners])
        span = np.concatenate([c.max(axis=0) for c in corners]) - self._low
        self._span = np.where(span > 0, span, 1.0)
        self._process: Process | None = None

    def _learn(self) -> None:
        """Fits the process before the first generation, and conditions it before later ones."""
        known = [m for m in self._members.values() if m.measured and np.isfinite(m.value)]
        if not known:
            return
        x, values = self._scaled([m.row for m in known]), np.asarray([m.value for m in known])
        y = -np.log(values) if self.options.logarithm else -values
        with single_thread():
            if self._process is None:
                self._process = Process(x, y)
            self._process.condition(x, y)

    def _select(self, pool: list[Row], n: int) -> dict[int, float | None]:
        if self._process is None:  # every reading has failed since
            return self._shuffled(pool, n)
        with single_thread():
            mean, deviation = self._process.predict(self._scaled(pool))
        bound = mean + np.sqrt(self.options.beta) * deviation
        chosen = np.argsort(-bound, kind="stable")[:n].tolist()
        y = self._process.observed(mean[chosen])
        latencies = np.exp(-y) if self.options.logarithm else -y
        return dict(zip(chosen, latencies.tolist(), strict=True))

    def _scaled(self, rows: list[Row]) -> np.ndarray:
        return (self.space.encode_rows(np.asarray(rows)) - self._low) / self._span


class Process:
    """A Gaussian process whose hyper-parameters are fitted once."""

    def __init__(self, x: np.ndarray, y: np.ndarray):
        """Fits the hyper-parameters.

        Args:
            x: Shape (n, width), n >= 1, each column in [0, 1].
            y: What is to be predicted, shape (n,).
        """
        from sklearn.gaussian_process import GaussianProcessRegressor, kernels

        self._centre, self._scale = y.mean(), y.std() or 1.0
        matern = kernels.Matern(np.ones(x.shape[1]), (1e-2, 1e2), nu=2.5)
        signal = kernels.ConstantKernel(1.0, (1e-2, 1e2)) * matern
        noise = kernels.WhiteKernel(1e-2, (1e-6, 1.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length scale at its bound: the column is flat
            fitted = GaussianProcessRegressor(signal + noise).fit(x, self._standard(y))
        self._signal = fitted.kernel_.k1
        self._noise = fitted.kernel_.k2.noise_level
        self._model: Any = None

    def condition(self, x: np.ndarray, y: np.ndarray) -> None:
        """Replaces the observations; see `__init__`."""
        from sklearn.gaussian_process import GaussianProcessRegressor

        model = GaussianProcessRegressor(self._signal, alpha=self._noise, optimizer=None)
        self._model = model.fit(x, self._standard(y))

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns mean and deviation without noise, standardised, each of shape (n,)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a variance just below 0 is taken for 0
            return self._model.predict(x, return_std=True)

    def observed(self, standardised: np.ndarray) -> np.ndarray:
        """Returns standardised values in the unit of y."""
        return self._centre + self._scale * standardised

    def _standard(self, y: np.ndarray) -> np.ndarray:
        return (y - self._centre) / self._scale

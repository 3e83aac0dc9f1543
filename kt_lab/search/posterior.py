"""A Gaussian process over a pool of candidates, cheap enough to be asked after every reading.

y(x) = c + s f(x) + noise, f with the Matern 5/2 kernel and one length scale per group of columns,
plus what is linear in further columns.
The length scales and the noise maximise their posterior under log-normal priors, for which the
gradient is known in closed form; c and s are integrated out (s under an inverse gamma prior). A
config that is being measured takes part in the variance at once: it shrinks where one has looked,
while the mean stays what the readings say (Ginsbourger et al., "Kriging is well-suited to
parallelize optimization", 2010: the believer). So one more config costs one row of a triangular
factor, O(n N) for n measured and N candidates, and the hyper-parameters are fitted anew only now
and then.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import minimize
from scipy.special import log_ndtr

_LENGTH = 0.5  # prior median of a length scale over the square root of the number of groups
_SPREAD = 0.5  # prior deviation of the logarithm of a length scale
_NOISE = -3.0  # prior mean of the logarithm of the noise variance, relative to the signal's
_SHAPE, _RATE = 2.0, 1.0  # of the inverse gamma prior of the signal's variance
_LEAST = 1e-8  # added to the diagonal, and the smallest variance
_STEPS = 15  # of the optimiser, from the last optimum
_FEW = 3  # readings below which the priors stand for themselves
_ROOM = 64  # rows that are kept free for configs that follow

# Features in length scales, their squared norms, and what is linear, for n rows.
_Scaled = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(eq=False, slots=True)
class Scales:
    """The hyper-parameters.

    Attributes:
        groups: For each column that is not linear the number of its group, shape (columns,).
        weights: For each linear column, which follow these, the prior deviation of its weight,
            relative to the signal's.
        theta: Logarithms of the length scales, one per group, then of the noise variance.
        centre: c.
        variance: s squared.
    """

    groups: np.ndarray
    weights: np.ndarray
    theta: np.ndarray
    centre: float = 0.0
    variance: float = 1.0

    @classmethod
    def of(cls, groups: np.ndarray, weights: np.ndarray) -> "Scales":
        """Returns the priors' medians."""
        number = int(groups.max(initial=-1)) + 1
        length = math.log(_LENGTH) + 0.5 * math.log(max(number, 1))
        return cls(groups, weights, np.append(np.full(number, length), _NOISE))

    @property
    def noise(self) -> float:
        """Variance of the noise relative to the signal's."""
        return math.exp(self.theta[-1]) + _LEAST

    def kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Returns the correlations of rows of features, shape (len(a), len(b))."""
        return _correlations(self.scaled(a), self.scaled(b))

    def scaled(self, a: np.ndarray) -> _Scaled:
        """Returns of rows of features what their correlations with others are made of."""
        inverse = np.exp(-self.theta[:-1])[self.groups]
        apart = a[:, : len(inverse)] * inverse
        return apart, (apart * apart).sum(axis=1), self._linear(a)

    def diagonal(self, a: np.ndarray) -> np.ndarray:
        """Returns the correlation of every row with itself, shape (len(a),)."""
        return 1.0 + (self._linear(a) ** 2).sum(axis=1)

    def _linear(self, a: np.ndarray) -> np.ndarray:
        return a[:, len(self.groups) :] * self.weights

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Moves to the hyper-parameters that the readings make most probable.

        Args:
            x: Features, shape (n, columns).
            y: What is predicted, shape (n,), about 0 and 1 in mean and deviation.
        """
        if len(y) < _FEW:
            return
        prior = Scales.of(self.groups, self.weights).theta
        apart = np.zeros((len(prior) - 1, len(y), len(y)))
        for column, group in zip(x.T[: len(self.groups)], self.groups, strict=True):
            apart[group] += (column[:, None] - column) ** 2
        least, most = np.append(prior[:-1] - 4.0, -12.0), np.append(prior[:-1] + 4.0, 0.0)
        linear = self._linear(x) @ self._linear(x).T
        found = minimize(
            lambda theta: _loss(theta, prior, apart, linear, y)[:2],
            self.theta,
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack([least, most], axis=1),
            options={"maxiter": _STEPS},
        )
        self.theta = found.x
        self.centre, self.variance = _loss(found.x, prior, apart, linear, y)[2:]


def _correlations(a: _Scaled, b: _Scaled) -> np.ndarray:
    squared = a[1][:, None] + b[1] - 2.0 * (a[0] @ b[0].T)
    distance = np.sqrt(5.0 * np.maximum(squared, 0.0, out=squared))
    return _matern(distance, np.exp(-distance)) + a[2] @ b[2].T


def _matern(distance: np.ndarray, decay: np.ndarray) -> np.ndarray:
    return (1.0 + distance + distance**2 / 3.0) * decay


def _loss(theta, prior, apart: np.ndarray, linear: np.ndarray, y: np.ndarray) -> tuple:
    """Returns minus the logarithm of the posterior, its gradient, and the best c and s squared.

    Args:
        theta: See `Scales`.
        prior: Means of theta.
        apart: Squared distances in each group, shape (groups, n, n).
        linear: Correlations by what sources say, shape (n, n).
        y: Shape (n,).
    """
    n = len(y)
    inverse = np.exp(-2.0 * theta[:-1])
    distance = np.sqrt(5.0 * np.tensordot(inverse, apart, 1))
    noise = math.exp(theta[-1])
    decay = np.exp(-distance)
    covariance = _matern(distance, decay) + linear
    covariance.flat[:: n + 1] += noise + _LEAST
    factor = cholesky(covariance, lower=True, check_finite=False)
    precision = cho_solve((factor, True), np.eye(n), check_finite=False)
    centre = float((precision @ y).sum() / precision.sum())
    weights = precision @ (y - centre)
    total = float((y - centre) @ weights) + 2.0 * _RATE
    variance = total / (n + 2.0 * _SHAPE)
    loss = 0.5 * (n + 2.0 * _SHAPE) * math.log(total) + np.log(np.diag(factor)).sum()
    slope = 0.5 * (precision - np.outer(weights, weights) / variance)
    bent = slope * (5.0 / 3.0) * (1.0 + distance) * decay
    by_length = apart.reshape(len(inverse), -1) @ bent.ravel() * inverse
    gradient = np.append(by_length, noise * np.trace(slope))
    spread = np.append(np.full(len(inverse), _SPREAD), 1.0)
    off = (theta - prior) / spread
    return loss + 0.5 * off @ off, gradient + off / spread, centre, variance


class Posterior:
    """What readings say of a pool, given the hyper-parameters.

    Attributes:
        n: Configs that were added.
    """

    def __init__(self, scales: Scales, x: np.ndarray, pool: np.ndarray, *, room: int = _ROOM):
        """Starts from configs measured or being measured.

        Args:
            scales: Hyper-parameters; a copy's values are read now.
            x: Their features, shape (n, columns).
            pool: Features of the candidates, shape (N, columns).
            room: Configs that can be added.
        """
        self._scales, self._pool = scales, scales.scaled(pool)
        self.n = n = len(x)
        self._x = np.concatenate([x, np.empty((room, x.shape[1]))])
        # Whole and by columns, as LAPACK takes it without a copy; 1 where nothing is yet.
        self._factor = np.eye(n + room, order="F")
        self._cross = np.empty((n + room, len(pool)))
        covariance = scales.kernel(x, x)
        covariance.flat[:: n + 1] += scales.noise
        self._factor[:n, :n] = cholesky(covariance, lower=True, check_finite=False)
        self._cross[:n] = self._solve(_correlations(scales.scaled(x), self._pool))
        self._variance = scales.diagonal(pool) - (self._cross[:n] ** 2).sum(axis=0)

    @property
    def full(self) -> bool:
        """Whether there is no room for another config: time to make a new one."""
        return self.n == len(self._x)

    def add(self, x: np.ndarray) -> None:
        """Adds one config by its features, shape (columns,)."""
        n, scales = self.n, self._scales
        row = self._solve(scales.kernel(self._x[:n], x[None]))[:, 0]
        own = float(scales.diagonal(x[None])[0]) + scales.noise
        last = math.sqrt(max(own - row @ row, _LEAST))
        self._factor[n, :n], self._factor[n, n] = row, last
        apart = _correlations(scales.scaled(x[None]), self._pool)[0]
        cross = (apart - row @ self._cross[:n]) / last
        self._cross[n], self._x[n] = cross, x
        self._variance -= cross**2
        self.n += 1

    def predict(
        self, y: np.ndarray, *, centre: float | np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the mean at the added configs, shaped as y, and at the pool, (N,) or (N, k).

        Args:
            y: Readings of the configs in order of adding, shape (n,), or (n, k) of k quantities;
                NaN where there is none, of any quantity: these take the values that the others
                make most probable.
            centre: What is believed far from all configs, a number or (k,); None: the fitted one.
        """
        n, scales = self.n, self._scales
        centre = scales.centre if centre is None else centre
        known = y.reshape(n, -1) - centre
        missing = np.isnan(known[:, 0])
        told = known.shape[1]
        right = np.zeros((n, told + missing.sum()))
        right[:, :told] = np.where(missing[:, None], 0.0, known)
        right[missing, told:] = np.eye(missing.sum())
        solved = self._solve(right)
        z, free = solved[:, :told], solved[:, told:]
        z = z - free @ np.linalg.solve(free.T @ free, free.T @ z)
        noisy = self._factor[:n, :n] @ z  # y itself, the missing ones filled
        seen = centre + noisy - scales.noise * self._solve(z, transposed=True)
        pool = centre + (z.T @ self._cross[:n]).T
        return seen.reshape(y.shape), pool.reshape(-1, *y.shape[1:])

    def deviation(self) -> np.ndarray:
        """Returns the deviation of the noise-free value at the pool, shape (N,)."""
        return np.sqrt(np.maximum(self._variance, _LEAST) * self._scales.variance)

    def _solve(self, right: np.ndarray, *, transposed: bool = False) -> np.ndarray:
        whole = np.zeros((len(self._factor), right.shape[1]), order="F")
        whole[: self.n] = right
        return dtrtrs(self._factor, whole, lower=1, trans=transposed, overwrite_b=1)[0][: self.n]


def log_improvement(z: np.ndarray) -> np.ndarray:
    """Returns log(phi(z) + z Phi(z)), the expected improvement in deviations, shape (n,).

    Args:
        z: How many deviations the best is above the mean, shape (n,).

    Source:
        Ament et al., "Unexpected Improvements to Expected Improvement", 2023, for why logarithms.
    """
    z = np.clip(z, -1e4, 30.0)
    density = -0.5 * z**2 - 0.5 * math.log(2.0 * math.pi)
    return density + np.log(np.maximum(1.0 + z * np.exp(log_ndtr(z) - density), 1e-12))


def held(y: np.ndarray, *, most: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the readings that a posterior is made of, so that one more costs as much as before.

    Args:
        y: What was read, lower is better, NaN while under way, shape (n,).
        most: So many at most: the best half, what is under way first, and others drawn.
        rng: Draws; not asked where all are held.

    Returns:
        Their numbers, shape (min(n, most),).
    """
    if len(y) <= most:
        return np.arange(len(y))
    best, others = np.split(np.argsort(np.nan_to_num(y, nan=-np.inf)), [most // 2])
    return np.append(best, rng.choice(others, most - len(best), replace=False))

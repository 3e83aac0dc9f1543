"""Models for `kt_lab.search.max_reward` that generalise: a kernel regression and a network.

Both compute in one thread of BLAS, whatever the machine's settings: matrices are small, and a
searcher must not take cores from the runner.
"""

import itertools

import numpy as np

from kt_lab.search.threads import single_thread

_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8  # Adam's defaults (Kingma and Ba, arXiv 1412.6980)


class KernelRidge:
    """Gaussian kernel ridge regression, fitted from scratch to every batch.

    With a batch that holds everything, an update of the learner is one step of fitted Q iteration
    (Ernst, Geurts and Wehenkel, "Tree-Based Batch Mode Reinforcement Learning", JMLR 2005). It
    learns most from few readings; the cost is cubic in the batch. It has no state to follow: the
    learner's `rate` must be 1.

        k(a, b) = exp(-|a - b|^2 / (2 width scale^2)),  f(x) = m + sum_i w_i k(x, x_i),
        w = (K + ridge I)^-1 (y - m),  m = mean(y)
    """

    def __init__(self, *, scale: float = 0.5, ridge: float = 0.1):
        """Predicts 0 until it is fitted.

        Args:
            scale: Length scale, in standard deviations of one feature; > 0.
            ridge: Variance of the noise, as a share of the signal's; > 0.
        """
        self._scale, self._ridge = scale, ridge
        self._x, self._weights, self._mean = None, None, 0.0

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Returns values of shape (n,) for inputs of shape (n, width)."""
        if self._x is None:
            return np.zeros(len(x))
        with single_thread():
            return self._mean + self._kernel(x, self._x) @ self._weights

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Forgets what it knew and solves for targets of shape (n,)."""
        with single_thread():
            kernel = self._kernel(x, x)
            kernel[np.diag_indices(len(x))] += self._ridge
            self._x, self._mean = x, float(np.mean(y))
            self._weights = np.linalg.solve(kernel, y - self._mean)

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        apart = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
        return np.exp(np.maximum(apart, 0.0) / (-2 * a.shape[1] * self._scale**2))


class Network:
    """Rectified layers and a linear output, trained by Adam on the Huber loss."""

    def __init__(self, width: int, *, hidden: tuple[int, ...] = (32, 32), rate: float = 1e-3, rng):
        """Draws the weights (He et al., arXiv 1502.01852); the output layer starts at zero.

        Args:
            width: Floats per input row, of about unit scale.
            hidden: Units of each hidden layer.
            rate: Adam's step size.
            rng: Source of the weights.
        """
        sizes = (width, *hidden, 1)
        self._weights = [
            rng.normal(scale=np.sqrt(2 / a), size=(a, b)) for a, b in itertools.pairwise(sizes)
        ]
        self._weights[-1][:] = 0.0
        self._weights += [np.zeros(b) for b in sizes[1:]]  # biases after the matrices
        self._layers = len(sizes) - 1
        self._rate, self._steps = rate, 0
        self._first = [np.zeros_like(w) for w in self._weights]
        self._second = [np.zeros_like(w) for w in self._weights]

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Returns values of shape (n,) for inputs of shape (n, width)."""
        with single_thread():
            return self._forward(x)[-1][:, 0]

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Takes one step of Adam on the mean Huber loss (threshold 1) to targets of shape (n,)."""
        with single_thread():
            gradients = self._gradients(x, y)
        self._steps += 1
        step = self._rate * np.sqrt(1 - _BETA2**self._steps) / (1 - _BETA1**self._steps)
        parts = zip(self._weights, gradients, self._first, self._second, strict=True)
        for weight, gradient, first, second in parts:
            first += (1 - _BETA1) * (gradient - first)
            second += (1 - _BETA2) * (gradient**2 - second)
            weight -= step * first / (np.sqrt(second) + _TINY)

    def follow(self, other: "Network", rate: float) -> None:
        """Moves every weight by a share of the way towards another network's."""
        for mine, theirs in zip(self._weights, other._weights, strict=True):
            mine += rate * (theirs - mine)

    def _gradients(self, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        """Returns the loss's gradient for every weight, by backpropagation."""
        outputs = self._forward(x)
        slope = np.clip(outputs[-1][:, 0] - y, -1.0, 1.0)[:, None] / len(y)
        gradients: list[np.ndarray] = [None] * len(self._weights)
        for layer in reversed(range(self._layers)):
            gradients[layer] = outputs[layer].T @ slope
            gradients[self._layers + layer] = slope.sum(axis=0)
            if layer:
                slope = slope @ self._weights[layer].T * (outputs[layer] > 0)
        return gradients

    def _forward(self, x: np.ndarray) -> list[np.ndarray]:
        outputs = [x]
        for layer in range(self._layers):
            x = x @ self._weights[layer] + self._weights[self._layers + layer]
            if layer + 1 < self._layers:
                x = np.maximum(x, 0.0)
            outputs.append(x)
        return outputs

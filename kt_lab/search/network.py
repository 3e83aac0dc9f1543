"""A small multi-layer perceptron in numpy: a Model for `kt_lab.search.max_reward`."""

import numpy as np

_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8  # Adam's defaults (Kingma and Ba, arXiv 1412.6980)


class Network:
    """Rectified layers and a linear output, trained by Adam on the Huber loss.

    Matrix products run without BLAS, in one thread whatever the machine's settings: layers are
    small, and a run's proposals must not depend on the number of threads.
    """

    def __init__(
        self, width: int, *, hidden: tuple[int, ...] = (32, 32), rate: float = 1e-3, rng
    ):
        """Draws the weights (He et al., arXiv 1502.01852); the output layer starts at zero.

        Args:
            width: Floats per input row, of about unit scale.
            hidden: Units of each hidden layer.
            rate: Adam's step size.
            rng: Source of the weights.
        """
        sizes = (width, *hidden, 1)
        self._weights = [
            rng.normal(scale=np.sqrt(2 / a), size=(a, b))
            for a, b in zip(sizes[:-1], sizes[1:], strict=True)
        ]
        self._weights[-1][:] = 0.0
        self._weights += [np.zeros(b) for b in sizes[1:]]  # biases after the matrices
        self._layers = len(sizes) - 1
        self._rate, self._steps = rate, 0
        self._first = [np.zeros_like(w) for w in self._weights]
        self._second = [np.zeros_like(w) for w in self._weights]

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Returns values of shape (n,) for inputs of shape (n, width)."""
        return self._forward(x)[-1][:, 0]

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Takes one step of Adam on the mean Huber loss (threshold 1) to targets of shape (n,)."""
        outputs = self._forward(x)
        slope = np.clip(outputs[-1][:, 0] - y, -1.0, 1.0)[:, None] / len(y)
        gradients: list[np.ndarray] = [None] * len(self._weights)
        for layer in reversed(range(self._layers)):
            gradients[layer] = _product(outputs[layer].T, slope)
            gradients[self._layers + layer] = slope.sum(axis=0)
            if layer:
                slope = _product(slope, self._weights[layer].T) * (outputs[layer] > 0)
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

    def _forward(self, x: np.ndarray) -> list[np.ndarray]:
        outputs = [x]
        for layer in range(self._layers):
            x = _product(x, self._weights[layer]) + self._weights[self._layers + layer]
            if layer + 1 < self._layers:
                x = np.maximum(x, 0.0)
            outputs.append(x)
        return outputs


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ij,jk->ik", a, b)

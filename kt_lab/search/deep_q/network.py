"""The value of a move as a network: Q(s, s') of the state, what it becomes, and how late it is.

How many moves a state has differs, so a move is known by where it leads (an afterstate): all of a
state's moves are one batch. torch is imported when a network is made; it computes in one thread.
"""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from kt_lab.errors import UsageError, install

_FAR = 8.0  # standard deviations beyond which a feature says no more


def pairs(state: np.ndarray, after: np.ndarray, share: float) -> np.ndarray:
    """Returns the inputs of moves from one state, shape (k, 2 width + 1).

    Args:
        state: Features of the state, shape (width,).
        after: Features of what each move leads to, shape (k, width).
        share: Moves made so far over those of an episode, in [0, 1].
    """
    left = np.broadcast_to(state, after.shape)
    return np.hstack([left, after, np.full((len(after), 1), share)])


def frozen_values(weights: Mapping[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Returns what `MoveNetwork.predict` does of such weights, without torch."""
    w, center, spread = len(weights["center"]), weights["center"], weights["spread"]
    state, after = (np.clip((x[:, i : i + w] - center) / spread, -_FAR, _FAR) for i in (0, w))
    x = np.hstack([state, after, after - state, x[:, 2 * w :]])
    centred = x - x.mean(axis=1, keepdims=True)
    x = np.hstack([x, centred / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)])
    for n in range(last := len(weights) // 2 - 2):
        x = np.maximum(x @ weights[f"weight{n}"].T + weights[f"bias{n}"], 0.0)
    return (x @ weights[f"weight{last}"].T + weights[f"bias{last}"])[:, 0]


class Offer:
    """The moves of a state; its inputs are made when they are used, for there are many."""

    __slots__ = ("after", "share", "state")

    def __init__(self, state: np.ndarray, after: np.ndarray, share: float):
        """Takes what `pairs` takes."""
        self.state, self.after, self.share = state, after, share

    def __len__(self) -> int:
        """Returns the number of moves."""
        return len(self.after)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Returns the inputs, shape (k, 2 width + 1)."""
        return np.asarray(pairs(self.state, self.after, self.share), dtype=dtype)


class MoveNetwork:
    """Rectified layers over [s, s', s' - s, share], themselves and their LayerNorm; Adam, Huber.

    A `Model` of `kt_lab.search.max_reward`. Features are standardised first, by numbers that stay.
    """

    def __init__(
        self, center: np.ndarray, spread: np.ndarray, *, hidden: int, layers: int, rate: float, rng
    ):
        """Draws the weights (He et al., arXiv 1502.01852); the output layer starts at zero.

        Args:
            center: Subtracted from every state's features, shape (width,).
            spread: That they are then divided by, shape (width,), > 0.
            hidden: Units of each hidden layer.
            layers: Hidden layers.
            rate: Step size of Adam.
            rng: Source of the weights.
        """
        first = 2 * (3 * len(center) + 1)
        sizes = (first, *(hidden,) * layers, 1)
        weights = {"center": center, "spread": spread}
        for n, (a, b) in enumerate(itertools.pairwise(sizes)):
            drawn = rng.normal(scale=np.sqrt(2 / a), size=(b, a))
            weights[f"weight{n}"] = drawn if n < layers else np.zeros((b, a))
            weights[f"bias{n}"] = np.zeros(b)
        self._torch, self._layers = _torch(), layers
        self._take(weights, rate)

    def _take(self, weights: Mapping[str, np.ndarray], rate: float) -> None:
        torch = self._torch
        tensors = {n: torch.tensor(w, dtype=torch.float32) for n, w in weights.items()}
        self._center, self._spread = tensors.pop("center"), tensors.pop("spread")
        self._tensors = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
        self._rate, self._adam = rate, None  # made when it is first fitted: seconds of imports

    @classmethod
    def of(cls, weights: Mapping[str, np.ndarray], *, rate: float) -> "MoveNetwork":
        """Returns a network with the weights that `weights` of another returned."""
        found = cls.__new__(cls)
        found._torch, found._layers = _torch(), len(weights) // 2 - 2
        found._take(weights, rate)
        return found

    def weights(self) -> dict[str, np.ndarray]:
        """Returns a copy of every weight by name, float32; with center and spread."""
        known = {"center": self._center, "spread": self._spread, **self._tensors}
        return {name: tensor.detach().numpy().copy() for name, tensor in known.items()}

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Returns values, shape (n,), of inputs as `pairs` makes them."""
        with _one_thread(self._torch), self._torch.no_grad():
            return self._forward(x).numpy().astype(float)

    def fit(self, x: np.ndarray, y: np.ndarray) -> None:
        """Takes one step of Adam on the mean Huber loss (threshold 1) to targets of shape (n,)."""
        torch = self._torch
        if self._adam is None:
            self._adam = torch.optim.Adam(self._tensors.values(), lr=self._rate, foreach=False)
        with _one_thread(torch):
            targets = torch.tensor(y, dtype=torch.float32)
            self._adam.zero_grad()
            torch.nn.functional.huber_loss(self._forward(x), targets).backward()
            self._adam.step()

    def follow(self, other: "MoveNetwork", rate: float) -> None:
        """Moves every weight by a share of the way towards another network's."""
        with self._torch.no_grad():
            for mine, theirs in zip(self._tensors.values(), other._tensors.values(), strict=True):
                mine.lerp_(theirs, rate)

    def __deepcopy__(self, memo: dict) -> "MoveNetwork":
        """Returns a copy with weights of its own, and with Adam at its start."""
        return self.of(self.weights(), rate=self._rate)

    def _forward(self, x: np.ndarray):
        torch, width = self._torch, len(self._center)
        x = torch.as_tensor(np.asarray(x, dtype=np.float32))
        state, after = (
            ((part - self._center) / self._spread).clamp(-_FAR, _FAR)
            for part in (x[:, :width], x[:, width : 2 * width])
        )
        x = torch.cat([state, after, after - state, x[:, 2 * width :]], dim=1)
        x = torch.cat([x, torch.nn.functional.layer_norm(x, x.shape[1:])], dim=1)
        for n in range(self._layers + 1):
            x = torch.nn.functional.linear(
                x, self._tensors[f"weight{n}"], self._tensors[f"bias{n}"]
            )
            x = x.relu() if n < self._layers else x
        return x[:, 0]


def _torch():
    try:
        import torch
    except ModuleNotFoundError as error:
        raise UsageError(
            "the searchers dqn and max_q_dqn need the package torch, which is not installed; "
            f"install it: {install('programs')}"
        ) from error
    return torch


@contextmanager
def _one_thread(torch) -> Iterator[None]:
    """Lets torch compute in one thread: sums in one order, and no cores taken from the runner."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

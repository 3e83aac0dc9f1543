"""What a deep Q-learner learned, as one file: weights and, in its header, facts as JSON.

The file is safetensors, which holds arrays and strings and cannot hold code.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.errors import StoreError, UsageError, install

_FORM = "kt_lab policy 1"
_KNOWN = ("encoder", "width", "rule", "gamma", "reward", "moves", "ceiling")


def encoder_of(space: Any) -> str:
    """Returns the name of a space's encoder; empty where its kind has but one encoding."""
    return getattr(space, "encoder", "")


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A trained network and what it is good for.

    Attributes:
        weights: Arrays by name, as `MoveNetwork.weights` returns them.
        facts: encoder and width of the features, rule, gamma, reward, moves and ceiling, all of
            which a player needs; and whatever else is known: operators, fingerprints of the
            spaces trained on, budget, seeds, provenance.
    """

    weights: Mapping[str, np.ndarray]
    facts: Mapping[str, Any]

    def save(self, path: str | Path) -> None:
        """Writes the file, atomically; its name ends with .safetensors."""
        from safetensors.numpy import save

        path = Path(path)
        held = {"kt_lab": _FORM, "facts": json.dumps(dict(self.facts), sort_keys=True)}
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(save(dict(self.weights), metadata=held))
        partial.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Reads a file.

        Raises:
            StoreError: There is no such file, or it is damaged or something else.
            UsageError: safetensors is not installed.
        """
        try:
            from safetensors import SafetensorError, safe_open
        except ModuleNotFoundError as error:
            raise UsageError(
                "a stored policy needs the package safetensors, which is not installed; install "
                f"it: {install('programs')}"
            ) from error
        try:
            with safe_open(str(path), framework="numpy") as file:
                held = file.metadata() or {}
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads(held["facts"]) if held.get("kt_lab") == _FORM else None
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise StoreError(
                f"a policy is a whole file of {_FORM!r}, got {path}: {error}"
            ) from None
        wrong = _wrong(weights, facts)
        if wrong:
            raise StoreError(f"a policy is a whole file of {_FORM!r}; {wrong} in {path}")
        return cls(weights, facts)

    def check(self, space: Any, **asked: Any) -> None:
        """Refuses a space with other features, and a player of another rule.

        Args:
            space: What shall be played on.
            asked: Facts that must be the same: rule, gamma, reward, moves.

        Raises:
            UsageError: Something differs.
        """
        width = space.encode([space.default]).shape[1]
        asked |= {"encoder": encoder_of(space), "width": width}
        for name, value in asked.items():
            if self.facts[name] != value:
                raise UsageError(
                    f"a policy plays where it was trained: {name} must be {self.facts[name]!r}, "
                    f"got {name}={value!r}; give the same, or train another policy"
                )


def _wrong(weights: Mapping[str, np.ndarray], facts: Any) -> str:
    """Returns what is wrong with a file's contents, nothing if nothing is."""
    if not isinstance(facts, dict) or not all(name in facts for name in _KNOWN):
        return f"facts {_KNOWN} are missing"
    layers = len(weights) // 2 - 2
    names = {f"{kind}{n}" for kind in ("weight", "bias") for n in range(layers + 1)}
    if layers < 0 or set(weights) != names | {"center", "spread"}:
        return f"weights are {sorted(weights)}"
    if any(w.dtype != np.float32 or not np.isfinite(w).all() for w in weights.values()):
        return "weights are no finite float32"
    rows, shapes = 2 * (3 * weights["center"].size + 1), [weights["center"].shape]
    for n in range(layers + 1):
        here = weights[f"weight{n}"]
        if here.ndim != 2 or here.shape[1] != rows or weights[f"bias{n}"].shape != here.shape[:1]:
            return f"layer {n} has shape {here.shape}"
        rows = here.shape[0]
    if rows != 1 or shapes != [(facts["width"],)] or weights["spread"].shape != shapes[0]:
        return f"width {facts['width']} does not fit"
    return "" if (weights["spread"] > 0).all() else "a spread is not > 0"

"""What is changed of the flagship, one thing at a time, where nothing can be listed."""

from collections.abc import Hashable, Sequence

import numpy as np

from kt_lab.evidence.ablation import WHOLE, Variant
from kt_lab.search import drawing, neighbourhood, scout
from kt_lab.search.epochs import Epochs
from kt_lab.space import ParameterSpace

_parents = Epochs.parents


class _Anywhere(Epochs):
    """Epochs of which none leaves anything alone."""

    avoided = property(lambda _: [], lambda *_: None)


class _NoDescent(Epochs):
    """Epochs that end without a descent."""

    descended = property(lambda _: True, lambda *_: None)


class _NoDescentAnywhere(_NoDescent, _Anywhere):
    """Both."""


def _as_if_alike(self, values: Sequence[float], kinds: Sequence[Hashable], most: int) -> list[int]:
    """Returns parents with no regard to what they have in common; see `Epochs.parents`."""
    return _parents(self, values, [()] * len(kinds), most)


def _uniform_rows(space: ParameterSpace, _: np.ndarray, n: int, *, rng: np.random.Generator):
    return space.sample_rows(n, rng=rng)


_ALIKE = ((Epochs, "parents", _as_if_alike),)

VARIANTS: dict[str, Variant] = {
    WHOLE: Variant("as it is"),
    "as before": Variant(
        "the defaults until these were measured", {"starts": 4, "effects": 2.0, "near": 0.9}
    ),
    "4 starts": Variant("as many starts as in a listed space", {"starts": 4}),
    "16 starts": Variant("twice as many starts", {"starts": 16}),
    "no main effects": Variant("as in a listed space", {"effects": 0.0}),
    "main effects 2": Variant("a quarter of their variance", {"effects": 2.0}),
    "main effects 30": Variant("four times their variance", {"effects": 30.0}),
    "none near": Variant("all draws are uniform, but for steps and crossovers", {"near": 0.0}),
    "near 0.5": Variant("fewer draws near the best", {"near": 0.5}),
    "near 0.9": Variant("more draws near the best", {"near": 0.9}),
    "half ahead": Variant("half as many configs under way", {"ahead": 0.5}),
    "pool of 1024": Variant("a quarter of the candidates", {"pool": 1024}),
    "like parents": Variant(
        "candidates descend from the best configs, alike or not", instead=_ALIKE
    ),
    "one epoch": Variant("never begun anew", {"idle": 0.0}),
    "one epoch, like parents": Variant("both", {"idle": 0.0}, instead=_ALIKE),
    "starts anywhere": Variant(
        "starts are drawn from all of the space, not near the default",
        instead=((drawing, "reshaped_rows", _uniform_rows),),
    ),
    "scales anywhere": Variant("scales are drawn whole", instead=((neighbourhood, "_REACH", 99),)),
    "extreme starts": Variant("as far apart as in listed ones", instead=((scout, "_APART", 1.0),)),
    "shapes at will": Variant(
        "no choice is kept for tiles and warps that are new", instead=((scout, "_BROAD", 0),)
    ),
    "epochs anywhere": Variant(
        "new beginnings may come to what others came to", instead=((scout, "Epochs", _Anywhere),)
    ),
    "no descent": Variant(
        "epochs end without single steps from the best", instead=((scout, "Epochs", _NoDescent),)
    ),
    "no descent, like parents": Variant("both", instead=(*_ALIKE, (scout, "Epochs", _NoDescent))),
    "no descent, epochs anywhere": Variant(
        "both", instead=((scout, "Epochs", _NoDescentAnywhere),)
    ),
}

"""The landscapes of the study, in the order in which a benchmark would meet them."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from kt_lab.errors import UnknownName, UsageError
from kt_lab.evidence.families import FAMILIES, WIDE, expanded, family
from kt_lab.kernels.moe_spaces import PUBLISHED, published
from kt_lab.landscape import REFERENCE_GPU, Landscape, landscapes
from kt_lab.trial import OK

SCALES, CAST, REDUCTION = "moe_weights_atomic", "moe_weights_cast", "moe_weights_reduction"
COLUMNS, ROWWISE, COLWISE = "moe_weights_colwise", "jagged_rowwise", "jagged_colwise"
BLOCKS, TRANSPOSE = "blockwise_quantise", "tokens_transpose"
KERNELS = (SCALES, CAST, REDUCTION, COLUMNS, ROWWISE, COLWISE, BLOCKS, TRANSPOSE)
WEIGHTS, JAGGED = (SCALES, CAST, REDUCTION, COLUMNS), (ROWWISE, COLWISE)
_FIRST = ("E", "GROUPS", "SKEW", "LAYOUT")  # ascending, as torchao's benchmarks go


def open_study(
    kernels: Iterable[str] = KERNELS, *, gpu: str | None = REFERENCE_GPU
) -> list[Landscape]:
    """Loads what is recorded of the kernels: Llama 4 first, few experts and groups first.

    Args:
        kernels: Names of KERNELS; those without a landscape yet are left out.
        gpu: Short name of the GPU; None: all.

    Raises:
        UnknownName: A kernel is none of these, or nothing at all is recorded.
    """
    chosen = list(kernels)
    for name in chosen:
        if name not in KERNELS:
            raise UnknownName("kernel of the study", name, KERNELS)
    known = [e for e in landscapes() if e.kernel in chosen]
    entries = [e for e in known if gpu in (None, e.gpu)]
    if not entries:
        raise UnknownName("GPU that recorded the study's kernels", gpu, {e.gpu for e in known})
    return sorted((Landscape.load(entry.path) for entry in entries), key=_order)


def _order(landscape: Landscape) -> tuple:
    extents = landscape.manifest["extents"]
    first = tuple(extents.get(name, 0) for name in _FIRST)
    where = family_of(landscape)
    at = FAMILIES.index(where) if where in FAMILIES else len(FAMILIES)
    return KERNELS.index(landscape.kernel), landscape.gpu, at, *first, landscape.workload


def by_kernel(found: Sequence[Landscape]) -> dict[str, list[Landscape]]:
    """Returns the landscapes of each kernel, in order."""
    return {k: [x for x in found if x.kernel == k] for k in dict.fromkeys(x.kernel for x in found)}


def family_of(landscape: Landscape) -> str:
    """Returns whose shape it is: "Llama 4", "DeepSeek-V3", "DeepSeek-MoE-16B"."""
    return family(landscape.manifest.get("source", ""))


def about(landscape: Landscape) -> dict[str, str]:
    """Returns what every table begins with: kernel, workload (its name), family, gpu."""
    name = landscape.workload.partition("/")[2]
    return {
        "kernel": landscape.kernel,
        "workload": name,
        "family": family_of(landscape),
        "gpu": landscape.gpu,
    }


def lists(kernel: str) -> tuple[str, ...]:
    """Returns the names of a kernel's lists of configs: the published ones, then "wide"."""
    return (*PUBLISHED.get(kernel, ()), WIDE)


def widened(kernel: str) -> tuple[str, ...]:
    """Returns the lists on which sharing is told: the expanded space and everything, once each."""
    return tuple(dict.fromkeys((expanded(kernel), WIDE)))


@lru_cache(maxsize=512)
def positions(landscape: Landscape, name: str) -> np.ndarray:
    """Returns where a landscape holds the configs of a list that ran, in the list's order.

    Found once while the landscape is in memory; do not write to it.
    """
    ok = landscape.status == OK
    if name == WIDE:
        return np.flatnonzero(ok)
    held = set(landscape.table.index.tolist())
    at = (landscape.space.index(c) for c in published(landscape.kernel, name))
    return np.array([i for i in at if i in held and ok[i]], dtype=int)


def default_at(landscape: Landscape) -> int:
    """Returns where a landscape holds the default: the single original config."""
    return landscape.index(landscape.space.default)


def joined(parts: Sequence[pd.DataFrame], *, of: str) -> pd.DataFrame:
    """Returns tables one below the other.

    Args:
        parts: The tables.
        of: What landscapes they are of, in words.

    Raises:
        UsageError: There are none.
    """
    if not parts:
        raise UsageError(
            f"this needs landscapes of {of}, got none; open_study() has all that are recorded"
        )
    return pd.concat(parts, ignore_index=True)

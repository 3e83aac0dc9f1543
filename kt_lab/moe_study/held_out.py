"""E7: tuned on the shapes of one family, run on those of another; every shape by itself."""

from collections.abc import Sequence

import pandas as pd

from kt_lab.evidence.repeated import LOSS
from kt_lab.landscape import Landscape
from kt_lab.many import across_families
from kt_lab.moe_study.recorded import by_kernel, family_of, widened
from kt_lab.moe_study.sharing import crossed
from kt_lab.stats.keyed import named

_BY = ["kernel", "list", "tuned", "family", "workload"]


def losses(found: Sequence[Landscape]) -> pd.DataFrame:
    """Returns what one config for a family costs on every shape, unguarded.

    Args:
        found: Landscapes of any kernels on one GPU; a kernel of one family is skipped.

    Returns:
        One row per kernel, list (that of pull request 3952 or "published", and "wide"), tuned
        family and shape: kernel, list, tuned, family, workload, apparent (as the tuning visits
        read it) and loss (as the others judge it: latency over the original config's, minus 1;
        largest of the visits; > 0 is a regression, null: not held), regressed (by more than
        LOSS), own (whether the shape is of the tuned family).
    """
    parts = []
    for kernel, group in by_kernel(found).items():
        families = {named(x): family_of(x) for x in group}
        if len(set(families.values())) < 2:
            continue
        for name in widened(kernel):
            told = across_families(crossed(group, name), families)
            parts.append(told.assign(kernel=kernel, list=name))
    if not parts:
        return pd.DataFrame(columns=[*_BY, "apparent", "loss", "regressed", "own"])
    table = pd.concat(parts, ignore_index=True)
    table = table.groupby(_BY, sort=False)[["apparent", "loss"]].max().reset_index()
    table["workload"] = table["workload"].str.partition(" on ")[0]
    own = table["tuned"] == table["family"]
    return table.assign(regressed=table["loss"] > LOSS, own=own)

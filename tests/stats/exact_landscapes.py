"""Landscapes of the toy space whose latencies are given exactly."""

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape
from tests.runners.tables import SPACE, make_landscape

# Rows are BLOCK 16..128, columns num_stages 1..4; the default is the corner (16, 1).
RISING = np.exp(np.add.outer([0.0, 0.1, 0.2, 0.3], [0.0, 0.01, 0.02, 0.03]))


def exact(latency, name="a", *, other=None, gpu="test", **extents):
    """Returns a landscape with these latencies; NaN: it failed.

    Args:
        latency: Of the first visit, 16 values.
        name: Of the workload.
        other: Of the second visit; None: the same.
        gpu: Its name.
        extents: Of the workload.
    """
    visits = np.stack([np.ravel(latency), np.ravel(latency if other is None else other)])
    made = make_landscape(
        workload=f"toy/{name}", gpu=gpu, extents=extents or {"M": 16}, dtype="float16"
    )
    table = made.table.reset_index(drop=True)
    ok = np.isfinite(visits).all(axis=0)
    table["status"] = np.where(ok, "ok", "compile_error")
    samples = np.repeat(visits, 4, axis=0).T.tolist()
    table["samples_us"] = [s if o else [] for s, o in zip(samples, ok, strict=True)]
    table["visit"] = [[0] * 4 + [1] * 4 if o else [] for o in ok]
    table["code_hash"] = [f"h{at}" for at in range(SPACE.size)]
    return Landscape(pd.DataFrame(table), made.manifest)

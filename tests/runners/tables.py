"""A small landscape made by hand, with every kind of row that a recording can hold."""

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.space import Integer, ParameterSpace, PowerOfTwo

SPACE = ParameterSpace(
    [PowerOfTwo("BLOCK", 16, 128, role="tile"), Integer("num_stages", 1, 4, role="stages")],
    default={"BLOCK": 16, "num_stages": 1},
)
REPETITIONS = 16
FLUSH_US = 80.0


def make_landscape(**changes) -> Landscape:
    """Returns 16 configs: row 3 fails to compile, 5 is wrong, 7, 8 and 9 share one binary, and
    7 and 8 one launch."""
    rng = np.random.default_rng(7)
    rows = []
    for at, row in enumerate(SPACE.enumerate().tolist()):
        latency = 10.0 + 5 * at
        status = {3: "compile_error", 5: "wrong_result"}.get(at, "ok")
        visits = [latency * (1 + 0.01 * v + 0.02 * rng.random(REPETITIONS)) for v in range(2)]
        rows.append(
            {
                "p_BLOCK": row[0],
                "p_num_stages": row[1],
                "status": status,
                "error": "" if status == "ok" else "E: it failed",
                "samples_us": np.concatenate(visits).tolist() if status == "ok" else [],
                "visit": [v for v in range(2) for _ in range(REPETITIONS)] * (status == "ok"),
                "specialisation": f"s{at}",
                "code_hash": "twin" if at in (7, 8, 9) else f"h{at}",
                "grid": "16" if at == 9 else "8",
                "compile_s": 1.0,
                "compile_cpu_s": 0.9,
                "compile_workers": 4,
                "check_s": 0.002,
                "timing_overhead_s": 0.01,
                "failure_s": 0.5 if status == "wrong_result" else None,
                "registers": 32,
                "spills": 0,
                "shared_bytes": 1024,
            }
        )
    manifest = {
        "kernel": "toy",
        "workload": "toy/16",
        "gpu": "test",
        "space": SPACE.describe(),
        "fingerprint": SPACE.fingerprint,
        "flush_us": FLUSH_US,
        "contention": {"a": 0.5, "p": 1.0},
    }
    return Landscape(pd.DataFrame(rows), manifest | changes)


def config(at: int):
    """Returns config number `at` of the space."""
    return SPACE.config(SPACE.enumerate()[at])

"""What a recording will take, from what a recorded landscape took."""

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.record.state import RecordOptions
from kt_lab.trial import OK


def estimate(
    landscape: Landscape, options: RecordOptions, *, workers: int, configs: int | None = None
) -> pd.DataFrame:
    """Returns what recording a workload would take, if it costs what a recorded one did.

    Compilations overlap with the first visit, so the longer of the two is waited for; the
    comparison with the vendor and the contention curve are left out (seconds).

    Args:
        landscape: A recorded workload that is like it, best of the same kernel.
        options: How it will be recorded.
        workers: Compile processes of the machine, where the options leave them open.
        configs: In its space; None: as many as the recorded one has.

    Returns:
        One row per phase: phase, count (compilations or launches), seconds; the last row,
        "expected", is what one waits for.
    """
    table, known = landscape.table, len(landscape.table)
    asked = min(options.limit or configs or known, configs or known)
    scale = asked / known
    once = table.drop_duplicates("specialisation")
    # A sample of the configs shares fewer binaries: each of n configs stays with chance `scale`.
    shared = table.groupby("specialisation")["status"].transform("size")[once.index]
    kept = 1 - (1 - min(scale, 1.0)) ** shared if scale < 1 else pd.Series(scale, once.index)
    lanes = options.compile_workers or workers
    compile_s = float((once["compile_s"] * kept).sum()) / lanes
    good = table[table["status"] == OK]
    latency = landscape.latency_us[good.index.to_numpy()]
    slow = latency > options.slow_factor * landscape.optimum_us
    launches = np.where(slow, options.fewest, options.repetitions)
    visit_s = float((launches * (latency + landscape.manifest["flush_us"])).sum()) * 1e-6
    extra_s = float(table[["check_s", "timing_overhead_s", "failure_s"]].sum().sum())
    first_s, later_s = scale * (visit_s + extra_s), scale * visit_s * (options.visits - 1)
    count = round(scale * launches.sum())
    later = "visit 2" if options.visits == 2 else f"visits 2 to {options.visits}"
    rows = [
        ("compile", round(kept.sum()), compile_s),
        ("visit 1, with checks", count, first_s),
        (later, count * (options.visits - 1), later_s),
        ("expected", asked, max(compile_s, first_s) + later_s),
    ]
    return pd.DataFrame(rows, columns=["phase", "count", "seconds"])

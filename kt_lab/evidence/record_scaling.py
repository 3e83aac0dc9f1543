"""How much faster several GPUs of one host record: the same configs on one, two and more.

Every recording is complete and starts from nothing: processes, inputs, compilations. Each GPU has
the same number of compile processes beside it, since a host with more GPUs has more cores. Where
two threads share a core, twice as many processes than cores compile hardly more: then the cores
are what does not scale.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.provenance import provenance
from kt_lab.record import Progress, Recording, RecordOptions
from kt_lab.record.recording import SERVICES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is recorded; by the defaults one GPU takes about a minute."""
    parser.add_argument("--workload", default="rms_norm_dense/4096x1536")
    parser.add_argument("--configs", type=int, default=2400, help="of the workload, sampled")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2], help="how many record")
    parser.add_argument("--workers", type=int, nargs="+", default=[6], help="of each GPU")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Records the same configs once for each number of GPUs."""
    rows, agreed = [], []
    for workers in args.workers:
        latencies = []
        for gpus in args.gpus:
            options = RecordOptions(
                devices=tuple(range(gpus)),
                slices=True,
                limit=args.configs,
                contention=0,
                compile_workers=workers * gpus,
            )
            with tempfile.TemporaryDirectory() as folder:
                row, latency_us = measure(args.workload, Path(folder), options)
            rows.append(row | {"gpus": gpus, "workers": workers * gpus})
            latencies.append(latency_us)
        agreed += agreement(latencies)
    told = {"workload": args.workload, "agreement": agreed, "rows": rows}
    return told | {"provenance": provenance()}


def measure(
    workload: str,
    folder: Path,
    options: RecordOptions,
    *,
    services: Mapping[str, str] = SERVICES,
) -> tuple[dict[str, Any], np.ndarray]:
    """Records one workload into an empty folder.

    Returns:
        gpu, configs, readings, seconds (of everything), start_s (until the first config was
        compiled: processes, imports, inputs), visits_s (from then to the last reading) and
        offsets (each GPU's control over the fastest one's); and the recorded latencies in
        microseconds, shape (space size,).
    """
    seen: list[float] = []

    def note(progress: Progress) -> None:
        if progress.done:
            seen.append(progress.elapsed_s)

    began = time.perf_counter()
    recording = Recording(
        [workload], directory=folder, options=options, services=services, on_progress=note
    )
    (path,) = recording.run()
    seconds = time.perf_counter() - began
    landscape = Landscape.load(path)
    control = landscape.manifest["control"] or {"devices": {}}
    facts = {
        "gpu": landscape.gpu,
        "configs": len(landscape.table),
        "readings": int(landscape.table["visit"].map(lambda v: len(set(v))).sum()),
        "seconds": seconds,
        "start_s": seen[0],
        "visits_s": seen[-1] - seen[0],
        "offsets": [row["offset"] for row in control["devices"].values()],
    }
    return facts, landscape.latency_us


def agreement(latencies: Sequence[np.ndarray]) -> list[dict[str, float]]:
    """Returns how later recordings agree with the first: Spearman's rho and the median offset."""
    found = []
    for other in latencies[1:]:
        both = pd.DataFrame({"first": latencies[0], "other": other})
        both = both[np.isfinite(both).all(axis=1)]
        ratio = np.log(both["other"] / both["first"])
        rho = both["first"].corr(both["other"], method="spearman")
        found.append({"spearman": float(rho), "offset": float(np.expm1(ratio.median()))})
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns the rows with `each`, `speedup`, `efficiency` and `whole`.

    `each` is the compile processes of each GPU. Speed-up is visits_s of the first row with as many
    and with as many configs over a row's, efficiency that per GPU, of what the first row has;
    `whole` is the same of all seconds, with the start-up.
    """
    found = pd.DataFrame(rows).assign(each=lambda t: t["workers"] // t["gpus"])
    groups = found.groupby(["each", "configs"], sort=False)
    for name, seconds in (("speedup", "visits_s"), ("whole", "seconds")):
        found[name] = groups[seconds].transform("first") / found[seconds]
    return found.assign(
        efficiency=found["speedup"] * groups["gpus"].transform("first") / found["gpus"]
    )


def report(result: Mapping[str, Any]) -> str:
    """Returns the table for people."""
    found = table(result["rows"])
    lines = [f"{result['workload']} on {found['gpu'].iloc[0]}:"]
    for row in found.itertuples():
        lines.append(
            f"  {row.configs:,} configs, {row.gpus} GPUs, {row.each} compile processes each: "
            f"visits {row.visits_s:.1f} s of {row.seconds:.1f} s, "
            f"speed-up {row.speedup:.2f}, efficiency {row.efficiency:.0%}, "
            f"with the start-up {row.whole:.2f}"
        )
    lines += [
        f"  beside the first: Spearman {a['spearman']:.4f}, offset {a['offset']:+.2%}"
        for a in result["agreement"]
    ]
    return "\n".join(lines)

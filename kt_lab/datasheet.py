"""The datasheet: one row of facts per recorded landscape, computed from the data."""

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape, landscapes
from kt_lab.study import levels

BEGIN = "<!-- datasheet: begin -->"
END = "<!-- datasheet: end -->"
_CAREFUL = 10  # samples that a visit needs before its spread says anything


def datasheet() -> pd.DataFrame:
    """Returns one row per shipped landscape, sorted by kernel, workload and GPU."""
    return pd.DataFrame([_row(Landscape.load(entry.path)) for entry in landscapes()])


def _row(landscape: Landscape) -> dict:
    manifest = landscape.manifest
    latency = landscape.latency_us
    optimum = landscape.optimum_us
    ok = np.isfinite(latency)
    known = levels(landscape.workload, gpu=landscape.gpu)
    spread = [np.std(s) / np.mean(s) for s in landscape.samples[0] if len(s) >= _CAREFUL]
    beside = float(np.median(manifest["baseline"]["beside_us"]))
    vendor = float(np.median(manifest["baseline"]["samples_us"]))
    good = landscape.table[landscape.table["status"] == "ok"]
    return {
        "workload": landscape.workload,
        "gpu": landscape.gpu,
        "configs": len(landscape.table),
        "failed": int((~ok[landscape.table.index.to_numpy()]).sum()),
        "distinct_binaries": int(good["code_hash"].nunique()),
        "distinct_launches": int(good.groupby(["code_hash", "grid"]).ngroups),
        "optimum_us": optimum,
        "default_us": float(latency[landscape.space.index(landscape.space.default)]),
        "median_over_best": float(np.nanmedian(latency)) / optimum,
        "within_1_percent": int((latency[ok] <= 1.01 * optimum).sum()),
        "within_5_percent": int((latency[ok] <= 1.05 * optimum).sum()),
        "noise_cv": float(np.median(spread)),
        "noise_floor": known["noise_floor"],
        "bytes_floor_us": manifest["bytes_floor_us"],
        "share_of_bytes_floor": manifest["bytes_floor_us"] / optimum,
        "vendor_us": vendor,
        "latency_ratio_to_vendor": beside / vendor,
    }


def markdown(table: pd.DataFrame) -> str:
    """Returns the datasheet as a Markdown table with short headings."""
    heads = {
        "workload": ("workload", "{}"),
        "gpu": ("GPU", "{}"),
        "configs": ("configs", "{:,}"),
        "failed": ("failed", "{}"),
        "distinct_binaries": ("distinct binaries", "{:,}"),
        "distinct_launches": ("distinct launches", "{:,}"),
        "optimum_us": ("optimum µs", "{:.2f}"),
        "default_us": ("default µs", "{:.2f}"),
        "median_over_best": ("median / best", "{:.2f}"),
        "within_1_percent": ("configs within 1 %", "{}"),
        "within_5_percent": ("within 5 %", "{}"),
        "noise_cv": ("noise (CV)", "{:.1%}"),
        "noise_floor": ("noise floor", "{:.4f}"),
        "bytes_floor_us": ("bytes floor µs", "{:.2f}"),
        "share_of_bytes_floor": ("share of it", "{:.0%}"),
        "vendor_us": ("torch µs", "{:.2f}"),
        "latency_ratio_to_vendor": ("latency ratio to torch", "{:.2f}"),
    }
    lines = ["| " + " | ".join(head for head, _ in heads.values()) + " |"]
    lines.append("|" + " --- |" * len(heads))
    for row in table.to_dict("records"):
        cells = [form.format(row[name]) for name, (_, form) in heads.items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)

"""The datasheet: one row of facts per recorded landscape, computed from the data."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from kt_lab.landscape import Landscape, data_directory, landscapes
from kt_lab.roofline import roofline
from kt_lab.sessions import load_sessions
from kt_lab.stats.sessions import agreement
from kt_lab.study import levels
from kt_lab.ticks import of_each
from kt_lab.vendors import compiled_readings

BEGIN = "<!-- datasheet: begin -->"
END = "<!-- datasheet: end -->"
KERNELS_BEGIN = "<!-- kernels -->"
KERNELS_END = "<!-- /kernels -->"
_CAREFUL = 10  # samples that a visit needs before its spread says anything
_AGREES = 0.98  # Spearman's rho of two sessions, from which on they agree
_MOVES = 1.02  # what the recorded best may cost there
_HEADS = {
    "workload": ("workload", "{}"),
    "gpu": ("GPU", "{}"),
    "configs": ("configs", "{:,}"),
    "failed": ("failed", "{:,}"),
    "distinct_launches": ("distinct launches", "{:,}"),
    "optimum_us": ("optimum µs", "{:.2f}"),
    "default_us": ("default µs", "{:.2f}"),
    "median_over_best": ("median / best", "{:.2f}"),
    "within_1_percent": ("within 1 %", "{:.1%}"),
    "within_5_percent": ("within 5 %", "{:.1%}"),
    "noise_cv": ("noise (CV)", "{:.1%}"),
    "noise_floor": ("noise floor", "{:.4f}"),
    "sessions": ("sessions", "{}"),
    "session_offsets": ("session offsets", "{}"),
    "spearman": ("Spearman", "{:.3f}"),
    "visits_spearman": ("of its visits", "{:.3f}"),
    "optimum_moves": ("optimum elsewhere", "{:.3f}"),
    "floor_us": ("roofline µs", "{:.2f}"),
    "bound": ("bound by", "{}"),
    "share_of_roofline": ("share of it", "{:.0%}"),
    "vendor": ("vendor", "{}"),
    "vendor_us": ("vendor µs", "{:.2f}"),
    "ratio_to_vendor": ("ratio to vendor", "{:.2f}"),
    "ratio_to_compiled": ("to torch.compile", "{:.2f}"),
}


def datasheet() -> pd.DataFrame:
    """Returns one row per shipped landscape, sorted by kernel, workload and GPU.

    Columns as in `markdown`; `session_offsets`: the lowest and the highest median of session /
    recording; `spearman`: the lowest rank correlation of a session with the recording, and
    `visits_spearman` that of the recording's own first two visits, over the same configs;
    `optimum_moves`: how much slower the recorded best was than a session's own best, at worst.
    Missing where no session or comparison was made.
    """
    return pd.DataFrame([_row(Landscape.load(entry.path)) for entry in landscapes()])


def _row(landscape: Landscape) -> dict:
    latency = landscape.latency_us
    optimum = landscape.optimum_us
    ok = np.isfinite(latency)
    careful = [samples for samples in landscape.samples[0] if len(samples) >= _CAREFUL]
    careful = careful or [np.array([np.nan])]  # other tuners repeat less
    good = landscape.table[landscape.table["status"] == "ok"]
    bounds = roofline(landscape.manifest)
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
        "within_1_percent": float((latency[ok] <= 1.01 * optimum).mean()),
        "within_5_percent": float((latency[ok] <= 1.05 * optimum).mean()),
        "noise_cv": float(np.median(of_each(np.std, careful) / of_each(np.mean, careful))),
        "noise_floor": levels(landscape)["noise_floor"],
        **_sessions(landscape),
        "bytes_floor_us": bounds.bytes_us,
        "floor_us": bounds.floor_us,
        "bound": bounds.bound if bounds.floor_us > 0 else None,  # not known
        "share_of_roofline": bounds.share(optimum),
        **_vendors(landscape),
    }


def _sessions(landscape: Landscape) -> dict:
    readings = _readings(landscape.gpu, data_directory())
    mine = readings[readings["workload"] == landscape.workload]
    told = mine if mine.empty else agreement(landscape, mine)
    if told.empty:
        names = ("session_offsets", "spearman", "visits_spearman", "optimum_moves")
        return {"sessions": 1} | dict.fromkeys(names)
    return {
        "sessions": 1 + len(told),
        "session_offsets": f"{told['offset'].min():.3f} to {told['offset'].max():.3f}",
        "spearman": float(told["spearman"].min()),
        "visits_spearman": float(told["visits_spearman"].min()),
        "optimum_moves": float(told["optimum_ratio"].max()),
    }


@lru_cache(maxsize=4)
def _readings(gpu: str, data: Path) -> pd.DataFrame:
    return load_sessions(gpu, directory=data / "sessions")


def _vendors(landscape: Landscape) -> dict:
    baseline = landscape.manifest.get("baseline") or {}
    ours, theirs = (np.median(baseline.get(n) or [np.nan]) for n in ("beside_us", "samples_us"))
    here = _compiled(data_directory()).get((landscape.workload, landscape.gpu))
    return {
        "vendor": baseline.get("name"),
        "vendor_us": float(theirs),
        "ratio_to_vendor": float(ours / theirs),
        "ratio_to_compiled": here[0] / here[1] if here else None,
    }


@lru_cache(maxsize=4)
def _compiled(data: Path) -> dict[tuple[str, str], tuple[float, float]]:
    return compiled_readings(data)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per kernel and GPU of a datasheet.

    Returns:
        kernel, gpu, workloads, configs, failed, distinct_launches, best_share (of the roofline,
        over workloads), ratio_to_vendor (geometric mean over workloads).
    """
    rows = []
    kernel = table["workload"].str.partition("/")[0]
    for (name, gpu), part in table.groupby([kernel, "gpu"], sort=True):
        rows.append(
            {
                "kernel": name,
                "gpu": gpu,
                "workloads": len(part),
                "configs": int(part["configs"].sum()),
                "failed": int(part["failed"].sum()),
                "distinct_launches": int(part["distinct_launches"].sum()),
                "best_share": float(part["share_of_roofline"].max()),
                "ratio_to_vendor": float(np.exp(np.log(part["ratio_to_vendor"]).mean())),
            }
        )
    return pd.DataFrame(rows)


_SUMMARY_HEADS = {
    "kernel": ("kernel", "{}"),
    "gpu": ("GPU", "{}"),
    "workloads": ("workloads", "{}"),
    "configs": ("configs", "{:,}"),
    "failed": ("failed", "{:,}"),
    "distinct_launches": ("distinct launches", "{:,}"),
    "best_share": ("best share of the roofline", "{:.0%}"),
    "ratio_to_vendor": ("ratio to vendor (geomean)", "{:.2f}"),
}


def kernels_table(table: pd.DataFrame) -> str:
    """Returns a Markdown table with one row per kernel: what was recorded, and how good it is.

    Args:
        table: A datasheet.
    """
    told = summary(table)
    gpus = sorted(told["gpu"].unique())
    rows = []
    for kernel, part in told.groupby("kernel", sort=True):
        row = {"kernel": f"`{kernel}`", "workloads": int(part["workloads"].max())}
        row["configs"] = int(part["configs"].sum())
        for gpu in gpus:
            here = part[part["gpu"] == gpu]
            row[f"{gpu} share"] = here["best_share"].max() if len(here) else None
            row[f"{gpu} ratio"] = here["ratio_to_vendor"].max() if len(here) else None
        rows.append(row)
    heads = {name: (name, "{}") for name in ("kernel", "workloads")} | {
        "configs": ("configs", "{:,}")
    }
    for gpu in gpus:
        heads[f"{gpu} share"] = (f"best share of the roofline, {gpu.upper()}", "{:.0%}")
        heads[f"{gpu} ratio"] = (f"latency ratio to vendor, {gpu.upper()}", "{:.2f}")
    return _table(pd.DataFrame(rows), heads)


def markdown(table: pd.DataFrame) -> str:
    """Returns the datasheet as Markdown: a sentence, a table per kernel, one per landscape."""
    said = (
        f"{len(table)} landscapes of {table['workload'].nunique()} workloads and "
        f"{table['workload'].str.partition('/')[0].nunique()} kernels on "
        f"{table['gpu'].nunique()} GPUs: {table['configs'].sum():,} measured configs, "
        f"{table['failed'].sum():,} of them failures."
    )
    tables = [_table(summary(table), _SUMMARY_HEADS), _table(table, _HEADS)]
    return "\n\n".join([said, *tables, *noisy(table)])


def noisy(table: pd.DataFrame) -> list[str]:
    """Returns, as Markdown, which landscapes other sessions do not confirm, and by how much.

    Args:
        table: A datasheet.

    Returns:
        A sentence and a table; nothing where no other session was recorded.
    """
    timed = table[table["sessions"] > 1]
    if timed.empty:
        return []
    agree = (timed["spearman"] >= _AGREES) & (timed["optimum_moves"] <= _MOVES)
    said = (
        f"Of {len(timed)} landscapes that other sessions timed, {int(agree.sum())} agree with "
        f"each of them (Spearman of at least {_AGREES}, the recorded best within "
        f"{_MOVES - 1:.0%} of the session's own). The others are noisy:"
    )
    names = ("workload", "gpu", "spearman", "visits_spearman", "optimum_moves", "session_offsets")
    noisy = timed[~agree].sort_values("spearman")
    return [said, _table(noisy, {name: _HEADS[name] for name in names})]


def _table(table: pd.DataFrame, heads: dict[str, tuple[str, str]]) -> str:
    lines = ["| " + " | ".join(head for head, _ in heads.values()) + " |"]
    lines.append("|" + " --- |" * len(heads))
    for row in table.to_dict("records"):
        cells = [
            "" if pd.isna(row[name]) else form.format(row[name])
            for name, (_, form) in heads.items()
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)

"""The flagship in Helion's own spaces, as tables: equal configs, equal seconds, best known."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.stats.intervals import geomean_interval

TIMER = "events"
_NAMES = {"scout": "kt_lab's", "helion": "Helion's"}


def raced_us(result: Mapping[str, Any], op: str, *, timer: str = TIMER) -> dict[str, float]:
    """Returns the medians of an operation's race in microseconds by contender."""
    race = next((r for r in result["rows"] if (r["op"], r["run"]) == (op, "race")), {})
    return dict(zip(race.get("names", ()), race.get("medians_us", {}).get(timer, ()), strict=True))


def runs_table(result: Mapping[str, Any], *, timer: str = TIMER) -> pd.DataFrame:
    """Returns a row per run of a raced operation.

    Args:
        result: Of `kt-lab evidence large`, stored.
        timer: "events" or "graph".

    Returns:
        op, run, seed, trials, elapsed_s, failed (share of trials); end_us and equal_us: what it
        held in the end, and when the quicker run of its seed had ended, as the race timed it
        (inf: nothing right was held); best_us, the best of the race; quantile: the share of
        uniform draws that read at most end_us, failures among the others; NaN without draws.
    """
    rows = []
    for op in dict.fromkeys(row["op"] for row in result["rows"]):
        us = raced_us(result, op, timer=timer)
        known = {name: t for name, t in us.items() if name != "torch"}
        if not known:
            continue
        own = [r for r in result["rows"] if r["op"] == op and r["run"] != "race"]
        drawn = next((r["readings_us"] for r in own if r["run"] == "uniform"), [])
        drawn = np.array([np.inf if t is None else t for t in drawn], dtype=float)
        for row in own:
            end = us.get(f"{row['run']}/{row['seed']}/end", np.inf)
            rows.append(
                {name: row[name] for name in ("op", "run", "seed", "trials", "elapsed_s")}
                | {"failed": 1 - row["statuses"].get("ok", 0) / max(1, row["trials"])}
                | {"end_us": end, "best_us": min(known.values())}
                | {"equal_us": us.get(f"{row['run']}/{row['seed']}/equal", end)}
                | {"quantile": float((drawn <= end).mean()) if len(drawn) else np.nan}
            )
    return pd.DataFrame(rows)


def large_table(result: Mapping[str, Any], *, timer: str = TIMER) -> pd.DataFrame:
    """Returns a row per operation: ours over Helion's, medians over seeds.

    Returns:
        kernel, size (of the space, aliases included), seeds; for each side trials, elapsed_s,
        failed, end_us, equal_us and quantile, medians; end_ratio and equal_ratio, ours / Helion's,
        < 1 is better; seconds_ratio; best_us; best_run, who found it.
    """
    runs = runs_table(result, timer=timer)
    rows = []
    for op, table in runs.groupby("op", sort=False):
        pairs = {side: table[table["run"] == side] for side in _NAMES}
        seeds = set(pairs["scout"]["seed"]) & set(pairs["helion"]["seed"])
        if not seeds:
            continue
        sizes = [r["size"] for r in result["rows"] if r["op"] == op and "size" in r]
        row: dict[str, Any] = {"kernel": op, "size": sizes[0], "seeds": len(seeds)}
        for side, found in pairs.items():
            chosen = found[found["seed"].isin(seeds)]
            for name in ("trials", "elapsed_s", "failed", "end_us", "equal_us", "quantile"):
                row[f"{side}_{name}"] = float(chosen[name].median())
        for name in ("end", "equal"):
            row[f"{name}_ratio"] = row[f"scout_{name}_us"] / row[f"helion_{name}_us"]
        row["seconds_ratio"] = row["scout_elapsed_s"] / row["helion_elapsed_s"]
        best = table.loc[table["end_us"].idxmin()]
        rows.append(row | {"best_us": table["best_us"].iloc[0], "best_run": best["run"]})
    return pd.DataFrame(rows)


def large_lines(result: Mapping[str, Any]) -> list[str]:
    """Returns the README's lines."""
    table = large_table(result)
    lanes = sorted({row["lanes"] for row in result["rows"] if "lanes" in row})
    lines = [
        f"In Helion {result['helion']}'s own spaces: `{result['searcher']}` and Helion's "
        "LFBOTree (quick effort) choose configs of Helion's kernels; the same workers generate, "
        f"compile ({' or '.join(map(str, lanes))} lanes), check and time them, so only the search "
        "differs. Ours gets as many configs as Helion's run of that seed; medians over seeds of "
        "one final race; ratios ours / Helion's. Best: of all runs, two of ten times the budget "
        f"and {result['uniform']:,} uniform draws among them. Quantile: the share of the draws "
        "that are at least as fast.",
        "",
        "| kernel | configs in the space | seeds | configs tried | failed, ours / Helion's | "
        "seconds | µs, ours / Helion's / best (whose) | ratio, equal configs | "
        "ratio, equal seconds | quantile, ours / Helion's |",
        "| --- " * 10 + "|",
    ]
    lines += [
        f"| {r.kernel} | {r.size:.0e} | {r.seeds} | {r.scout_trials:.0f} | {r.scout_failed:.0%} / "
        f"{r.helion_failed:.0%} | {r.scout_elapsed_s:.0f} / {r.helion_elapsed_s:.0f} | "
        f"{r.scout_end_us:.2f} / {r.helion_end_us:.2f} / {r.best_us:.2f} ({r.best_run}) | "
        f"{r.end_ratio:.3f} | {r.equal_ratio:.3f} | {r.scout_quantile:.1%} / "
        f"{r.helion_quantile:.1%} |"
        for r in table.itertuples()
    ]
    means = [
        f"{what} {_geomean(table, name)}"
        for what, name in (
            ("equal configs", "end_ratio"),
            ("equal seconds", "equal_ratio"),
            ("seconds", "seconds_ratio"),
        )
    ]
    return [*lines, "", f"Geomeans over {len(table)} kernels (low to high): {'; '.join(means)}."]


def _geomean(table: pd.DataFrame, column: str) -> str:
    found = geomean_interval(table, column=column)
    return f"{found.estimate:.2f} ({found.low:.2f} to {found.high:.2f})"


def report(result: Mapping[str, Any]) -> str:
    """Returns the tables for people."""
    runs = runs_table(result)
    if runs.empty:
        kept = [f"{r['op']}/{r['run']}/{r['seed']}" for r in result["rows"]]
        return f"no operation was raced yet; done: {', '.join(kept)}"
    return f"{runs.round(3).to_string(index=False)}\n\n" + "\n".join(large_lines(result))

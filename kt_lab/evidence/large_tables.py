"""The flagship in Helion's own spaces, as tables: equal configs, equal seconds, best known."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.evidence.geomeans import geomean_interval
from kt_lab.stats.intervals import CONFIDENCE, RESAMPLES, percentile_interval

TIMER = "events"
OURS = ("scout", "options")


def raced_us(result: Mapping[str, Any], op: str, *, timer: str = TIMER) -> dict[str, float]:
    """Returns the medians of an operation's race in microseconds by contender."""
    race = next((r for r in result["rows"] if (r["op"], r["run"]) == (op, "race")), {})
    medians_us = race.get("medians_us", {}).get(timer)  # None: that timer could not be used
    return dict(zip(race["names"], medians_us, strict=True)) if medians_us else {}


def runs_table(result: Mapping[str, Any], *, timer: str = TIMER) -> pd.DataFrame:
    """Returns a row per run of a raced operation.

    Args:
        result: Of `kt-lab evidence large`, stored.
        timer: "events" or "graph".

    Returns:
        op, run, seed, trials, elapsed_s, failed (share of trials); end_us, what it ended with, as
        the race timed it (inf: nothing that was right), of ours beside Helion's after as many
        configs; there also long_us, what it held after as many seconds, and long_trials;
        best_us, the best of the race; quantile: the share of uniform draws that read at most
        end_us, those without a reading among the others; NaN without draws.
    """
    rows = []
    for op in dict.fromkeys(row["op"] for row in result["rows"]):
        us = raced_us(result, op, timer=timer)
        known = [t for name, t in us.items() if name != "torch"]
        own = [r for r in result["rows"] if r["op"] == op and "bests" in r]
        if not known:
            continue
        drawn = next((r["readings_us"] for r in own if r["run"] == "uniform"), [])
        drawn = np.array([np.inf if t is None else t for t in drawn], dtype=float)
        for row in own:
            name = f"{row['run']}/{row['seed']}"
            end = us.get(name, np.inf)
            spent = row.get("as_many", row)
            long = row.get("as_long", {"trials": np.nan})
            rows.append(
                {name: row[name] for name in ("op", "run", "seed")}
                | {name: spent[name] for name in ("trials", "elapsed_s")}
                | {"failed": 1 - row["statuses"].get("ok", 0) / max(1, row["trials"])}
                | {"end_us": end, "best_us": min(known), "long_trials": long["trials"]}
                | {"long_us": us.get(f"{name}/s", np.inf)}
                | {"quantile": float((drawn <= end).mean()) if len(drawn) else np.nan}
            )
    return pd.DataFrame(rows)


def large_table(result: Mapping[str, Any], *, timer: str = TIMER) -> pd.DataFrame:
    """Returns a row per operation and searcher of ours: over Helion's, medians over seeds.

    Returns:
        kernel, run (of OURS), size (of the space, aliases included), seeds; `ours_` and `helion_`
        trials, elapsed_s, failed, end_us and quantile; long_trials and long_us of ours after
        Helion's seconds; end_ratio (equal configs) and equal_ratio (equal seconds), ours /
        Helion's, < 1 is better, each with `_low` and `_high`, of a bootstrap over the seeds of
        both; best_us, and best_run, who found it.
    """
    runs = runs_table(result, timer=timer)
    rows = []
    for (op, run), ours in runs.groupby(["op", "run"], sort=False) if len(runs) else ():
        helion = runs[(runs["op"] == op) & (runs["run"] == "helion")]
        helion = helion[helion["seed"].isin(ours["seed"])]
        if run not in OURS or helion.empty:
            continue
        size = next(r["size"] for r in result["rows"] if r["op"] == op and "size" in r)
        row: dict[str, Any] = {"kernel": op, "run": run, "size": size, "seeds": len(helion)}
        for side, found in (("ours", ours), ("helion", helion)):
            for name in ("trials", "elapsed_s", "failed", "end_us", "quantile"):
                row[f"{side}_{name}"] = float(found[name].median())
        row |= {name: float(ours[name].median()) for name in ("long_trials", "long_us")}
        for name, ends in (("end", "end_us"), ("equal", "long_us")):
            row |= _ratio(f"{name}_ratio", ours[ends], helion["end_us"])
        all_of_it = runs[runs["op"] == op].assign(
            least_us=lambda t: t[["end_us", "long_us"]].min(axis=1)
        )
        best = all_of_it.loc[all_of_it["least_us"].idxmin()]
        rows.append(row | {"best_us": best["best_us"], "best_run": best["run"]})
    return pd.DataFrame(rows)


def _ratio(name: str, ours: pd.Series, helion: pd.Series) -> dict[str, float]:
    """Returns the ratio of two medians over seeds, and its interval."""
    rng = np.random.default_rng(0)
    drawn = []
    for values in (ours.to_numpy(float), helion.to_numpy(float)):
        seeds = rng.integers(len(values), size=(RESAMPLES, len(values)))
        drawn.append(np.log(np.median(values[seeds], axis=1)))
    ends = percentile_interval(drawn[0] - drawn[1], CONFIDENCE)
    ratio = float(ours.median() / helion.median())
    return {name: ratio} | dict(zip((f"{name}_low", f"{name}_high"), ends, strict=True))


def large_lines(result: Mapping[str, Any], judged: Mapping[str, Any] | None = None) -> list[str]:
    """Returns the lines of RESULTS.md.

    Args:
        result: Of `kt-lab evidence large`, stored.
        judged: Another, of kernels that no option of ours was chosen with.
    """
    lines = [_about(result, _names(result)), "", *_table_lines(result)]
    if judged is not None:
        others = "Other kernels, whose readings no default was fitted to (no uniform draws):"
        lines += ["", others, "", *_table_lines(judged)]
    return lines


def _table_lines(result: Mapping[str, Any]) -> list[str]:
    table = large_table(result)
    told = ", ".join(f"{name} {value:g}" for name, value in result["options"].items())
    names = {"scout": f"`{result['searcher']}`", "options": f"with {told}"}
    long = f"ours, {names['options']}" if told else "ours"
    who = {"scout": "ours", "options": long, "long": f"{long}, long", "uniform": "a uniform draw"}
    who |= {"helion": "Helion's", "helion_full": "Helion's, full effort"}
    lines = [
        "| kernel | configs in the space | ours | seeds | configs, and ours in Helion's seconds "
        "| failed, ours / Helion's | seconds | µs: ours at equal configs, at equal seconds / "
        "Helion's | ratio, equal configs | ratio, equal seconds | quantile, ours / Helion's "
        "| µs, best (whose) |",
        "| --- " * 12 + "|",
    ]
    lines += [
        f"| {r.kernel} | {r.size:.0e} | {names[r.run]} | {r.seeds} | {r.ours_trials:.0f}, "
        f"{r.long_trials:.0f} | {r.ours_failed:.0%} / {r.helion_failed:.0%} | "
        f"{r.ours_elapsed_s:.1f} / {r.helion_elapsed_s:.1f} | {r.ours_end_us:.2f}, "
        f"{r.long_us:.2f} / {r.helion_end_us:.2f} | "
        f"{_told(r, 'end_ratio')} | {_told(r, 'equal_ratio')} | {_share(r.ours_quantile)} / "
        f"{_share(r.helion_quantile)} | {r.best_us:.2f} ({who[r.best_run]}) |"
        for r in table.itertuples()
    ]
    means = [
        f"{names[run]}: {_geomean(found, 'end_ratio')} at equal configs, "
        f"{_geomean(found, 'equal_ratio')} at equal seconds"
        for run, found in table.groupby("run", sort=False)
    ]
    graph = large_table(result, timer="graph")
    apart = ", ".join(f"{r.kernel} {r.equal_ratio:.3f}" for r in graph.itertuples())
    other = f" At equal seconds by the graph timer: {apart}." if apart else ""
    count = table["kernel"].nunique()
    said = f"Geomeans over {count} kernels (low to high): {'; '.join(means)}."
    told = [
        f" {names[run]}: {shown(found, 'end_ratio')} at equal configs, "
        f"{shown(found, 'equal_ratio')} at equal seconds."
        for run, found in table.groupby("run", sort=False)
    ]
    return [*lines, "", f"{said}{''.join(told)}{other}"]


def _names(result: Mapping[str, Any]) -> str:
    told = ", ".join(f"{name} {value:g}" for name, value in result["options"].items())
    return f"`{result['searcher']}`{f' (as it is, and with {told})' if told else ''}"


def _about(result: Mapping[str, Any], ours: str) -> str:
    rows = result["rows"]
    lanes = sorted({row["lanes"] for row in rows if "lanes" in row})
    draws = [row for row in rows if row["run"] == "uniform"]
    count = sorted({row["trials"] for row in draws})
    lost = [row["statuses"].get("timeout", 0) / row["trials"] for row in draws]
    quantile = (
        f"Quantile: the share of {' or '.join(map(str, count))} uniform draws at least as fast; "
        f"{min(lost):.0%} to {max(lost):.0%} of them took too long to compile and count among the "
        "others. "
        if draws
        else ""
    )
    goes = 1 + len(result.get("resumed", ()))
    return (
        f"In Helion {result['helion']}'s own spaces: {ours} and Helion's LFBOTree (quick effort) "
        "choose configs of Helion's kernels. The same workers generate, compile "
        f"({' or '.join(map(str, lanes))} lanes), check and time "
        "them, so only the search differs; all start from the same default and compiler seeds. "
        "Ours is judged after as many configs as Helion's run of that seed, and after as many "
        "seconds; medians over seeds of one final race of all winners, their ratios with the "
        f"{CONFIDENCE:.0%} interval of a bootstrap over the seeds of both. Best: of all runs, "
        f"longer ones and uniform draws among them. {quantile}`-`: none drawn. Rows were measured "
        f"in {goes} {'goes' if goes > 1 else 'go'}, on GPUs of one kind."
    )


def _told(row: Any, name: str) -> str:
    ratio, low, high = (getattr(row, f"{name}{end}") for end in ("", "_low", "_high"))
    return f"{ratio:.3f} ({low:.2f} to {high:.2f})"


def shown(table: pd.DataFrame, name: str) -> str:
    """Words on how many kernels the interval of a ratio leaves out 1, on either side."""
    faster, slower = (table[f"{name}_high"] < 1).sum(), (table[f"{name}_low"] > 1).sum()
    return f"{faster or 'none'} faster and {slower or 'none'} slower by the interval over seeds"


def _share(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.1%}"


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

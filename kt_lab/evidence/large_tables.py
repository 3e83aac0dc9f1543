"""The flagship in Helion's own spaces, as tables: equal configs, equal seconds, best known."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.stats.intervals import geomean_interval

TIMER = "events"
OURS = ("scout", "options")


def raced_us(result: Mapping[str, Any], op: str, *, timer: str = TIMER) -> dict[str, float]:
    """Returns the medians of an operation's race in microseconds by contender."""
    race = next((r for r in result["rows"] if (r["op"], r["run"]) == (op, "race")), {})
    return dict(zip(race.get("names", ()), race.get("medians_us", {}).get(timer, ()), strict=True))


def held_us(row: Mapping[str, Any], seconds: float) -> float:
    """Returns the reading of a run's incumbent after so many seconds; inf: it had none."""
    held = [us for _, elapsed_s, us in row["bests"] if elapsed_s <= seconds]
    return held[-1] if held else np.inf


def runs_table(result: Mapping[str, Any], *, timer: str = TIMER) -> pd.DataFrame:
    """Returns a row per run of a raced operation.

    Args:
        result: Of `kt-lab evidence large`, stored.
        timer: "events" or "graph".

    Returns:
        op, run, seed, trials, elapsed_s, failed (share of trials); end_us, what it ended with, as
        the race timed it (inf: nothing that was right); equal_us and helion_us, the readings that
        it and Helion's run of the seed held when the quicker of the two had ended; best_us, the
        best of the race; quantile: the share of uniform draws that read at most end_us, failures
        among the others; NaN without draws.
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
        helion = {r["seed"]: r for r in own if r["run"] == "helion"}
        for row in own:
            end = us.get(f"{row['run']}/{row['seed']}", np.inf)
            rival = helion.get(row["seed"], row)
            ends_s = min(row["elapsed_s"], rival["elapsed_s"])
            rows.append(
                {name: row[name] for name in ("op", "run", "seed", "trials", "elapsed_s")}
                | {"failed": 1 - row["statuses"].get("ok", 0) / max(1, row["trials"])}
                | {"end_us": end, "best_us": min(known)}
                | {"equal_us": held_us(row, ends_s), "helion_us": held_us(rival, ends_s)}
                | {"quantile": float((drawn <= end).mean()) if len(drawn) else np.nan}
            )
    return pd.DataFrame(rows)


def large_table(result: Mapping[str, Any], *, timer: str = TIMER) -> pd.DataFrame:
    """Returns a row per operation and searcher of ours: over Helion's, medians over seeds.

    Returns:
        kernel, run (of OURS), size (of the space, aliases included), seeds; `ours_` and `helion_`
        trials, elapsed_s, failed, end_us and quantile; end_ratio (equal configs), equal_ratio
        (equal seconds) and seconds_ratio, ours / Helion's, < 1 is better; best_us, and best_run,
        who found it.
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
        row["end_ratio"] = row["ours_end_us"] / row["helion_end_us"]
        row["equal_ratio"] = ours["equal_us"].median() / ours["helion_us"].median()
        row["seconds_ratio"] = row["ours_elapsed_s"] / row["helion_elapsed_s"]
        all_of_it = runs[runs["op"] == op]
        best = all_of_it.loc[all_of_it["end_us"].idxmin()]
        rows.append(row | {"best_us": best["best_us"], "best_run": best["run"]})
    return pd.DataFrame(rows)


def large_lines(result: Mapping[str, Any]) -> list[str]:
    """Returns the README's lines."""
    table = large_table(result)
    lanes = sorted({row["lanes"] for row in result["rows"] if "lanes" in row})
    draws = sorted(row["trials"] for row in result["rows"] if row["run"] == "uniform")
    told = ", ".join(f"{name} {value:g}" for name, value in result["options"].items())
    names = {"scout": f"`{result['searcher']}`", "options": f"with {told}"}
    goes = 1 + len(result.get("resumed", ()))
    long = f"ours, {names['options']}" if told else "ours"
    who = {"scout": "ours", "options": long, "long": f"{long}, long", "uniform": "a uniform draw"}
    who |= {"helion": "Helion's", "helion_full": "Helion's, full effort"}
    lines = [
        f"In Helion {result['helion']}'s own spaces: {names['scout']} (as it is"
        f"{f', and with {told}' if told else ''}) and Helion's LFBOTree (quick effort) choose "
        "configs of Helion's kernels. The same workers generate, compile "
        f"({' or '.join(map(str, lanes))} lanes), check and time "
        "them, so only the search differs; all start from the same default and compiler seeds. "
        "Ours gets as many configs as Helion's run of that seed; medians over seeds of one final "
        "race of all winners; at equal seconds, of what both read when the quicker one ended. "
        "Best: of all runs, longer ones "
        f"and uniform draws among them. Quantile: the share of {' or '.join(map(str, draws))} "
        "uniform draws at least as fast. `-`: none drawn. Rows were measured in "
        f"{goes} {'goes' if goes > 1 else 'go'}, on GPUs of one kind, not always the same card, "
        "the race in the last: a ratio at equal seconds may be of two cards.",
        "",
        "| kernel | configs in the space | ours | seeds | configs tried | failed, ours / Helion's "
        "| seconds | µs, ours / Helion's | ratio, equal configs | ratio, equal seconds | "
        "quantile, ours / Helion's | µs, best (whose) |",
        "| --- " * 12 + "|",
    ]
    lines += [
        f"| {r.kernel} | {r.size:.0e} | {names[r.run]} | {r.seeds} | {r.ours_trials:.0f} | "
        f"{r.ours_failed:.0%} / {r.helion_failed:.0%} | {r.ours_elapsed_s:.1f} / "
        f"{r.helion_elapsed_s:.1f} | {r.ours_end_us:.2f} / {r.helion_end_us:.2f} | "
        f"{r.end_ratio:.3f} | {r.equal_ratio:.3f} | {_share(r.ours_quantile)} / "
        f"{_share(r.helion_quantile)} | {r.best_us:.2f} ({who[r.best_run]}) |"
        for r in table.itertuples()
    ]
    means = [
        f"{names[run]}: {_geomean(found, 'end_ratio')} at equal configs, "
        f"{_geomean(found, 'equal_ratio')} at equal seconds"
        for run, found in table.groupby("run", sort=False)
    ]
    count = table["kernel"].nunique()
    return [*lines, "", f"Geomeans over {count} kernels (low to high): {'; '.join(means)}."]


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

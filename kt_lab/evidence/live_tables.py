"""Live searches beside the real Helion, kernel by kernel: seconds, latencies, their means."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.evidence.geomeans import geomean_interval

_SIDES = ("helion", "ours")
TIMERS = ("events", "graph")


def live_table(result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a row per kernel that both tuned live.

    Args:
        result: Of `kt-lab evidence beside-helion`, stored.

    Returns:
        kernel; for each side the seeds, and medians over them: helion_s and ours_s from the start
        of the process until the kernel is tuned, helion_configs and ours_configs, helion_events
        and so on in microseconds, of the race of all winners; wall_ratio, events_ratio,
        graph_ratio: ours over Helion's, < 1 is better.
    """
    rows = []
    for op, race in result["races"].items():
        row: dict[str, Any] = {"kernel": op}
        for side in _SIDES:
            steps = [s for s in result["steps"] if s["ok"] and (s["op"], s["do"]) == (op, side)]
            row[f"{side}_seeds"] = len(steps)
            for name, key in (("s", "wall_s"), ("configs", "configs")):
                told = [step["answer"][key] for step in steps]
                row[f"{side}_{name}"] = float(np.median(told)) if told else np.nan
            for timer in TIMERS:
                us = np.median(np.asarray(race["blocks_us"][timer], dtype=float), axis=0)
                own = [
                    t for n, t in zip(race["names"], us, strict=True) if n.startswith(f"{side}/")
                ]
                row[f"{side}_{timer}"] = float(np.median(own)) if own else np.nan
        row["wall_ratio"] = row["ours_s"] / row["helion_s"]
        for timer in TIMERS:
            row[f"{timer}_ratio"] = row[f"ours_{timer}"] / row[f"helion_{timer}"]
        rows.append(row)
    return pd.DataFrame(rows)


def live_lines(result: Mapping[str, Any]) -> list[str]:
    """Returns the lines of RESULTS.md of live searches beside Helion."""
    table = live_table(result)
    helion = next(s for s in result["steps"] if s["do"] == "helion" and s["ok"])["answer"]
    versions, searcher = helion["versions"], result["arguments"]["searcher"]
    fewer = "" if _same_configs(result) else ", or 100 where Helion's run of that seed came later"
    lines = [
        f"`scout` live beside Helion {versions['helion']} (quick effort): each tunes its own "
        f"kernel, `{searcher}` with as many trials as Helion tried configs{fewer}. One "
        f"{helion['metrics']['hardware']} and {result['cores']} "
        f"cores for each, torch {versions['torch']}, Triton {versions['triton']}; medians over "
        "seeds; latencies from one final race of the winners.",
        "",
        "| kernel | seeds, Helion and ours | configs | seconds | wall-clock ratio | µs, events | "
        "latency ratio | µs, graph | latency ratio |",
        "| --- " * 9 + "|",
    ]
    for row in table.to_dict("records"):
        pairs = [
            f"{row[f'helion_{n}']:.0f}, {row[f'ours_{n}']:.0f}" for n in ("seeds", "configs", "s")
        ]
        told = [*pairs, f"{row['wall_ratio']:.3f}"]
        for timer in TIMERS:
            told += [
                f"{row[f'helion_{timer}']:.2f}, {row[f'ours_{timer}']:.2f}",
                f"{row[f'{timer}_ratio']:.3f}",
            ]
        lines.append(f"| {row['kernel']} | {' | '.join(told)} |")
    names = {"wall_ratio": "wall-clock", "events_ratio": "events", "graph_ratio": "graph"}
    means = [
        f"{name} {mean.estimate:.2f} ({mean.low:.2f} to {mean.high:.2f}), "
        f"{int((table[column] > 1).sum())} of {len(table)} lost"
        for column, name in names.items()
        for mean in [geomean_interval(table, column=column)]
    ]
    return [*lines, "", f"Geometric means of our ratios over the kernels: {'; '.join(means)}."]


def _same_configs(result: Mapping[str, Any]) -> bool:
    """Whether both sides tried equally many configs of every kernel and seed."""
    told: dict[tuple, set] = {}
    for step in result["steps"]:
        if step["ok"]:
            told.setdefault((step["op"], step["seed"]), set()).add(step["answer"]["configs"])
    return all(len(counts) == 1 for counts in told.values())

"""The comparison with Helion for people: seconds to tuned, and latencies with their intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kt_lab.paired import signed_rank

_LEVEL = 0.05


def report(result: dict[str, Any]) -> str:
    """Returns the tables: seconds to tuned, and latencies of all winners side by side."""
    lines = ["Seconds from the start of the process until the kernel is tuned:"]
    for step in result["steps"]:
        answer = step["answer"]
        if not step["ok"]:
            lines.append(f"  {step['key']:38s} failed: {answer['error']}")
            continue
        parts = f"imports {answer['import_s']:.1f}, tuning {answer['tuning_s']:.1f}"
        latency = f", {answer['events_us']:.2f} us" if answer.get("events_us") else ""
        lines.append(
            f"  {step['key']:38s} {answer['wall_s']:7.1f} s ({parts}), "
            f"{answer['configs']} configs{latency}{flaw(answer)}"
        )
    for op, answer in result["races"].items():
        lines += _race_lines(op, answer)
    return "\n".join(lines)


def flaw(answer: Mapping[str, Any]) -> str:
    """Returns what is wrong with a tuned kernel, to follow what is told of it; often nothing."""
    return f", WRONG RESULT: {answer['wrong']}" if answer.get("wrong") else ""


def _race_lines(op: str, answer: Mapping[str, Any]) -> list[str]:
    if "error" in answer:
        return [f"{op}: the race failed: {answer['error']}"]
    lines = []
    for protocol, blocks in answer["blocks_us"].items():
        if isinstance(blocks, str):
            lines.append(f"{op}, {protocol}: {blocks}")
            continue
        title = f"{op}, {protocol}, {len(blocks)} rounds"
        lines.append(f"{title}: median us, and ratio to {_reference(answer['names'])}")
        for row in ratios(answer["names"], blocks):
            lines.append(
                f"  {row['name']:30s} {row['median_us']:8.2f}   {row['ratio']:.3f} "
                f"[{row['low']:.3f}, {row['high']:.3f}]"
            )
    lines += [f"  {c['name']}: out, {c['wrong']}" for c in answer["contenders"] if c["wrong"]]
    return lines


def _reference(names: Sequence[str]) -> str:
    """Returns whom the others are compared with: Helion's own run, if there is one."""
    return next((name for name in names if name.startswith("helion/")), names[0])


def ratios(names: Sequence[str], blocks: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Returns per contender its median and its latency ratio to Helion's own run.

    Args:
        names: Contenders.
        blocks: Block medians in microseconds, [round][contender].

    Returns:
        name, median_us, ratio (< 1 is faster) and its 95 % interval from paired rounds.
    """
    logs = np.log(np.asarray(blocks, dtype=float))
    base = logs[:, list(names).index(_reference(names))]
    rows = []
    for at, name in enumerate(names):
        low, ratio, high = np.exp(signed_rank(logs[:, at] - base, tail=_LEVEL / 2))
        median_us = float(np.exp(np.median(logs[:, at])))
        rows.append({"name": name, "median_us": median_us, "ratio": float(ratio)})
        rows[-1] |= {"low": float(low), "high": float(high)}
    return rows

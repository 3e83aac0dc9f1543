"""The README's account of the dojo, written from data/evidence alone."""

from collections.abc import Mapping
from typing import Any

from kt_lab.evidence.dojo_tables import players_table
from kt_lab.plots.style import searcher_style

BEGIN = "<!-- dojo -->"
END = "<!-- /dojo -->"
_PATHS = ("start", "expert", "best", "eager", "compiled", "floor")
_REFERENCES = {
    "start": "`gcc -O3` of the start program",
    "eager": "PyTorch eager",
    "compiled": "torch.compile",
}
_MISSING = "Not measured yet: `kt-lab evidence dojo` and `kt-lab evidence players`."


def dojo_block(comparison: Mapping[str, Any] | None, players: Mapping[str, Any] | None) -> str:
    """Returns the README's block of programs as Markdown.

    Args:
        comparison: The stored result of `kt-lab evidence dojo`, or None.
        players: That of `kt-lab evidence players`, or None.
    """
    parts = [_means(comparison), _rows(comparison)] if comparison else []
    parts += [_players(players)] if players else []
    return "\n\n".join(parts) or _MISSING


def _means(result: Mapping[str, Any]) -> str:
    lines = [
        "| latency ratio of the best program to | threads | operators | geomean [95 %] | lost |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in result["means"]:
        ratio = f"{row['ratio']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
        name = _REFERENCES[row["reference"]]
        lost = f"{row['losses']} of {row['workloads']}"
        lines.append(f"| {name} | {row['threads']} | {row['group']} | {ratio} | {lost} |")
    return "\n".join(lines)


def _rows(result: Mapping[str, Any]) -> str:
    first = result["rows"][0]
    lines = [
        f"Microseconds, {result['provenance']['cpu']}, {result['provenance']['cores']} cores, "
        f"{result['compiler']}, torch {first['torch']}; the floor is bytes or arithmetic at "
        "measured ceilings; * disturbed in spite of repetition.",
        "",
        f"| workload | threads | {' | '.join(_PATHS)} | best / eager |",
        "| --- " * (len(_PATHS) + 3) + "|",
    ]
    for row in result["rows"]:
        paths = row["paths"]
        told = [_us(paths.get(name)) for name in _PATHS[:-1]]
        told.append(f"{row['floor_us']:.4g} ({row['floor_by']})")
        eager = paths.get("eager")
        told.append(f"{paths['best']['min_us'] / eager['min_us']:.2f}" if eager else "")
        lines.append(f"| `{row['workload']}` | {row['threads']} | {' | '.join(told)} |")
    return "\n".join(lines)


def _us(path: Mapping[str, Any] | None) -> str:
    if not path or path["min_us"] is None:
        return ""
    return f"{path['min_us']:.4g}" + ("*" if path["disturbed"] else "")


def _players(result: Mapping[str, Any]) -> str:
    table = players_table(result["rows"])
    end = table[table["programs"] == result["budget"]]
    names = list(dict.fromkeys(end["workload"]))
    lines = [
        f"Median latency after {result['budget']} different programs over the best that anybody "
        f"found, {int(end['seeds'].max())} seeds (quartiles). {_noise(result)}",
        "",
        f"| player | {' | '.join(f'`{name}`' for name in names)} |",
        "| --- " * (len(names) + 1) + "|",
    ]
    for player in dict.fromkeys(end["player"]):
        rows = end[end["player"] == player].set_index("workload")
        told = [
            f"{rows.loc[n, 'median']:.2f} ({rows.loc[n, 'low']:.2f} to {rows.loc[n, 'high']:.2f})"
            if n in rows.index
            else ""
            for n in names
        ]
        lines.append(f"| {searcher_style(player).label} | {' | '.join(told)} |")
    return "\n".join(lines)


def _noise(result: Mapping[str, Any]) -> str:
    """Returns where players played, and what their readings of one program differ by."""
    read: dict[str, list[float]] = {}
    for row in result["rows"]:
        read.setdefault(row["workload"], []).append(row["start_us"])
    apart = max(max(starts) / min(starts) for starts in read.values())
    machine = result["provenance"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {result['compiler']}; players ran side by "
        f"side, and the start program of an operator was read up to {apart:.2f} times as slow by "
        "one as by another: smaller differences say nothing."
    )

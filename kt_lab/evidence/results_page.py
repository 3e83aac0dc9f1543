"""The account in RESULTS.md of the stored evidence, written from data/evidence alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab import stats
from kt_lab.comparison import optima_table
from kt_lab.evidence.cost import ratios as cost_ratios
from kt_lab.evidence.helion_field_page import field_lines
from kt_lab.evidence.helion_tables import ratios
from kt_lab.evidence.large_tables import large_lines
from kt_lab.evidence.live_tables import live_lines
from kt_lab.evidence.markdown import folded, grid
from kt_lab.evidence.results_rows import (
    drawn,
    flush,
    fuzzing,
    near,
    record_scaling,
    scaling,
    sizes,
    storage,
    triton,
    warm,
    warm_live,
)
from kt_lab.landscape import data_directory
from kt_lab.plots.style import searcher_style

BEGIN = "<!-- evidence -->"
END = "<!-- /evidence -->"
FIELD_BEGIN = "<!-- field -->"
FIELD_END = "<!-- /field -->"
TUNED_BEGIN = "<!-- tuned -->"
TUNED_END = "<!-- /tuned -->"
_SHARED = "Other runs, in which configs of one code were timed once"
_OTHER = (
    "On another GPU, with differential evolution, its surrogate hybrid and UCB beside them; two "
    "kernels at once on the two GPUs of a host, with 16 cores each:"
)
_BUDGETS = (25, 50, 100, None)


def block(directory: Path | None = None) -> str:
    """Returns RESULTS.md's block of evidence as Markdown.

    Args:
        directory: Folder of the stored results; None: data/evidence.
    """
    found = {
        path.stem: json.loads(path.read_text())
        for path in sorted((directory or data_directory() / "evidence").glob("*.json"))
    }
    rows = [
        *_speed(found["pipeline"], found["pipeline-graph"]),
        _faults(found["faults"]),
        *_confirmation(found["confirmation"], found["duels"]),
        *_interrupts(found["interrupts"], found["interrupts-live"]),
        _parity(found["parity"]),
        _inspection(found["inspect"]),
        *_equivalence(found["equivalence"]),
        _cost(found["cost"]),
        warm(found["warm"]),
        near(found["warm"]),
        warm_live(found["warm_live"]),
        sizes(found["sizes"]),
        *drawn(found),
        storage(found["storage"]),
        fuzzing(found["fuzzing"]),
        scaling(found["scaling"]),
        record_scaling(found["record_scaling"]),
        flush(found["flush"]),
        triton(found["triton_programs"]),
    ]
    lines = ["| claim | measured | command |", "| --- | --- | --- |"]
    lines += [f"| {claim} | {text} | `kt-lab {command}` |" for claim, text, command in rows]
    lines += ["", *_helion(found["beside-helion"], found["beside-helion-full"])]
    large = large_lines(found["large"], found["large-judged"])
    shared = "\n".join(field_lines(found["helion_field-shared"], about=False))
    own, other = field_lines(found["helion_field"]), found["helion_field-h100"]
    own += ["", _OTHER, *field_lines(other, about=False), "", folded(_SHARED, shared)]
    return "\n".join([*lines, "", *live_lines(found["live"]), "", *large, "", *own])


def field_block(runs: pd.DataFrame) -> str:
    """Returns RESULTS.md's table of the stored field as Markdown.

    Args:
        runs: From `kt_lab.studies.load_field`.
    """
    optima = optima_table(runs)
    table = stats.latency_at(runs, _BUDGETS, optima=optima, reference=None)
    means = table[table["scope"] == "geomean"]
    end = means[means["budget"].isna()].set_index("searcher").sort_values("estimate")
    early = {b: means[means["budget"] == b].set_index("searcher") for b in _BUDGETS if b}
    titles = [f"{b} trials" for b in early]
    lines = [
        f"| latency / optimum after | {' | '.join(titles)} | the end [95 %] | worst seed |",
        "| --- " * (len(titles) + 3) + "|",
    ]
    for name, row in end.iterrows():
        told = [f"{found.loc[name, 'estimate']:.3f}" for found in early.values()]
        told += [f"{row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]", f"{row.worst:.3f}"]
        lines.append(f"| {searcher_style(name).label} | {' | '.join(told)} |")
    return "\n".join(lines)


def tuned_block(field_runs: pd.DataFrame, tuned_runs: pd.DataFrame) -> str:
    """Returns RESULTS.md's table of default beside tuned options as Markdown.

    Args:
        field_runs: From `kt_lab.studies.load_field`.
        tuned_runs: From `kt_lab.studies.load_tuned`.
    """
    seeds = tuned_runs["seed"].unique()
    runs = field_runs[field_runs["seed"].isin(seeds)]
    both = []
    for part in (runs, tuned_runs):
        found = stats.latency_at(part, _BUDGETS[1:], optima=optima_table(part), reference=None)
        means = found[found["scope"] == "geomean"]
        names = means["searcher"].astype(str).str.removesuffix("_tuned")
        both.append(means.assign(name=names, budget=means["budget"].fillna(np.inf)))
    default, tuned = (part.set_index(["name", "budget"]) for part in both)
    end = tuned.xs(np.inf, level="budget").sort_values("estimate")
    lines = [
        "| latency / optimum, default to tuned, after | 50 trials | 100 trials | the end | "
        "the end, tuned [95 %] |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, row in end.iterrows():
        told = [
            f"{default.loc[(name, b), 'estimate']:.3f} to {tuned.loc[(name, b), 'estimate']:.3f}"
            for b in (50, 100, np.inf)
        ]
        told.append(f"{row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]")
        lines.append(f"| {searcher_style(name).label} | {' | '.join(told)} |")
    return "\n".join(lines)


def _equivalence(result: dict) -> list[tuple[str, str, str]]:
    """Returns one row per searcher and number of seeds: its ratio to the real class."""
    rows = []
    arms = dict.fromkeys((row["searcher"], row["n_seeds"]) for row in result["tests"])
    for name, seeds in arms:
        both = {"searcher": name, "n_seeds": seeds}
        tests = [r for r in result["tests"] if both.items() <= r.items() and r["budget"]]
        told = [
            f"{row['budget']:.0f}: {row['estimate']:.4f} "
            f"({row['low']:.4f} to {row['high']:.4f}) {row['verdict']}"
            for row in tests
        ]
        rows.append(
            (
                f"`{name}` beside `{tests[0]['reference']}`, {seeds} seeds, within "
                f"{result['margin']:.0%}, at trials",
                "; ".join(told),
                f"evidence equivalence --seeds {seeds}",
            )
        )
    return rows


def _cost(result: dict) -> tuple[str, str, str]:
    told = [
        f"`{name}` {row['seconds']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        for name, row in cost_ratios(result).items()
    ]
    return (
        "CPU seconds of whole searches over the real class's, one thread",
        "; ".join(told),
        "evidence cost",
    )


def _speed(events: dict, graph: dict) -> list[tuple[str, str, str]]:
    told = [
        f"`{row['workload']}` {row['trials_per_s']:.0f}/s (compile lanes busy "
        f"{row['compile_lanes_busy']:.0%}, GPU lane {row['gpu_lane_busy']:.0%})"
        for row in events["rows"]
    ]
    lanes = events["rows"][0]["lanes"]
    return [
        (
            f"configs compiled and timed a second, {lanes} cores, {events['gpu']}",
            f"{'; '.join(told)}; {graph['rows'][0]['trials_per_s']:.0f}/s by the graph protocol",
            "evidence pipeline",
        )
    ]


def _faults(result: dict) -> tuple[str, str, str]:
    storm, control = result["storm"], result["control"]
    kinds = len(storm["statuses"]) - 1
    shift = max(control["shift"].values(), key=abs)
    told = sum(p < 0.05 for p in control["p_holm"].values())
    beyond = sum(abs(control["shift"][f]) > control["noise"][f] for f in control["shift"])
    return (
        f"{kinds} kinds of fault, {result['times']} times each, {result['gpu']}",
        f"{storm['lost']} of {storm['asked']} trials lost, {storm['wrong_account']} with a status "
        f"that does not fit; the caller holds a CUDA context: "
        f"{'yes' if result['caller_holds_a_cuda_context'] else 'no'}; later readings of a control "
        f"config move by at most {shift:+.1%}; {beyond} of {kinds} shifts exceed the spread of "
        f"undisturbed pairs of readings, {told} has p < 0.05 after Holm",
        "evidence faults",
    )


def _confirmation(replay: dict, live: dict) -> list[tuple[str, str, str]]:
    tests = {row["test"]: row for row in (*replay["level_total"], *replay["power_total"])}
    same = [tests[f"identical: {who}"] for who in ("a config against itself", "8 finalists")]
    power = tests["ratio 0.98"]
    return [
        (
            "the same launch under two names replaces the incumbent",
            f"by replay {same[0]['rate']:.2%} of {same[0]['duels']:,} duels (95 % limit "
            f"{same[0]['high']:.2%}), {same[1]['rate']:.2%} of {same[1]['duels']:,} with eight "
            f"such finalists ({same[1]['high']:.2%}); live on {live['gpu']} {live['replaced']} of "
            f"{live['duels']} ({live['upper_95']:.1%})",
            "evidence confirmation` and `kt-lab evidence duels",
        ),
        (
            "a config that is truly 2 % faster replaces it",
            f"{power['rate']:.1%} of {power['duels']:,} duels ({power['low']:.1%} to "
            f"{power['high']:.1%})",
            "evidence confirmation",
        ),
    ]


def _interrupts(replay: dict, live: dict) -> list[tuple[str, str, str]]:
    def total(result: dict, name: str) -> int:
        return sum(row[name] for row in result["rows"])

    told = [
        f"{where}: {total(r, 'interrupts')} interrupts and {total(r, 'kills')} kills, "
        f"{total(r, 'lost')} lost, {total(r, 'doubled')} measured twice, {total(r, 'cut_off')} "
        "cut off in the journal by a kill"
        for where, r in (("replay", replay), (f"live on {live['gpu']}", live))
    ]
    command = "evidence interrupts` and, with another `--out`, `kt-lab evidence interrupts --live"
    return [("interrupt and resume at random moments", "; ".join(told), command)]


def _parity(result: dict) -> tuple[str, str, str]:
    rows = result["rows"]

    def told(name: str) -> str:
        logs = np.log([row[name] for row in rows])
        low, middle, high = np.exp([logs.min(), logs.mean(), logs.max()])
        return f"{middle:.3f} ({low:.2f} to {high:.2f})"

    return (
        f"a live run beside its replay, {len(rows)} runs, {result['gpu']}",
        f"final latency live / replay {told('latency_ratio')}, wall-clock "
        f"{told('wall_clock_ratio')}; the same live run once more takes {told('again_ratio')} of "
        f"its time; the first {min(row['same_first'] for row in rows)} or more proposals are the "
        "same",
        "evidence parity",
    )


def _inspection(result: dict) -> tuple[str, str, str]:
    told = [
        f"{row['target']} {row['ok']:,} of {row['configs']:,} compile and fit, "
        f"{row['launches']:,} distinct launches, {row['spilling']} spill, "
        f"{row['elapsed_s']:.0f} s on {result['provenance']['cores']} cores"
        for row in result["rows"]
    ]
    workload = result["rows"][0]["workload"]
    triton = result["provenance"]["packages"]["triton"]
    return (
        f"every config of `{workload}` inspected without a GPU, Triton {triton}",
        "; ".join(told),
        f"inspect {workload} --target sm_90 --target gfx942",
    )


def _helion(quick: dict, full: dict) -> list[str]:
    version = next(s for s in quick["steps"] if s["do"] == "helion")["answer"]["versions"]
    lines = [
        f"Side by side with Helion {version['helion']} (quick effort) on one H200 per operation, "
        f"torch {version['torch']}, Triton {version['triton']}, 16 cores, fresh processes and "
        "empty caches. kt_lab runs `lfbo_tree` for at most 120 trials and confirms. Seconds run "
        "from the start of the process, imports and worker start-up included; latencies are from "
        'one final race of the winners in alternation, by both timers; "-": not in that race.',
        "",
    ]
    heads = ["operation", "search x kernel", "seed", "seconds", "configs"]
    heads, rows = [*heads, "µs, events", "µs, graph"], []
    names = {
        "helion": "Helion's x Helion's",
        "ours": "ours x ours",
        "helion_on_ours": "Helion's x ours",
        "ours_on_helion": "ours x Helion's",
    }
    for result, effort in ((quick, "quick"), (full, "full")):
        steps = [step for step in result["steps"] if step["ok"]]
        for step in sorted(steps, key=lambda s: (s["op"], list(names).index(s["do"]), s["seed"])):
            answer = step["answer"]
            raced = _raced(result, step)
            budget = ", 90 s budget" if effort == "full" else ""
            told = [step["op"], f"{names[step['do']]}{budget}", str(step["seed"])]
            told += [f"{answer['wall_s']:.0f}", str(answer["configs"])]
            rows.append([*told, raced["events"], raced["graph"]])
    return [*lines, folded("Every run", grid(heads, rows))]


def _raced(result: dict[str, Any], step: dict[str, Any]) -> dict[str, str]:
    """Returns a step's median in the final race by each timer; "-" if it was not in it."""
    race = result["races"][step["op"]]
    name = f"{step['do']}/{step['effort']}/seed{step['seed']}"
    out = {}
    for protocol, blocks in race["blocks_us"].items():
        table = {row["name"]: row for row in ratios(race["names"], blocks)}
        out[protocol] = f"{table[name]['median_us']:.2f}" if name in table else "-"
    return out

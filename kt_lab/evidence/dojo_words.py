"""The account in RESULTS.md of the dojo, written from data/evidence alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kt_lab.evidence.dojo_published import CALLS, complete, published_lines, unfinished
from kt_lab.evidence.dojo_tables import cpus_of, players_table, ratios, readings_apart
from kt_lab.evidence.dojo_tables import means as geomeans
from kt_lab.evidence.markdown import folded, grid
from kt_lab.evidence.playing import EXPERT
from kt_lab.evidence.tvm import ENOUGH, failed_trials
from kt_lab.evidence.tvm_floors import floor_lines
from kt_lab.evidence.tvm_longer import longer_lines
from kt_lab.evidence.tvm_paths import TUNED, UNTUNED
from kt_lab.plots.captions import counted
from kt_lab.plots.style import searcher_style

BEGIN = "<!-- dojo -->"
END = "<!-- /dojo -->"
_PATHS = ("start", "expert", "best", "eager", "compiled", "floor")
_REFERENCES = {
    "start": "`gcc -O3` of the start program",
    "eager": "PyTorch eager",
    "compiled": "torch.compile",
}
_HEADS = {EXPERT: "expert pass", UNTUNED: "TVM untuned", TUNED: "TVM tuned"}
_EARLY = 16  # programs after which a policy that was carried over shows what it brought
_EYES = (
    "One learner (`max_q_dqn`), from nothing, with each encoder of programs: MiniLM is a sentence "
    "transformer of six layers that reads a program's lines (the extra `llm`)."
)
_MISSING = "Not measured yet: `kt-lab evidence dojo` and `kt-lab evidence players`."


def dojo_block(
    comparison: Mapping[str, Any] | None,
    players: Mapping[str, Any] | None,
    learners: Mapping[str, Any] | None = None,
    beside_tvm: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    on_gpu: Mapping[str, Any] | None = None,
    encoders: Mapping[str, Any] | None = None,
    longer: Sequence[Mapping[str, Any]] = (),
    elsewhere: Sequence[Mapping[str, Any]] = (),
    floors: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = (),
) -> str:
    """Returns RESULTS.md's block of programs as Markdown.

    Args:
        comparison: The stored result of `kt-lab evidence dojo`, or None.
        players: That of `kt-lab evidence players`, or None.
        learners: That of `kt-lab evidence learners`, or None.
        beside_tvm: That of `kt-lab evidence tvm`, or None.
        shapes: That of `kt-lab evidence learners --policy`, or None.
        on_gpu: That of `kt-lab evidence triton_programs`, or None.
        encoders: That of `kt-lab evidence learners --parts encoders`, or None.
        longer: Those of `kt-lab evidence tvm` with more trials than `beside_tvm`, of its CPU or
            of one of `elsewhere`.
        elsewhere: Those of `kt-lab evidence tvm` on other CPUs.
        floors: Of these, each with that of `kt-lab evidence tvm_floors` on its CPU.
    """
    parts = [_means(comparison), CALLS, _rows(comparison)] if comparison else []
    parts += [_tvm(beside_tvm)] if beside_tvm else []
    parts += map(_elsewhere, elsewhere)
    parts += [floor_lines(*both) for both in floors]
    if beside_tvm:
        parts += [longer_lines([beside_tvm, *elsewhere], result) for result in longer]
        parts += [published_lines(beside_tvm, on_gpu, elsewhere)]
    parts += [_players(players)] if players else []
    if learners:
        curves = [row for row in learners["rows"] if row["part"] == "curves"]
        parts += ["Deep Q-learners, from nothing, in the same way.", _players(learners, curves)]
        parts += [_carried(learners)]
    if encoders:
        rows = [row for row in encoders["rows"] if row["part"] == "encoders"]
        parts += [_EYES, _players(encoders, rows)]
    if shapes:
        parts += [_carried(shapes, same=True), _noise(shapes, shapes["rows"])]
    return "\n\n".join(filter(None, parts)) or _MISSING


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
        "The floor is a measured reference, which a program may beat: bytes or arithmetic at "
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
    where = f"{result['provenance']['cpu']}, {result['provenance']['cores']} cores"
    summary = (
        f"Microseconds of every workload, {where}, {result['compiler']}, torch {first['torch']}"
    )
    return folded(summary, "\n".join(lines))


def _us(path: Mapping[str, Any] | None) -> str:
    if not path or path["min_us"] is None:
        return ""
    return f"{path['min_us']:.4g}" + ("*" if path["disturbed"] else "")


def _tvm(result: Mapping[str, Any]) -> str:
    claim = "" if result["trials"] >= ENOUGH else f" (too few to claim a win: {ENOUGH} are)"
    names = ", ".join(player.replace("+", " + ") for player in result["players"])
    said = (
        f"Beside TVM {result['tvm']}, all of a row searched and timed on one machine: {names} and "
        f"MetaSchedule measured {result['trials']} programs each{claim}, MetaSchedule fewer where "
        f"it has no more; `best` is {_choice(result)}. {_mixed(result)}{_without(result)}"
    )
    means = [
        [
            mean["path"].replace("+", " + "),
            str(mean["threads"]),
            mean["group"],
            f"{mean['ratio']:.2f} [{mean['low']:.2f}, {mean['high']:.2f}]",
            f"{mean['losses']} of {mean['workloads']}",
        ]
        for mean in result["means"]
        if mean["reference"] == TUNED and (mean["path"] == "best" or mean["group"] == "all")
    ]
    heads = ["latency ratio to tuned TVM", "threads", "operators", "geomean [95 %]", "lost"]
    return "\n\n".join([said, grid(heads, means), _tvm_rows(result)])


def _elsewhere(result: Mapping[str, Any]) -> str:
    """Tells the means of the best program on another CPU, and its rows."""
    done = complete(result)
    rows = done["rows"]
    sizes = list(dict.fromkeys(row["size"] for row in rows))
    groups = {f"{size} size": [row for row in rows if row["size"] == size] for size in sizes}
    counts = Counter((row["threads"], row["size"]) for row in rows)
    # a mean over sizes is of as many workloads of each
    whole = [row for row in rows if len({counts[row["threads"], size] for size in sizes}) == 1]
    groups |= {"both sizes": whole} if whole and len(sizes) > 1 else {}
    each = [
        f"of {name} {m['ratio']:.2f} [{m['low']:.2f}, {m['high']:.2f}] on "
        f"{counted(m['threads'], 'thread')}, {m['losses']} of {m['workloads']} lost"
        for name, part in groups.items()
        for m in geomeans(part, references=(TUNED,))
        if m["group"] == "all"
    ]
    cpu = f"{result['provenance']['cpu']} ({', '.join(sorted(cpus_of(rows)))} as LLVM calls it)"
    told = f"{cpu}, `best` over tuned TVM: {'; '.join([*each, *unfinished(result)])}."
    said = f"On another CPU, {told} {_without(done)}"
    return f"{said}\n\n{_tvm_rows(result)}"


def _choice(result: Mapping[str, Any]) -> str:
    """Says how `best` was chosen."""
    counts = [row["finalists"] for row in result["rows"] if "finalists" in row]
    told = [] if len(counts) == len(result["rows"]) else ["what read fastest while ours searched"]
    if counts:
        where = f"in {len(counts)} of {len(result['rows'])} rows " if told else ""
        told.append(
            f"{where}what a first visit chose of the {max(counts)} that read fastest in every "
            "search, MetaSchedule's too"
        )
    return "; ".join(told)


def _mixed(result: Mapping[str, Any]) -> str:
    """Says which rows were measured otherwise than most; "" if none were."""
    rows = result["rows"]
    names = [row["tuning"].get("target", {}).get("mcpu") for row in rows]
    usual = max(set(names), key=names.count)
    others = sorted({n for n in names if n} - {usual})
    counts = [f", {names.count(name)} of {len(rows)} of {name}" for name in others]
    parts = [f"Most rows are of {usual}{''.join(counts)}, as LLVM calls CPUs."] if others else []
    tuned = [row for row in rows if row["size"] == "cache" and row["tuning"].get("target")]
    if own := sum("build_limit_s" not in row["tuning"] for row in tuned):
        parts.append(
            f"{own} rows of cache size were timed earlier, every program on buffers of its own "
            "and MetaSchedule's builds ended after 30 s; in the others all share buffers, and "
            "builds have 120 s."
        )
    return " ".join([*parts, ""])


def _without(result: Mapping[str, Any]) -> str:
    """Says what the workload that counts most for us does to the means; "" of one workload."""
    found = ratios(result["rows"], references=(TUNED,), paths=("best",))
    least = found.groupby("workload")["ratio"].min().idxmin()
    alone = found[found["workload"] == least].set_index("threads")["ratio"].sort_index()
    apart = (row for row in result["rows"] if row["workload"] != least)
    rows = [row for row in apart if row["threads"] in alone.index]
    if not rows:
        return ""
    told = " and ".join(f"{ratio:.2f}" for ratio in alone)
    others = [m for m in geomeans(rows, references=(TUNED,)) if m["group"] == "all"]
    without = " and ".join(
        f"{m['ratio']:.2f} [{m['low']:.2f}, {m['high']:.2f}] on {counted(m['threads'], 'thread')}"
        for m in others
    )
    said = f"Without `{least}`, where MetaSchedule got least far ({told}), `best` stands at"
    return f"{said} {without}."


def _tvm_rows(result: Mapping[str, Any]) -> str:
    """Returns microseconds of every workload, and which of MetaSchedule's trials failed."""
    paths = (EXPERT, *result["players"], "eager", "compiled", UNTUNED, TUNED)
    heads = [_HEADS.get(name, name.replace("+", " + ")) for name in paths]
    rows = []
    for row in result["rows"]:
        us = [_us(row["paths"].get(name)) for name in paths]
        known = row["paths"].get(TUNED)
        ratio = f"{row['paths']['best']['min_us'] / known['min_us']:.2f}" if known else ""
        rows.append([f"`{row['workload']}`", str(row["threads"]), *us, ratio, failed_trials(row)])
    sizes = Counter(row["size"] for row in result["rows"])
    told = [f"{counted(count, 'row')} of {size} size" for size, count in sizes.items()]
    summary = (
        f"Microseconds, {result['provenance']['cpu']}, {result['provenance']['cores']} cores, "
        f"torch {result['rows'][0]['torch']}: "
        f"{', '.join(told)}"
    )
    note = "* disturbed in spite of repetition. Failed: trials of TVM that took too long."
    last = ["best / TVM tuned", "failed"]
    return folded(summary, f"{note}\n\n{grid(['workload', 'threads', *heads, *last], rows)}")


def _players(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] | None = None) -> str:
    rows = result["rows"] if rows is None else rows
    found = players_table(rows)
    end = found[found["programs"] == result["budget"]]
    names = list(dict.fromkeys(end["workload"]))
    lines = [
        f"Median latency after {result['budget']} different programs over the best that anybody "
        f"found, {int(end['seeds'].max())} seeds (quartiles). {_noise(result, rows)}",
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


def _carried(result: Mapping[str, Any], *, same: bool = False) -> str:
    """Returns how trained policies play on what they never saw; empty without any.

    Args:
        result: Rows of the part "transfer".
        same: Whether one policy played other shapes of the operators that it was trained on.
    """
    rows = [row for row in result["rows"] if row["part"] == "transfer"]
    if not rows:
        return ""
    turns = rows[0]["rounds"]
    table = players_table(rows).set_index(["workload", "programs", "player"])
    budgets = [n for n in (_EARLY, result["budget"]) if n in table.index.levels[1]]
    shown = [
        (name, budget)
        for name in dict.fromkeys(row["workload"] for row in rows)
        for budget in budgets
    ]
    trained = rows[0]["trained"].replace("+", " and ")
    who = (
        "The first of these policies, in all seeds, on other shapes of what it was trained on"
        if same
        else f"Policies trained on {trained} ({turns} turns of {result['budget']} programs on "
        "each, one policy a seed), on operators that they never saw"
    )
    lines = [
        f"{who}: as they are (frozen), learning on (tuned), and the same learner from scratch. "
        "Median latency over the best that any of them found (quartiles).",
        "",
        f"| player | {' | '.join(f'`{name}`, {budget} programs' for name, budget in shown)} |",
        "| --- " * (len(shown) + 1) + "|",
    ]
    for player in dict.fromkeys(row["player"] for row in rows):
        cells = [table.loc[(name, budget, player)] for name, budget in shown]
        told = [
            f"{c['median']:.2f} ({c['low']:.2f} to {c['high']:.2f})"
            + (f", {c['seeds']:.0f} seeds" if c["seeds"] < table["seeds"].max() else "")
            for c in cells
        ]
        lines.append(f"| {player} | {' | '.join(told)} |")
    return "\n".join(lines)


def _noise(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns where players played, and what their readings of one program differ by."""
    apart = readings_apart(rows)
    machine = result["provenance"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {result['compiler']}; players ran side"
    if apart == 1.0:
        return f"{where} by side and shared one reading of each program."
    return (
        f"{where} by side, and the start program of an operator was read up to {apart:.2f} times "
        "as slow by one as by another: smaller differences say nothing."
    )

"""What is said of one config or two, and of what tells their code apart."""

import html
from collections.abc import Mapping

import pandas as pd

from kt_lab.plots.captions import counted, listed
from kt_lab.stats.configs import ConfigFacts
from kt_lab.trial import OK
from kt_lab.ui.shell import table_html

_MOST_LINES = 1500  # of a diff that is shown; a browser chokes on more
_MARKS = {"+": "rgba(2,158,115,.28)", "-": "rgba(213,94,0,.28)", "@": "rgba(1,115,178,.22)"}


def facts_html(facts: Mapping[str, ConfigFacts]) -> str:
    """Returns what is known of configs as a table, one column each."""
    columns = [dict(_facts(each)) for each in facts.values()]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [(name, *(column.get(name, "") for column in columns)) for name in names]
    return table_html(rows, heads=("", *facts), css="ktl-facts-table")


def differing_html(table: pd.DataFrame) -> str:
    """Returns the parameters that two configs differ in as a table."""
    if table.empty:
        return table_html([("A and B are the same config",)])
    return table_html(list(table.itertuples(index=False)), heads=("differ in", "A", "B"))


def neighbour_options(table: pd.DataFrame) -> list[tuple[str, int]]:
    """Returns the neighbours as a list to choose from: what is said, and the config's position."""
    return [(_neighbour(row), int(row.config)) for row in table.itertuples()]


def diff_html(text: str, kind: str) -> str:
    """Returns a unified diff with its lines marked, in the theme's colours."""
    if not text:
        return f"<pre class='ktl-axis'>A and B compile to the same {html.escape(kind)}</pre>"
    lines = text.splitlines()
    body = "".join(_line(line) for line in lines[:_MOST_LINES])
    more = len(lines) - _MOST_LINES
    rest = f"… {counted(more, 'line')} more: kt_lab.inspect.diff returns all" if more > 0 else ""
    return (
        '<pre class="ktl-axis" style="max-height:34em;overflow:auto;line-height:1.35;margin:0">'
        f"{body}{rest}</pre>"
    )


def _facts(f: ConfigFacts) -> list[tuple[str, str]]:
    rows = [("status", f.status.replace("_", " "))]
    rows += [("error", f.error.partition("\n")[0][:100])] if f.error else []
    if f.status == OK:
        rows += [
            ("latency, median", f"{f.latency_us:,.2f} µs"),
            ("quartiles of the samples", f"{f.low_us:,.2f} to {f.high_us:,.2f} µs"),
            ("medians of the visits", f"{', '.join(f'{v:,.2f}' for v in f.visits_us)} µs"),
            (f"/ optimum ({f.optimum_us:,.2f} µs)", f"{f.latency_us / f.optimum_us:.3f}"),
        ]
        if f.default_us:
            ratio = f"{f.latency_us / f.default_us:.3f}"
            rows.append((f"/ default ({f.default_us:,.2f} µs)", ratio))
        rows.append(("rank", f"{f.rank:,} of {f.of:,}"))
    for name, value, unit in (
        ("registers a thread", f.registers, ""),
        ("spills a thread", f.spills, " words"),
        ("shared memory a program", f.shared_bytes, " bytes"),
        ("programs", f.programs, ""),
    ):
        rows += [] if value is None else [(name, f"{value:,}{unit}")]
    if f.occupancy is not None:
        held = f.occupancy
        said = f"{held.warps} of {held.most_warps} warps ({held.share:.0%})"
        rows.append(("occupancy", said))
        rows.append(
            ("limited by", f"{listed(held.limited_by)} ({counted(held.blocks, 'program')})")
        )
    if f.status == OK:
        roof = f.roofline
        floors = (("bytes floor", roof.bytes_us), ("arithmetic floor", roof.flops_us))
        for name, floor in floors:
            if floor and floor > 0:  # not of what is unknown, or of no arithmetic
                rows.append(
                    (f"share of the {name} ({floor:,.2f} µs)", f"{floor / f.latency_us:.1%}")
                )
        twins = counted(f.twins, "other config")
        rows.append(("the same launch", twins if f.twins else "no other config"))
    return rows


def _neighbour(row: object) -> str:
    step = f"{row.parameter}: {row.before} → {row.after}"
    if row.status != OK:
        return f"{step}   {row.status.replace('_', ' ')}"
    if pd.isna(row.ratio):
        return f"{step}   {row.latency_us:,.2f} µs"
    return f"{step}   {row.ratio:.3f} ({row.low:.3f} to {row.high:.3f})"


def _line(line: str) -> str:
    mark = _MARKS.get(line[:1], "")
    style = f' style="background:{mark}"' if mark else ""
    return f"<span{style}>{html.escape(line)}</span>\n"

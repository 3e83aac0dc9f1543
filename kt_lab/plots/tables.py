"""Tables for papers: LaTeX (booktabs) and HTML, with units in the heads and the best in bold."""

import hashlib
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UnknownName, UsageError
from kt_lab.plots.captions import latex_text
from kt_lab.plots.save import write_facts, write_file, write_points
from kt_lab.plots.venues import Venue, find_venue

BEST = {"low": np.nanmin, "high": np.nanmax}
MISSING = "–"  # noqa: RUF001
_GAP_PT = 6.0  # between columns, as LaTeX has it
_LETTER = 0.5  # mean width of a letter, in font sizes
_LEAST_PT = 6.0


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a printed table; every entry is plain text, escaped when it is set.

    Attributes:
        head: What it holds.
        cells: An entry per row.
        unit: In brackets below the head; empty: none.
        bold: Per row, whether it is set in bold; empty: none is.
        group: A head over neighbouring columns that share it; empty: none.
        left: Whether entries are set flush left (words), not right (numbers).
    """

    head: str
    cells: tuple[str, ...]
    unit: str = ""
    bold: tuple[bool, ...] = ()
    group: str = ""
    left: bool = False


def words(head: str, values: Iterable[Any], *, group: str = "") -> Column:
    """Returns a column of words; nulls are dashes."""
    return Column(head, tuple(MISSING if pd.isna(v) else str(v) for v in values), group=group,
                  left=True)  # fmt: skip


def numbers(
    head: str,
    values: Sequence[float],
    *,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    digits: int = 3,
    significant: bool = False,
    best: str | None = None,
    unit: str = "",
    group: str = "",
) -> Column:
    """Returns a column of numbers, with intervals beside them where both ends are given.

    Args:
        head: What it holds.
        values: Shape (rows,); null is a dash, infinite the sign for it.
        low: Lower ends, shape (rows,); NaN leaves an interval out.
        high: Upper ends, shape (rows,).
        digits: After the point, or significant ones.
        significant: What digits count.
        best: "low" or "high": sets that number in bold, and those printed alike; None: none.
        unit: Of the values.
        group: Head over neighbouring columns.
    """
    if best not in (None, *BEST):
        raise UnknownName("best", best, BEST)
    array = np.asarray(values, dtype=float)
    texts = [_number(value, digits, significant) for value in array]
    bold: tuple[bool, ...] = ()
    if best and np.isfinite(array).any():
        chosen = _number(BEST[best](np.where(np.isfinite(array), array, np.nan)), digits,
                         significant)  # fmt: skip
        bold = tuple(text == chosen for text in texts)
    if low is not None and high is not None:
        ends = [[_number(e, digits, significant) for e in side] for side in (low, high)]
        texts = [
            text if MISSING in (text, a) else f"{text} [{a}, {b}]"
            for text, a, b in zip(texts, *ends, strict=True)
        ]
    return Column(head, tuple(texts), unit, bold, group)


def _number(value: float, digits: int, significant: bool) -> str:
    """Returns a number as it is printed."""
    if np.isnan(value):
        return MISSING
    if np.isinf(value):
        return "∞" if value > 0 else "-∞"
    if significant and value:
        digits = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{digits}f}"


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table as it is printed: columns of equal length, and the data behind it.

    Attributes:
        columns: From the left.
        data: What the numbers are rounded from; written beside them.
        caption: Plain text.
    """

    columns: tuple[Column, ...]
    data: pd.DataFrame
    caption: str

    def __post_init__(self):
        """Refuses columns of different lengths: rows would be shifted without a sign."""
        lengths = {column.head: len(column.cells) for column in self.columns}
        if len(set(lengths.values())) != 1 or not min(lengths.values()):
            raise UsageError(f"columns of a table must have the same rows, at least 1: {lengths}")

    def save(
        self,
        name: str,
        *,
        directory: Path | str,
        venue: str = "icml",
        provenance: Mapping[str, Any] | None = None,
    ) -> dict[str, Path]:
        """Writes the table beside its data; the same table gives the same bytes.

        Returns:
            The paths by kind: "tex", "html", "csv" (`data`) and "json" (caption, provenance,
            versions, SHA-256 of the csv).
        """
        texts = {"tex": latex_table(self, name, venue=venue), "html": html_table(self)}
        path, digest = write_points(self.data, name, directory=directory)
        paths = {"csv": path}
        for kind, text in texts.items():
            paths[kind] = path.with_name(f"{name}.{kind}")
            write_file(paths[kind], text)
        facts = {f"{k}_sha256": hashlib.sha256(t.encode()).hexdigest() for k, t in texts.items()}
        facts |= {"caption": self.caption, "csv_sha256": digest}
        paths["json"] = write_facts(facts, path.with_name(f"{name}.json"), provenance=provenance)
        return paths

    def _repr_html_(self) -> str:
        """Shows the table where a notebook cell ends with it."""
        return html_table(self)


def latex_table(table: PaperTable, name: str, *, venue: str = "icml") -> str:
    """Returns a floating LaTeX table (booktabs) with its caption above it and label tab:<name>.

    It spans one column where it is estimated to fit, else the text; its font shrinks below the
    caption's only as far as it must, and what would still be too wide is scaled down to fit.

    Args:
        table: What to set.
        name: Of the label.
        venue: Whose page.
    """
    page = find_venue(venue)
    star, points, inches = _room(table, page)
    heads = _latex_heads(table.columns)
    rows = [
        " & ".join(_latex_cell(c, at) for c in table.columns) + r" \\"
        for at in range(len(table.columns[0].cells))
    ]
    align = "".join("l" if column.left else "r" for column in table.columns)
    # Measured by TeX itself: only a table that is really too wide is scaled.
    lines = [
        "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}.",
        rf"\begin{{table{star}}}[t]",
        r"  \centering",
        rf"  \caption{{{latex_text(table.caption)}}}",
        rf"  \label{{tab:{name}}}",
        rf"  \fontsize{{{points:g}}}{{{1.2 * points:g}}}\selectfont",
        r"  \setlength{\tabcolsep}{3pt}",
        rf"  \sbox0{{\begin{{tabular}}{{@{{}}{align}@{{}}}}",
        r"    \toprule",
        *(f"    {line}" for line in heads),
        r"    \midrule",
        *(f"    {row}" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}}%",
        rf"  \ifdim\wd0>{inches:.5g}in\resizebox{{{inches:.5g}in}}{{!}}{{\usebox0}}"
        r"\else\usebox0\fi",
        rf"\end{{table{star}}}",
    ]
    return "\n".join(lines) + "\n"


def _room(table: PaperTable, page: Venue) -> tuple[str, float, float]:
    """Returns "*" where the table spans both columns, its font size, and the width it may have."""
    letters = [
        max(len(text) for text in (column.head, f"({column.unit})", *column.cells))
        for column in table.columns
    ]
    points = page.caption_pt
    for width in page.widths:
        star = "*" if width == "text" and page.columns == 2 else ""
        room = page.inches(width) * 72.27
        for size in (points, points - 1, points - 2):
            if size >= _LEAST_PT and _LETTER * size * sum(letters) + 6 * len(letters) <= room:
                return star, size, page.inches(width)
    return star, max(_LEAST_PT, points - 2), page.text_in


def _latex_cell(column: Column, at: int) -> str:
    text = latex_text(column.cells[at])
    if not (column.bold and column.bold[at]):
        return text
    number, bracket, interval = text.partition(" [")
    return rf"\textbf{{{number}}}{bracket}{interval}"


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Returns the heads over columns, each with how many it spans."""
    return [(name, len(list(some))) for name, some in groupby(columns, key=lambda c: c.group)]


def _latex_heads(columns: Sequence[Column]) -> list[str]:
    """Returns the lines of the head: groups with their rules, heads, units."""
    lines = []
    if any(column.group for column in columns):
        spans, rules, at = [], [], 1
        for name, count in _groups(columns):
            spans.append(rf"\multicolumn{{{count}}}{{c}}{{{latex_text(name)}}}")
            rules += [rf"\cmidrule(lr){{{at}-{at + count - 1}}}"] if name else []
            at += count
        lines += [" & ".join(spans) + r" \\", "".join(rules)]
    lines.append(" & ".join(latex_text(column.head) for column in columns) + r" \\")
    if any(column.unit for column in columns):
        units = [f"({latex_text(c.unit)})" if c.unit else "" for c in columns]
        lines.append(" & ".join(units) + r" \\")
    return lines


def html_table(table: PaperTable) -> str:
    """Returns the table as HTML without scripts or style sheets, its caption in it."""
    heads = []
    if any(column.group for column in table.columns):
        heads.append("".join(
            f'<th colspan="{count}">{html.escape(name)}</th>'
            for name, count in _groups(table.columns)
        ))  # fmt: skip
    heads.append("".join(
        f"<th>{html.escape(c.head)}{f'<br>({html.escape(c.unit)})' if c.unit else ''}</th>"
        for c in table.columns
    ))  # fmt: skip
    rows = [
        "".join(_html_cell(c, at) for c in table.columns)
        for at in range(len(table.columns[0].cells))
    ]
    lines = [
        "<table>",
        f"<caption>{html.escape(table.caption)}</caption>",
        "<thead>",
        *(f"<tr>{head}</tr>" for head in heads),
        "</thead>",
        "<tbody>",
        *(f"<tr>{row}</tr>" for row in rows),
        "</tbody>",
        "</table>",
    ]
    return "\n".join(lines) + "\n"


def _html_cell(column: Column, at: int) -> str:
    number, bracket, interval = html.escape(column.cells[at]).partition(" [")
    if column.bold and column.bold[at]:
        number = f"<b>{number}</b>"
    align = "left" if column.left else "right"
    return f'<td style="text-align: {align}">{number}{bracket}{interval}</td>'

"""Words that several captions share, made from the tables that are drawn."""

import unicodedata
from collections.abc import Iterable

import pandas as pd

from kt_lab.plots.style import searcher_style

JUDGED = "judged on a visit that the searcher did not see, where more than one was recorded"


def counted(count: int, noun: str) -> str:
    """Returns "1 kernel", "12 kernels"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def listed(words: Iterable[str]) -> str:
    """Returns "a", "a and b", "a, b and c"."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def spread(low: float, high: float, noun: str) -> str:
    """Returns "20 seeds" or, where workloads differ, "5 to 20 seeds"."""
    return (
        counted(int(high), noun) if low == high else f"{int(low):,} to {counted(int(high), noun)}"
    )


def ends(values: pd.Series, form: str) -> str:
    """Returns "0.22 to 0.54", the least and the greatest; where they print alike, "0.39"."""
    return " to ".join(dict.fromkeys(f"{v:{form}}" for v in (values.min(), values.max())))


def evidence(table: pd.DataFrame, *, budget: str = "") -> str:
    """Returns the sentence of what a table of ratios or bands rests on.

    Args:
        table: Columns `workload`, `kernel`, `gpu`, `lanes`, `n_seeds` (null rows are skipped).
        budget: Of each run, in words; empty: not told.
    """
    rows = table.dropna(subset=["workload"])
    gpus = listed(sorted(rows["gpu"].astype(str).unique()))
    lanes = listed(str(int(count)) for count in sorted(rows["lanes"].unique()))
    facts = [
        gpus,
        f"{lanes} compile " + ("lane" if lanes == "1" else "lanes"),
        spread(rows["n_seeds"].min(), rows["n_seeds"].max(), "seed") + " per workload",
    ]
    if budget:
        facts.append(f"budget {budget}")
    workloads = counted(rows["workload"].astype(str).nunique(), "workload")
    kernels = counted(rows["kernel"].astype(str).nunique(), "kernel")
    return f"{workloads} of {kernels} ({', '.join(facts)})."


def ended_words(*bands: pd.DataFrame) -> str:
    """Words what a line of bands does once few of its runs go on; nothing where none ended."""
    thin = any((2 * each["n_running"] < each["n_seeds"]).any() for each in bands)
    return " (thin after the marker: fewer than half still run)" if thin else ""


def interval_words(table: pd.DataFrame, *, mean: str = "geomean") -> str:
    """Returns the sentence that says what the intervals of a table of means are."""
    return (
        f"Intervals: {100 * float(table['confidence'].iloc[0]):g}% percentile bootstrap; a "
        f"{mean} (over workloads) resamples kernels, their workloads and their seeds, a single "
        "workload resamples its seeds."
    )


def fewer_words(*tables: pd.DataFrame) -> str:
    """Returns a sentence of whose geomeans are over fewer workloads than others'; "" if none are.

    Args:
        tables: Of ratios, each with its own geomeans.
    """
    told = []
    for table in tables:
        means = table[table["scope"] == "geomean"]
        most = means["n_workloads"].max()
        told += [
            f"{searcher_style(str(row.searcher)).label} over {row.n_workloads:.0f} of {most:.0f}"
            for row in means[means["n_workloads"] < most].itertuples()
        ]
    each = listed(dict.fromkeys(told))
    return f" Geomeans over fewer workloads than others': {each}." if told else ""


def reached_by(means: pd.DataFrame, *names: str) -> str:
    """Returns "Random in 3 of 60 runs and ...", of those searchers that the geomean rows hold."""
    rows = means.set_index(means["searcher"].astype(str))
    return listed(
        f"{searcher_style(name).label} in {rows.loc[name, 'n_success']:,} of "
        f"{counted(rows.loc[name, 'n_runs'], 'run')}"
        for name in names
        if name in rows.index
    )


def limits(*, kernels: int, workloads: int, comparisons: int) -> str:
    """Returns the sentences that say what tests on so few kernels and workloads cannot show.

    Args:
        kernels: How many there are: the units of evidence.
        workloads: How many there are.
        comparisons: For how many the p-values are corrected, together.
    """
    few, least = min(1.0, 2.0 ** (1 - kernels)), min(1.0, 2.0 ** (1 - workloads))
    # in simulations 95 % intervals cover 85 % over three kernels and 92 % over six
    narrow = ", and intervals are too narrow for kernels at large" if kernels < 6 else ""
    return (
        f"Kernels are the unit of evidence: with {counted(kernels, 'kernel')} no p-value over "
        f"kernels can be below {few:.2g}{narrow}. Those over {counted(workloads, 'workload')} "
        f"describe these workloads only; none can be below {least:.2g}, nor below "
        f"{min(1.0, least * comparisons):.2g} after Holm's correction for "
        f"{counted(comparisons, 'comparison')}."
    )


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    "µ": r"$\mu$",
    "μ": r"$\mu$",
    "∞": r"$\infty$",
    "×": r"$\times$",  # noqa: RUF001
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "–": "--",  # noqa: RUF001
    "—": "---",
    "’": "'",  # noqa: RUF001
    "‘": "`",  # noqa: RUF001
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
    "\u00a0": "~",
    "\u202f": r"\,",
}
# letters up to U+017F that pdflatex cannot set in the fonts that it takes unless told
_NO_GLYPH = frozenset("ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ")


def latex_text(text: str) -> str:
    """Returns a text as LaTeX that pdflatex sets as it reads, whatever characters it holds.

    A straight double quote opens and closes like a printed one. What is neither ASCII nor an
    accented Latin letter nor known here becomes its code in brackets: pdflatex would stop at it.
    """
    parts, opened = [], False
    for letter in unicodedata.normalize("NFC", text):
        if letter == '"':
            parts.append("''" if opened else "``")
            opened = not opened
        elif letter == "-" and parts and parts[-1].endswith("-"):
            parts.append("{}-")  # two in a row would be set as one dash
        elif letter in _LATEX:
            parts.append(_LATEX[letter])
        elif letter.isascii() or (
            letter.isalpha() and ord(letter) < 0x180 and letter not in _NO_GLYPH
        ):
            parts.append(letter)
        else:
            parts.append(f"[U+{ord(letter):04X}]")
    return "".join(parts)

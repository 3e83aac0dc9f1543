"""Printed tables: units in the heads, the best in bold, intervals, escapes, and fixed bytes."""

import json
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.plots.captions import latex_text
from kt_lab.plots.tables import PaperTable, html_table, latex_table, numbers, words

DATA = pd.DataFrame({"searcher": ["a_b", "c & d"], "ratio": [1.01249, 1.0051], "low": [1.0, 1.0]})


def make(*columns, caption="Ratios at 5%."):
    return PaperTable(columns, DATA, caption)


def rows(table):
    """The rows of the body, as LaTeX writes them."""
    text = latex_table(table, "t").split("\\midrule\n")[1].split("    \\bottomrule")[0]
    return [line.strip() for line in text.splitlines()]


def test_the_best_and_what_is_printed_alike_is_bold():
    assert numbers("x", [1.0004, 1.0, 1.2], best="low").bold == (True, True, False)
    assert numbers("x", [0.1, 0.9], best="high").bold == (False, True)
    assert numbers("x", [np.inf, np.nan, 2.0], best="low").bold == (False, False, True)
    assert numbers("x", [np.inf, np.nan], best="low").bold == ()
    assert numbers("x", [1.0, 2.0]).bold == ()


def test_numbers_are_rounded_as_asked_and_what_is_none_is_told():
    assert numbers("x", [1.01249, np.nan, np.inf, 12345.6]).cells == (
        *("1.012", "–", "∞", "12,345.600"),  # noqa: RUF001
    )
    found = numbers("x", [0.0, 0.012345, 123.4, 9876.0], digits=3, significant=True)
    assert found.cells == ("0.000", "0.0123", "123", "9,876")
    found = numbers("x", [1.5, np.nan], low=[1.0, np.nan], high=[np.inf, np.nan], digits=1)
    assert found.cells == ("1.5 [1.0, ∞]", "–")  # noqa: RUF001


def test_latex_has_rules_units_groups_and_bold_numbers():
    table = make(
        words("searcher", DATA["searcher"]),
        numbers("end", DATA["ratio"], low=DATA["low"], high=[1.1, 1.2], best="low",
                unit="95% interval", group="latency / optimum"),
        numbers("cost", [3, 4], digits=1, unit="µs", group="latency / optimum"),
    )  # fmt: skip
    assert rows(table) == [
        r"a\_b & 1.012 [1.000, 1.100] & 3.0 \\",
        r"c \& d & \textbf{1.005} [1.000, 1.200] & 4.0 \\",
    ]
    text = latex_table(table, "ratios")
    for part in (r"\toprule", r"\cmidrule(lr){2-3}", r"\bottomrule", r"(95\% interval)",
                 r"($\mu$s)", r"\caption{Ratios at 5\%.}", r"\label{tab:ratios}"):  # fmt: skip
        assert part in text
    assert text.index(r"\caption") < text.index(r"\toprule")


def test_a_table_spans_the_page_only_where_a_column_is_too_narrow():
    few = make(words("searcher", ["a", "b"]), numbers("x", [1, 2]))
    many = make(words("searcher", ["a", "b"]), *(numbers("ratio to it", [1, 2]) for _ in range(9)))
    assert "\\begin{table}[t]" in latex_table(few, "t", venue="icml")
    assert "\\begin{table*}[t]" in latex_table(many, "t", venue="icml")
    assert "\\begin{table}[t]" in latex_table(many, "t", venue="neurips")
    assert "\\fontsize{9}" in latex_table(few, "t", venue="icml")


class Parser(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.cells, self.bold = [], [], []

    def handle_starttag(self, tag, _):
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        while self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data
        if "b" in self.open:
            self.bold.append(data)


def test_html_holds_the_same_and_escapes_it():
    hostile = "<script>alert('x')</script>"
    table = make(words("searcher", [hostile, "c & d"]),
                 numbers("x", [1.5, 0.5], best="low", unit="µs"))  # fmt: skip
    parser = Parser()
    parser.feed(html_table(table))
    assert parser.cells == ["searcher", "x(µs)", hostile, "1.500", "c & d", "0.500"]
    assert parser.bold == ["0.500"]
    assert "<script" not in html_table(table)


def test_saving_twice_gives_the_same_bytes_and_the_data(tmp_path):
    table = make(words("searcher", DATA["searcher"]), numbers("x", DATA["ratio"]))
    one, two = (table.save("t", directory=tmp_path / at, provenance={"a": 1}) for at in "ab")
    assert sorted(one) == ["csv", "html", "json", "tex"]
    for kind, path in one.items():
        assert path.read_bytes() == two[kind].read_bytes()
    pd.testing.assert_frame_equal(pd.read_csv(one["csv"]), DATA)
    facts = json.loads(one["json"].read_text())
    assert facts["caption"] == "Ratios at 5%."
    assert facts["caption_latex"] == r"Ratios at 5\%."
    assert facts["provenance"] == {"a": 1}


def test_wrong_columns_are_refused():
    with pytest.raises(UsageError, match="same rows"):
        make(words("searcher", ["a"]), numbers("x", [1, 2]))
    with pytest.raises(UsageError, match="at least 1"):
        make(words("searcher", []))
    with pytest.raises(UnknownName, match="low"):
        numbers("x", [1], best="least")


@pytest.mark.parametrize(
    ("plain", "safe"),
    [
        ("95% of a_b & c#", r"95\% of a\_b \& c\#"),
        ("p < 0.05, µs", r"p $<$ 0.05, $\mu$s"),
        ("{$x^2~\\}", r"\{\$x\textasciicircum{}2\textasciitilde{}\textbackslash{}\}"),
        ('the "best" of', "the ``best'' of"),
        ("café 漢", "café [U+6F22]"),
        ("Wałęsa, Đorđe", "Wał[U+0119]sa, [U+0110]or[U+0111]e"),  # no such glyphs in its fonts
        ("u\u0308ber a--b---c", "über a-{}-b-{}-{}-c"),
    ],
)
def test_captions_are_safe_for_latex(plain, safe):
    assert latex_text(plain) == safe

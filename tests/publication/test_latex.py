"""What is generated compiles: a document with all figures, tables and captions of a study."""

import re
import shutil
import subprocess

import pytest

from kt_lab.plots.captions import latex_text
from kt_lab.plots.tables import PaperTable, latex_table, numbers, words
from kt_lab.publication import publish

pytestmark = pytest.mark.slow

EVERY_LETTER = "".join(map(chr, [*range(32, 127), *range(160, 384)]))
EVERY_LETTER += "µ∞×±≤≥–—’‘“”…é\u00a0漢"  # noqa: RUF001
LOST = re.compile(r"Overfull \\hbox \((\d+(?:\.\d+)?)pt too wide\)")


@pytest.fixture
def compiled(tmp_path):
    """Compiles <name>.tex in the test's folder and returns what pdflatex said."""
    found = shutil.which("pdflatex")
    assert found, (
        "this test needs pdflatex with booktabs: apt-get install -y --no-install-recommends "
        "texlive-latex-base texlive-latex-recommended"
    )

    def compile_twice(name):
        command = [found, "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        for _ in range(2):  # the second time, references are known
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, errors="replace",
                timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout[-3000:]
        assert (tmp_path / f"{name}.pdf").stat().st_size > 1000
        return done.stdout

    return compile_twice


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("venue", ["icml", "neurips", "mlsys", "sc", "ieee"])
def test_a_document_with_everything_compiles_and_fits(venue, compiled, tmp_path):
    written = publish("tiny", venue=venue, directory=tmp_path)
    log = compiled("document")
    assert "undefined" not in log
    assert "Float too large" not in log
    # A figure or table beyond its column would be points too wide, not fractions of a letter.
    assert [points for points in LOST.findall(log) if float(points) > 1] == []
    pages = (tmp_path / "document.aux").read_text()
    for name in written:
        if name != "document":
            label = "tab" if name.startswith("table") else "fig"
            assert f"\\newlabel{{{label}:{name}}}" in pages


def test_every_letter_of_a_keyboard_can_be_set(compiled, tmp_path):
    columns = (words(EVERY_LETTER, [EVERY_LETTER] * 2), numbers("µs", [1.0, 2.0], best="low"))
    table = PaperTable(columns, None, EVERY_LETTER)
    text = (
        "\\documentclass{article}\\usepackage{booktabs,graphicx}\\begin{document}\n"
        f"{latex_text(EVERY_LETTER)}\n\n{latex_table(table, 'letters')}\\end{{document}}\n"
    )
    (tmp_path / "letters.tex").write_text(text, encoding="utf-8")
    compiled("letters")

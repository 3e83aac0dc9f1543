"""LaTeX around figures and tables: floats with captions, and a document that shows them."""

from collections.abc import Sequence

from kt_lab.plots.captions import latex_text
from kt_lab.plots.venues import find_venue
from kt_lab.study import Drawing

_SLACK_IN = 0.02


def figure_float(drawing: Drawing, name: str, *, venue: str) -> str:
    """Returns a float of <name>.pdf at its own size, its caption below, with label fig:<name>.

    Nothing is scaled: a figure wider than the venue's column spans the text.
    """
    page = find_venue(venue)
    wide = drawing.figure.get_size_inches()[0] > page.inches("column") + _SLACK_IN
    star = "*" if wide and page.columns == 2 else ""
    return (
        "% Needs \\usepackage{graphicx}; say \\graphicspath{{folder/}} where the pdf is "
        "elsewhere.\n"
        f"\\begin{{figure{star}}}[t]\n"
        "  \\centering\n"
        f"  \\includegraphics{{{name}.pdf}}\n"
        f"  \\caption{{{latex_text(drawing.caption)}}}\n"
        f"  \\label{{fig:{name}}}\n"
        f"\\end{{figure{star}}}\n"
    )


def document(title: str, names: Sequence[str], *, venue: str) -> str:
    """Returns a document on the venue's page that shows floats by name, for proof-reading.

    It needs pdflatex with booktabs, as in texlive-latex-base and texlive-latex-recommended; the
    venue's own class is not needed, since only its widths are set.
    """
    page = find_venue(venue)
    separation = page.text_in - 2 * page.inches("column") if page.columns == 2 else 0.0
    columns = f"twocolumn,columnsep={separation:.5f}in," if page.columns == 2 else ""
    option = "twocolumn" if page.columns == 2 else "onecolumn"
    inputs = "\n".join(f"\\input{{{name}.tex}}" for name in names)
    return (
        f"% All of {latex_text(title)} at the widths of {page.label}: {page.source}.\n"
        f"\\documentclass[10pt,{option}]{{article}}\n"
        f"\\usepackage[letterpaper,{columns}textwidth={page.text_in:.5f}in,textheight=9in]"
        "{geometry}\n"
        "\\usepackage{graphicx}\n"
        "\\usepackage{booktabs}\n"
        "\\makeatletter\n"
        f"\\long\\def\\@makecaption#1#2{{\\vskip6pt{{\\fontsize{{{page.caption_pt:g}}}"
        f"{{{1.2 * page.caption_pt:g}}}\\selectfont #1: #2\\par}}\\vskip6pt}}\n"
        "\\makeatother\n"
        "\\renewcommand{\\topfraction}{0.95}\n"
        "\\renewcommand{\\dbltopfraction}{0.95}\n"
        "\\renewcommand{\\floatpagefraction}{0.6}\n"
        "\\renewcommand{\\dblfloatpagefraction}{0.6}\n"
        "\\begin{document}\n"
        f"\\section*{{{latex_text(title)}}}\n"
        f"{inputs}\n"
        "\\end{document}\n"
    )

"""How figures look: fonts, lines, and one colour, dash and marker per searcher."""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.figure import Figure, FigureBase

from kt_lab.errors import UsageError
from kt_lab.plots.lettering import know_fonts, points_wide, shortened
from kt_lab.plots.venues import WIDTHS, find_venue

GOLDEN = 1.618
_NARROW = 4.5  # inches
SMALL = 6  # points: tick labels of workloads and counts in bars
INK = "#222222"
QUIET = "#8a8a8a"

TRUE_TYPE = {"pdf.fonttype": 42, "ps.fonttype": 42}
"""Embeds fonts as TrueType: the checkers of several venues refuse matplotlib's Type 3."""

RC: dict[str, Any] = TRUE_TYPE | {
    "font.family": "STIXGeneral",  # ships with matplotlib; fits the Times of the templates
    "mathtext.fontset": "stix",
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelpad": 2.5,
    "axes.titlepad": 3.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "#e3e3e3",
    "lines.linewidth": 1.1,
    "lines.markersize": 4,
    "patch.linewidth": 0.5,
    "hatch.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.2,
    "legend.borderaxespad": 0.2,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "savefig.bbox": None,  # "tight" would change the width
    "text.usetex": False,
}
"""What `paper` sets, apart from the venue's width and font sizes."""


_NAMES = 0.44  # of a figure's width at most are the names of its rows
_ROWS, _ROW = 4, 1.5  # of a legend fit any figure; times its letters is one of them high
_LARGE = ("font.size", "axes.labelsize", "axes.titlesize", "figure.labelsize")
_SMALLER = ("xtick.labelsize", "ytick.labelsize", "legend.fontsize")


@contextmanager
def paper(venue: str = "icml", *, columns: int = 1, width: str | None = None) -> Iterator[None]:
    """Draws the figures made inside at a venue's width; rcParams are restored on leaving.

    Args:
        venue: A name of VENUES.
        columns: 1 for one column, 2 for the full text width.
        width: The same in words, which count before `columns`: "column" or "text".
    """
    page = find_venue(venue)
    if columns not in (1, 2):
        raise UsageError(f"columns must be 1 (one column) or 2 (the text width), got {columns}")
    inches = page.inches(WIDTHS[columns - 1] if width is None else width)
    small = page.font_pt - 1
    know_fonts()
    size = {
        "figure.figsize": (inches, inches / GOLDEN),
        **dict.fromkeys(_LARGE, page.font_pt),
        **dict.fromkeys(_SMALLER, small),
    }
    with mpl.rc_context(RC | size):
        yield


def new_figure(*, height: float | None = None) -> Figure:
    """Returns an empty figure of the current width with constrained layout, outside pyplot.

    Args:
        height: In inches; None: the current style's.
    """
    width, default = mpl.rcParams["figure.figsize"]
    return Figure(figsize=(width, height or default), layout="constrained")


def is_narrow(artist: Artist) -> bool:
    """Whether an artist's figure is one column of two, where labels must be short."""
    return artist.get_figure(root=True).get_size_inches()[0] < _NARROW


@dataclass(frozen=True, slots=True)
class SearcherStyle:
    """How one searcher looks in every figure.

    Attributes:
        color: Hexadecimal.
        dash: A matplotlib line style.
        marker: A matplotlib marker.
        label: What the legend says.
    """

    color: str
    dash: Any
    marker: str
    label: str


_SOLID, _DASHED, _DOTTED = "-", (0, (4, 1.2)), (0, (1, 1))
_DASHDOT, _LONG = (0, (4, 1, 1, 1)), (0, (7, 1.5))
_DOTS = (0, (7, 1.5, 1, 1.2, 1, 1.5))  # what names that STYLES does not hold are left with
_DASHES = (_SOLID, _DASHED, _DASHDOT, _LONG, _DOTTED, _DOTS)
_OWN_DASHES = (  # of names that STYLES does not hold alone, which leaves them few of the others
    *((0, (2, 1)), (0, (3, 1, 3, 1, 1, 1)), (0, (5, 3)), (0, (2, 1, 1, 1, 1, 1))),
    *((0, (9, 1.5, 3, 1.5)), (0, (1, 2.2))),
)
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "h", "p", "d", "*", "H", "8")

# Okabe and Ito's palette in seaborn's "colorblind" shades; its yellow is too faint for lines.
_BLUE, _ORANGE, _GREEN, _RED = "#0173B2", "#DE8F05", "#029E73", "#D55E00"
_PURPLE, _BROWN, _SKY, _PINK, _GREY = "#CC78BC", "#CA9161", "#56B4E9", "#E38FC7", "#949494"
_COLORS = (_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _BROWN, _SKY, _PINK)

STYLES = {
    "random": SearcherStyle(_GREY, _DOTTED, "v", "Random"),
    "pattern": SearcherStyle(_ORANGE, _DASHED, "s", "Pattern"),
    "lfbo_pattern": SearcherStyle(_BLUE, _SOLID, "o", "LFBO-Pattern"),
    "tpe": SearcherStyle(_GREEN, _DASHDOT, "D", "TPE (Optuna)"),
    "lfbo_tree": SearcherStyle(_RED, _LONG, "^", "LFBO-Tree"),
    "differential_evolution": SearcherStyle(_PURPLE, _DASHED, "P", "Diff. evolution"),
    "de_surrogate": SearcherStyle(_BROWN, _DASHDOT, "X", "DE + surrogate"),
    "ucb_pattern": SearcherStyle(_SKY, _SOLID, "<", "UCB-Pattern"),
    "coordinate_descent": SearcherStyle(_PINK, _LONG, ">", "Coordinate descent"),
    "simulated_annealing": SearcherStyle(_RED, _DOTTED, "h", "Simulated annealing"),
    "genetic": SearcherStyle(_GREEN, _LONG, "p", "Genetic"),
    "optuna_cmaes": SearcherStyle(_PURPLE, _SOLID, "d", "CMA-ES (Optuna)"),
    "optuna_gp": SearcherStyle(_BROWN, _SOLID, "*", "GP (Optuna)"),
    "optuna_nsga2": SearcherStyle(_SKY, _DASHED, "H", "NSGA-II (Optuna)"),
    "optuna_qmc": SearcherStyle(_GREY, _DASHED, "8", "QMC (Optuna)"),
    "greedy": SearcherStyle(_PINK, _DASHED, "s", "Greedy"),
    "beam": SearcherStyle(_SKY, _LONG, "D", "Beam"),
    "annealing": SearcherStyle(_SKY, _DOTTED, "h", "Annealing"),
    "evolution": SearcherStyle(_GREEN, _DOTTED, "s", "Evolution"),
    "lfbo": SearcherStyle(_ORANGE, _DASHDOT, "^", "LFBO"),
    "max_q": SearcherStyle(_BLUE, _DOTTED, "X", "Max-Q"),
    "max_q_dqn": SearcherStyle(INK, _LONG, "P", "Max-Q, deep"),
    "dqn": SearcherStyle(INK, _DASHDOT, "v", "Deep Q"),
    "frozen": SearcherStyle(_PINK, _SOLID, "o", "Policy, frozen"),
    "tuned": SearcherStyle(_GREEN, _DASHED, "v", "Policy, learning on"),
    "scratch": SearcherStyle(_SKY, _DASHDOT, "o", "From scratch"),
    "structure": SearcherStyle(_PINK, _DOTTED, "^", "Structure"),
    "ngrams": SearcherStyle(_BROWN, _DOTS, "s", "n-grams"),
    "structure+ngrams": SearcherStyle(_GREY, _LONG, "D", "Structure + n-grams"),
    "minilm": SearcherStyle(_BLUE, _DOTS, "D", "MiniLM"),
    "expert": SearcherStyle(INK, _DASHED, "x", "Expert pass"),
    "expert+annealing": SearcherStyle(INK, _DOTTED, "h", "Expert + annealing"),
    "scout": SearcherStyle(INK, _SOLID, "o", "Scout"),
    "scout_as_long": SearcherStyle(_GREY, _DOTS, "^", "Scout, as long"),
    "helion_lfbo_tree": SearcherStyle(_RED, _SOLID, "D", "LFBO-Tree (Helion)"),
    "helion_lfbo_pattern": SearcherStyle(_BLUE, _LONG, "s", "LFBO-Pattern (Helion)"),
    "helion_pattern": SearcherStyle(_ORANGE, _LONG, "o", "Pattern (Helion)"),
    "helion_de": SearcherStyle(_PURPLE, _LONG, "v", "DE (Helion)"),
    "helion_de_surrogate": SearcherStyle(_BROWN, _DASHED, "^", "DE + surrogate (Helion)"),
    "helion_random": SearcherStyle(_GREY, _SOLID, "X", "Random (Helion)"),
    "helion_lfbo_tree_uniform": SearcherStyle(_RED, _DASHED, "P", "LFBO-Tree (Helion, uniform)"),
    "helion_lfbo_pattern_uniform": SearcherStyle(
        _BLUE, _DASHDOT, "P", "LFBO-Pattern (Helion, uniform)"
    ),
    "helion_pattern_uniform": SearcherStyle(_ORANGE, _DOTTED, "P", "Pattern (Helion, uniform)"),
    "helion_de_uniform": SearcherStyle(_PURPLE, _DASHDOT, "X", "DE (Helion, uniform)"),
    "helion_de_surrogate_uniform": SearcherStyle(
        _BROWN, _DOTTED, "P", "DE + surrogate (Helion, uniform)"
    ),
    "kt_adaptive_tabu_greywolf": SearcherStyle(_ORANGE, _SOLID, "v", "Tabu grey wolf (KT)"),
    "kt_hybrid_vndx": SearcherStyle(_BLUE, _DASHED, "^", "VNDX (KT)"),
    "kt_genetic": SearcherStyle(_GREEN, _SOLID, "P", "Genetic (KT)"),
    "kt_dual_annealing": SearcherStyle(_RED, _DASHDOT, "s", "Dual annealing (KT)"),
    "kt_bayes_opt": SearcherStyle(_PURPLE, _DOTTED, "D", "Bayesian opt. (KT)"),
    "kt_greedy_ils": SearcherStyle(_BROWN, _LONG, "o", "Greedy ILS (KT)"),
}
"""The looks of searchers, of policies and of what they read; no two share colour and dash."""

_OWN: dict[str, SearcherStyle] = {}  # of names that STYLES does not hold


def searcher_style(name: str) -> SearcherStyle:
    """Returns the look of a searcher; an unknown name gets one by its spelling.

    Where another name of this process has it, or a colour and marker of it, the next is taken
    that the fewest have: `style_order` of all names settles who is first. No two names have one
    label. Add a name to STYLES for a look of its own everywhere.
    """
    if name in STYLES:
        return STYLES[name]
    if name not in _OWN:
        _OWN[name] = _own_style(name)
    return _OWN[name]


def _own_style(name: str) -> SearcherStyle:
    """Returns a look that no other name has, as long as there is one, then that of the fewest."""
    known, others = list(STYLES.values()), list(_OWN.values())
    taken = {(style.color, style.dash) for style in known}
    free = [(c, d) for d in (*_DASHES, *_OWN_DASHES) for c in _COLORS if (c, d) not in taken]
    number = zlib.crc32(name.encode())
    lines = Counter((style.color, style.dash) for style in others)
    color, dash = min(_from(number, free), key=lines.__getitem__)
    marks = Counter((s.dash == dash, s.marker) for s in (*known, *others) if s.color == color)
    marker = min(
        _from(number // len(free), _MARKERS),
        key=lambda mark: (marks[True, mark], marks[False, mark]),
    )
    told = {style.label for style in (*known, *others)}
    labels = chain([name.replace("_", " "), name], (f"{name} ({i})" for i in count(2)))
    return SearcherStyle(color, dash, marker, next(each for each in labels if each not in told))


def _from(number: int, looks: Sequence[Any]) -> Sequence[Any]:
    """Returns looks, beginning with one by a number."""
    at = number % len(looks)
    return [*looks[at:], *looks[:at]]


def style_order(names: Iterable[str]) -> list[str]:
    """Returns names in the order of STYLES, then the unknown ones by name."""
    known = list(STYLES)
    found = sorted(set(map(str, names)), key=lambda n: (known.index(n) if n in known else 99, n))
    for name in found:
        searcher_style(name)
    return found


def row_labels(fig: Figure, names: Iterable[str]) -> list[str]:
    """Returns the labels of searchers that have a row each, cut so that panels keep their room."""
    labels = [searcher_style(name).label for name in names]
    room = _NAMES * 72 * fig.get_size_inches()[0]
    return shortened(labels, room, size=mpl.rcParams["ytick.labelsize"])


def _split(labels: Sequence[str], n: int) -> list[Sequence[str]]:
    """Returns labels in n columns, as a legend splits them: the first ones are the longer."""
    rows, longer = divmod(len(labels), n)
    ends = [at * rows + min(at, longer) for at in range(n + 1)]
    return [labels[low:high] for low, high in pairwise(ends)]


def legend_above(
    fig: FigureBase,
    handles: Sequence[Artist],
    *,
    handle_length: float = 2.2,
    below: bool = False,
    grow: bool = False,
) -> None:
    """Adds a legend above the axes, in as few rows as the width allows, rows evenly filled.

    A label that is wider than the figure loses its middle.

    Args:
        fig: The figure, or a part of it as wide as it, with constrained layout, which makes the
            room.
        handles: Labelled artists.
        handle_length: Of a symbol, in font sizes.
        below: Put it below them.
        grow: Make the figure as much higher as the legend has rows beyond a few.
    """
    size = mpl.rcParams["font.size"] * 7 / 8
    room = fig.get_figure(root=True).get_size_inches()[0] * 72 / size - 2
    labels = [str(handle.get_label()) for handle in handles]
    labels = shortened(labels, size * (room - handle_length), size=size)
    for rows in range(1, len(handles) + 1):
        columns = _split(labels, -(-len(labels) // rows))
        gaps = len(columns) * (handle_length + 2)  # 2: beside a label
        about = 0.46 * sum(max(map(len, column)) for column in columns)  # a letter of Times
        real = sum(max(points_wide(label, size) for label in column) for column in columns) / size
        if max(about, real - 2) + gaps <= room:
            break
    if grow and (more := rows - _ROWS) > 0:
        fig.set_figheight(fig.get_figheight() + more * _ROW * size / 72)
    fig.legend(
        handles=handles,
        labels=labels,
        loc=f"outside {'lower' if below else 'upper'} center",
        ncols=len(columns),
        handlelength=handle_length,
        fontsize=size,
    )

"""The sizes of venues' pages: how wide a column and the text are, and how large figures' text."""

from dataclasses import dataclass

from kt_lab.errors import UnknownName

POINTS = 72.27  # of TeX in an inch
WIDTHS = ("column", "text")


@dataclass(frozen=True, slots=True)
class Venue:
    """The page of a venue, as far as figures and tables need it.

    Attributes:
        label: Its name in prose.
        column_in: Width of one column in inches; None: the page has no columns.
        text_in: Width of the text, over all columns, in inches.
        font_pt: Of labels in figures, in points; ticks and legends are one point smaller.
        caption_pt: Of captions and tables, in points.
        source: Where the widths are from.
    """

    label: str
    column_in: float | None
    text_in: float
    font_pt: float
    caption_pt: float
    source: str

    @property
    def columns(self) -> int:
        """How many columns the page has, 1 or 2."""
        return 1 if self.column_in is None else 2

    @property
    def widths(self) -> tuple[str, ...]:
        """The widths that differ: "column" and "text", or "text" alone."""
        return WIDTHS if self.columns == 2 else WIDTHS[1:]

    def inches(self, width: str = "column") -> float:
        """Returns a width in inches; the only column of a page is as wide as its text.

        Args:
            width: "column" or "text".
        """
        if width not in WIDTHS:
            raise UnknownName("width", width, WIDTHS)
        return self.text_in if width == "text" or self.column_in is None else self.column_in


VENUES: dict[str, Venue] = {
    "icml": Venue(
        *("ICML", 3.25, 6.75, 8, 9),
        "icml2025.sty: textwidth 6.75in, columnsep 0.25in, captions in small (9pt)",
    ),
    "neurips": Venue(
        *("NeurIPS", None, 5.5, 9, 10),
        "neurips_2025.sty: textwidth 5.5in, one column, captions in normalsize (10pt)",
    ),
    "mlsys": Venue(
        *("MLSys", 3.25, 6.75, 8, 9),
        "mlsys2025.sty (from ICML 2018's): textwidth 6.75in, columnsep 0.25in, captions in "
        "small (9pt)",
    ),
    "sc": Venue(
        *("SC", (506.295 - 24) / 2 / POINTS, 506.295 / POINTS, 8, 9),
        "acmart.cls, sigconf on letter paper (SC25 is published by the ACM): 54pt margins, "
        "columnsep 2pc; columnwidth 241.147pt, textwidth 506.295pt",
    ),
    "ieee": Venue(
        *("IEEE", 252 / POINTS, 516 / POINTS, 8, 8),
        "IEEEtran.cls: textwidth 43pc, columnsep 1pc; the author guide's 3.5in and 7.16in are "
        "these picas counted in points of 1/72in, 1pt wider than the class sets them",
    ),
    "aistats": Venue(
        *("AISTATS", 3.25, 6.75, 8, 9),
        "tueplots 0.2.5, figsizes.aistats2023: 3.25in and 6.75in",
    ),
    "iclr": Venue(
        *("ICLR", None, 5.5, 9, 10),
        "tueplots 0.2.5, figsizes.iclr2024: 5.5in",
    ),
}
"""The known venues by key."""


def find_venue(name: str) -> Venue:
    """Returns a venue by its key; another raises UnknownName with those that are known."""
    if name not in VENUES:
        raise UnknownName("venue", name, VENUES)
    return VENUES[name]

"""How wide words are in print, and names cut to what a figure has room for."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import matplotlib as mpl
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.textpath import text_to_path

_HINTED = 1.06  # times its width in print is what a text takes where letters are whole pixels
_HEADS = (0.5, 0.7, 0.3, 0.9, 0.1)  # of a cut name's letters stand before the ellipsis


def know_fonts() -> None:
    """Adds the STIX fonts that matplotlib ships where its list of fonts lacks them.

    It keeps that list in the user's cache, for all environments, and never looks whether it is
    whole: one written while its environment was being removed lacks what it ships. Figures would
    be in another font, with no more than a line in a log.
    """
    known = {Path(font.fname).name for font in fontManager.ttflist}
    for path in Path(mpl.get_data_path(), "fonts", "ttf").glob("STIX*.ttf"):
        if path.name not in known:
            fontManager.addfont(path)


def points_wide(text: str, size: float | str) -> float:
    """Returns how many points wide a line of text is in the current font, at a size of it."""
    font = FontProperties(size=size)
    return _points_wide(text, font.get_name(), font.get_size_in_points())


@lru_cache(maxsize=4096)
def _points_wide(text: str, family: str, size: float) -> float:
    font = FontProperties(family=family, size=size)
    return _HINTED * text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]


def shortened(names: Sequence[str], room: float, *, size: float | str) -> list[str]:
    """Returns names; an ellipsis stands for the middle of those that are too wide.

    Where it is cut is chosen so that different names stay different, if that can be.

    Args:
        names: As they are written.
        room: For each, in points.
        size: Of the letters.
    """
    tries = [[_cut(name, room, size, share) for name in names] for share in _HEADS]
    return max(tries, key=lambda short: len(set(short)))


def _cut(name: str, room: float, size: float | str, share: float) -> str:
    """Returns a name with as little left out as lets it fit, this share of the rest in front."""
    text, kept = name, len(name)
    while points_wide(text, size) > room and kept > 1:
        kept -= 1
        head = round(share * kept)
        text = f"{name[:head].rstrip()}…{name[len(name) - kept + head :].lstrip()}"
    return text

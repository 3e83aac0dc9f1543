"""Takes the README's pictures of panels from what the browser tests saw.

pytest tests/browser && python -m tests.browser.gallery
"""

from pathlib import Path

from PIL import Image

from tests.browser.lab import ROOT
from tests.browser.notebook_page import SHOTS

GALLERY = ROOT / "figures" / "gallery"
PANELS = ("tuner", "compare", "landscape", "inspector")  # of the tests' pictures
COLORS = 256  # of a palette: a panel has few
LARGEST = 200_000  # bytes of a picture


def take(name: str) -> Path:
    """Copies one picture into the gallery, with a palette; returns its path."""
    source, target = SHOTS / f"{name}.png", GALLERY / f"panel_{name}.png"
    with Image.open(source) as shot:
        few = shot.convert("RGB").quantize(
            COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        few.save(target, optimize=True)
    return target


def main() -> None:
    """Copies what the README shows and prints the sizes."""
    for name in PANELS:
        path = take(name)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

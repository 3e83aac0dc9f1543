"""The README's pictures of panels are those that the browser tests take."""

import json
import re

from tests.browser import measure
from tests.browser.gallery import GALLERY, LARGEST, PANELS
from tests.browser.lab import ROOT


def test_the_readme_shows_the_pictures_of_the_tests():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"figures/gallery/panel_(\w+)\.png", readme)) == set(PANELS)
    assert {p.stem for p in GALLERY.glob("panel_*.png")} == {f"panel_{name}" for name in PANELS}
    tests = "".join(p.read_text() for p in (ROOT / "tests" / "browser").glob("test_*.py"))
    for name in PANELS:
        assert f'.shoot("{name}"' in tests, name


def test_pictures_are_small():
    for path in GALLERY.glob("panel_*.png"):
        assert path.stat().st_size < LARGEST, path.name


def test_the_readme_says_what_was_measured():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    told = readme.partition(measure.BEGIN)[2].partition(measure.END)[0].strip()
    assert told == measure.block(json.loads(measure.STORED.read_text(encoding="utf-8")))

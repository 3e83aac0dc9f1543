"""Venues: their widths in TeX's own points, and what asks for them."""

import dataclasses

import matplotlib as mpl
import pytest
from matplotlib.font_manager import fontManager

from kt_lab import plots
from kt_lab.errors import UnknownName
from kt_lab.plots.venues import POINTS, VENUES, find_venue

# As TeX tells them: \the\columnwidth and \the\textwidth under each venue's style or class.
TOLD_PT = {
    "icml": (234.8775, 487.8225),
    "neurips": (397.485, 397.485),
    "mlsys": (234.8775, 487.8225),
    "sc": (241.14749, 506.295),
    "ieee": (252.0, 516.0),
}


@pytest.mark.parametrize("name", sorted(TOLD_PT))
def test_widths_are_those_of_the_templates(name):
    found = [VENUES[name].inches(width) * POINTS for width in ("column", "text")]
    assert found == pytest.approx(TOLD_PT[name], abs=0.01)


def test_every_venue_tells_its_source_and_readable_sizes():
    for name, venue in VENUES.items():
        assert len(venue.source) > 20, name
        assert 7 <= venue.font_pt <= venue.caption_pt <= 10, name
        assert venue.column_in is None or venue.column_in * 2 < venue.text_in, name


def test_a_page_without_columns_has_one_width():
    neurips = find_venue("neurips")
    assert neurips.column_in is None
    assert neurips.widths == ("text",)
    assert neurips.columns == 1
    assert find_venue("ieee").widths == ("column", "text")
    assert find_venue("ieee").columns == 2


def test_venues_are_facts():
    with pytest.raises(dataclasses.FrozenInstanceError):
        VENUES["icml"].text_in = 1.0


@pytest.mark.parametrize("name", sorted(VENUES))
def test_a_style_has_the_size_and_the_fonts_of_its_venue(name):
    venue = VENUES[name]
    for columns, width in ((1, "column"), (2, "text")):
        for how in ({"columns": columns}, {"width": width}):
            with plots.paper(name, **how):
                assert mpl.rcParams["figure.figsize"][0] == venue.inches(width)
                assert mpl.rcParams["axes.labelsize"] == venue.font_pt
                assert mpl.rcParams["legend.fontsize"] == venue.font_pt - 1


def test_unknown_names_are_told_with_the_known_ones():
    with pytest.raises(UnknownName, match="did you mean 'neurips'"):
        find_venue("neurip")
    with pytest.raises(UnknownName, match="column, text"), plots.paper("icml", width="page"):
        pass


def test_figures_keep_their_font_where_the_list_of_fonts_lacks_it(monkeypatch):
    """As a user's cache does that was written while an environment was being removed."""
    fonts = [font for font in fontManager.ttflist if not font.name.startswith("STIX")]
    monkeypatch.setattr(fontManager, "ttflist", fonts)
    for _ in range(2):  # the second time there is nothing to add
        with plots.paper("icml"):
            known = [font.fname.rpartition("/")[2] for font in fontManager.ttflist]
        for file in ("STIXGeneral.ttf", "STIXGeneralItalic.ttf", "STIXSizOneSymReg.ttf"):
            assert known.count(file) == 1

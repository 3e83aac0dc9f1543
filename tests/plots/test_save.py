"""Saved figures: fonts, width, bytes, and the points from which they can be drawn again."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from kt_lab import plots
from kt_lab.errors import StoreError, UsageError
from tests.redrawing import picture, reread

PANELS = ("latency", "wall_clock", "convergence_time")


def bars(tables):
    with plots.paper("icml", columns=2):
        return plots.plot_ratio_bars(*tables)


def save(tables, folder):
    return plots.save_figure(
        bars(tables),
        "bars",
        data=dict(zip(PANELS, tables, strict=True)),
        directory=folder,
        provenance={"runs": ["a.parquet"]},
        caption=plots.caption_ratio_bars(*tables),
    )


@pytest.fixture(scope="module")
def saved(ratios, tmp_path_factory):
    """The bars, saved once."""
    return save(ratios, tmp_path_factory.mktemp("saved"))


def test_the_pdf_embeds_truetype_at_the_exact_width(saved):
    pdf = saved["pdf"].read_bytes()
    assert b"/Type3" not in pdf
    assert b"/CIDFontType2" in pdf
    width = float(re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", pdf).group(1))
    assert width == pytest.approx(6.75 * 72, abs=0.01)


def test_fonts_are_truetype_outside_the_paper_style_too(ratios, tmp_path):
    paths = plots.save_figure(
        plots.plot_ratio_bars(*ratios), "a", data=ratios[0], directory=tmp_path
    )
    assert b"/Type3" not in paths["pdf"].read_bytes()


def test_writing_twice_gives_the_same_bytes(saved, ratios, tmp_path):
    second = save(ratios, tmp_path)
    for kind in ("pdf", "png", "csv", "json"):
        assert saved[kind].read_bytes() == second[kind].read_bytes()


def test_the_png_has_300_dots_per_inch(saved):
    header = saved["png"].read_bytes()[16:20]
    assert int.from_bytes(header, "big") == 2025


def test_points_that_are_pixels_in_the_pdf_are_as_fine_and_the_figure_is_as_before(tmp_path):
    fig = Figure(figsize=(3, 2), dpi=90, layout="constrained")
    fig.add_subplot().plot(np.arange(50), np.arange(50) ** 2, ".", rasterized=True)
    canvas = fig.canvas
    saved = plots.save_figure(fig, "dots", data=pd.DataFrame({"x": [1]}), directory=tmp_path)
    (width,) = re.findall(rb"/Width (\d+)", saved["pdf"].read_bytes())[:1]
    assert 600 < int(width) < 900
    assert (fig.dpi, fig.canvas) == (90, canvas)


@pytest.mark.parametrize("kind", ["ratios", "endless"])
def test_the_figure_can_be_drawn_again_from_its_csv(kind, request, tmp_path):
    tables = request.getfixturevalue(kind)
    points = reread(dict(zip(PANELS, tables, strict=True)), "bars", tmp_path)
    assert tuple(points) == PANELS
    again = bars([points[name] for name in PANELS])
    assert picture(again) == picture(bars(tables))
    for name, table in zip(PANELS, tables, strict=True):
        held = table.dropna(axis=1, how="all")
        pd.testing.assert_frame_equal(points[name][held.columns], held, check_dtype=False)


def test_convergence_can_be_drawn_again_from_its_csv(bands, tmp_path):
    def drawn(tables):
        return picture(plots.plot_convergence(*tables, noise_floor=1.02))

    points = reread(dict(zip(("trials", "seconds"), bands, strict=True)), "bands", tmp_path)
    assert drawn(points.values()) == drawn(bands)


def test_points_come_back_bit_by_bit(tmp_path):
    table = pd.DataFrame({"x": [0.1 + 0.2, np.inf, np.nan], "n": [1, 2, 3]})
    paths = plots.save_figure(
        Figure(figsize=(1, 1)),
        "a",
        data={"p": table, "q": table[["x"]]},
        directory=tmp_path,
    )
    pd.testing.assert_frame_equal(plots.read_points(paths["csv"])["p"], table, check_dtype=False)
    assert paths["csv"].read_text().splitlines()[1] == "p,0.30000000000000004,1"


def test_names_come_back_as_they_were_written(tmp_path):
    names = ["None", "NA", "8", "1e3"]
    table = pd.DataFrame(
        {"x": [1.0, np.nan, np.inf, -np.inf], "searcher": names, "workload": None}
    )
    points = reread({"nan": table, "8": table.head(1)}, "names", tmp_path)
    assert [*points] == ["nan", "8"]
    assert points["nan"]["searcher"].tolist() == names
    pd.testing.assert_series_equal(points["nan"]["x"], table["x"])
    paths = plots.save_figure(Figure(figsize=(1, 1)), "a", data=table, directory=tmp_path)
    assert plots.read_points(paths["csv"])["data"]["workload"].isna().all()


def test_the_json_tells_origin_and_caption(saved):
    facts = json.loads(saved["json"].read_text())
    assert facts["csv_sha256"] == hashlib.sha256(saved["csv"].read_bytes()).hexdigest()
    assert facts["provenance"] == {"runs": ["a.parquet"]}
    assert facts["inches"][0] == 6.75
    assert "lower is better" in facts["caption"]
    assert facts["versions"]["matplotlib"]


def test_wrong_names_data_and_files_are_refused(ratios, tmp_path):
    fig = plots.plot_ratio_bars(*ratios)
    with pytest.raises(UsageError, match="without folders"):
        plots.save_figure(fig, "a/b", data=ratios[0], directory=tmp_path)
    with pytest.raises(UsageError, match="at least one table"):
        plots.save_figure(fig, "a", data={}, directory=tmp_path)
    with pytest.raises(StoreError, match="save_figure"):
        plots.read_points(tmp_path / "absent.csv")


def test_a_disk_that_is_full_is_told_with_the_file(ratios, tmp_path, monkeypatch):
    def full(self, content):  # noqa: ARG001
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match=r"bars\.csv must be writable in .* No space left"):
        save(ratios, tmp_path)

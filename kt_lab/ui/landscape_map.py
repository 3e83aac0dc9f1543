"""A heat map of buttons that can be hovered, clicked and walked by keyboard, and a trail on it."""

import html
from collections.abc import Callable

import ipywidgets as w
import numpy as np
import pandas as pd

from kt_lab.plots.scales import log_ticks
from kt_lab.plots.slices import (
    ABOVE,
    MOST,
    ROUTE,
    cell_color,
    cell_text,
    ink_on,
    route,
    slot_offsets,
)
from kt_lab.stats.slices import NO_CONFIG
from kt_lab.trial import OK

WIDE, HIGH = 62, 46  # pixels of a cell
_DIGITS = (14, 28, 34, 16)  # left, top, width and height of its number: a line passes behind it
_MASK = "ktl-digits"
_LABELS = 84  # pixels of the column of the vertical axis' values, at least
_LETTER = 8  # pixels of a letter of the axis' name, at most: it stays in one line
_BESIDE = w.Layout(width="336px", padding="0 0 0 14px")
_ROW = w.Layout(flex_flow="row wrap", width="fit-content", max_width="100%")
_CELL = {"width": f"{WIDE}px", "height": f"{HIGH}px", "margin": "0"}
_PLAIN = "var(--jp-ui-font-color1, #333)"

# Everything is found by class, takes the theme's colours, and leaves the rest of the page alone.
# What lies between a cell and .ktl-row is `static` (JupyterLab says `relative`), so that what is
# told of a cell on hovering stands at the row's right end, whichever cell it is.
CSS = f"""<style>
.ktl-row {{ position: relative; overflow: visible; }}
.ktl-row .ktl-column, .ktl-row .ktl-stage, .ktl-row .ktl-grid, .ktl-row .ktl-cell {{
  position: static; overflow: visible; flex: none; }}
.ktl-row .ktl-stage {{ display: grid; }}
.ktl-stage > * {{ grid-area: 1 / 1; }}
.ktl-stage .ktl-grid {{ gap: 0; }}
.ktl-stage .ktl-trail {{ margin: 0; pointer-events: none; z-index: 1; }}
.ktl-stage .ktl-cell {{ padding: 28px 0 0; border-radius: 0; box-shadow: none;
  line-height: 14px; font-size: 12px; border: 1px solid var(--jp-layout-color1, #fff); }}
.ktl-stage .ktl-none {{ border: 1px dotted var(--jp-border-color2, #bbb); box-shadow: none; }}
.ktl-stage .ktl-failed {{ background-image: repeating-linear-gradient(45deg,
  rgba(128,128,128,.45) 0 2px, transparent 2px 8px); }}
.ktl-stage .ktl-chosen {{ outline: 3px solid {ROUTE}; outline-offset: -3px; }}
.ktl-stage .ktl-cell:hover::after, .ktl-stage .ktl-cell:focus-visible::after {{
  content: attr(title); position: absolute; right: 0; top: 0; z-index: 3;
  width: 336px; box-sizing: border-box; padding: 6px 10px; white-space: pre-wrap;
  min-height: 240px; text-align: left; line-height: 1.45;
  font-weight: normal; color: var(--jp-ui-font-color1, #222); pointer-events: none;
  background: var(--jp-layout-color2, #f3f3f3); border: 1px solid var(--jp-border-color1, #aaa); }}
.ktl-axis {{ color: {_PLAIN}; font-size: 12px; line-height: 1.3; }}
.ktl-axis .ktl-tick {{ display: flex; align-items: center; justify-content: center; }}
.ktl-table {{ color: {_PLAIN}; line-height: 1.4; font-size: 13px; border-spacing: 0; }}
.ktl-table td, .ktl-table th {{ text-align: left; padding: 0 14px 0 0; vertical-align: top;
  white-space: nowrap; font-weight: normal; }}
.ktl-table th, .ktl-table td:first-child {{ color: var(--jp-ui-font-color2, #666); }}
</style>"""


class LandscapeMap:
    """The map of a slice; `show`, `trace` and `choose` are where it changes.

    Attributes:
        box: The widget to show (CSS class ktl-map).
        cells: The buttons, by (x_index, y_index) (CSS class ktl-cell).
        chosen: The chosen cell; None before the first `show`.
        across, up: Sliders that move the choice: the keyboard's way (ktl-across, ktl-up).
        trail: The picture of a search over the map (ktl-trail).
    """

    def __init__(self, on_choose: Callable[[], object]):
        """Makes an empty map.

        Args:
            on_choose: Called when another cell is chosen, or the chosen one again.
        """
        self._on_choose, self.cells, self.chosen = on_choose, {}, None
        self._grid, self.trail, self._ylabels, self._xlabels = (
            w.GridBox().add_class("ktl-grid"),
            w.HTML().add_class("ktl-trail"),
            w.HTML().add_class("ktl-axis"),
            w.HTML().add_class("ktl-axis"),
        )
        stage = w.Box([self._grid, self.trail]).add_class("ktl-stage")
        self.across, self.up = (
            w.SelectionSlider(
                options=[("", 0)],
                tooltip=f"Moves the chosen cell {how}: focus it and use the arrow keys.",
                style={"description_width": "9em"},
                layout=w.Layout(width="30em"),
            ).add_class(css)
            for css, how in (("ktl-across", "left and right"), ("ktl-up", "up and down"))
        )
        for slider in (self.across, self.up):
            slider.observe(self._slid, names="value")
        self.details = w.HTML().add_class("ktl-card")
        beside = w.Box([self.details], layout=_BESIDE)
        column = w.VBox([stage, self._xlabels]).add_class("ktl-column")
        row = w.HBox([self._ylabels, column, beside], layout=_ROW)
        parts = [w.HTML(CSS), row.add_class("ktl-row"), self.across, self.up]
        self.box = w.VBox(parts).add_class("ktl-map")
        self._shape = (0, 0)

    def show(self, cells: pd.DataFrame, tips: list[str]) -> None:
        """Shows another slice; its fastest cell is chosen.

        Args:
            cells: From `kt_lab.stats.landscape_slice`.
            tips: What is told of each cell, in lines, in the order of `cells`.
        """
        shape = (int(cells["x_index"].max()) + 1, int(cells["y_index"].max()) + 1)
        if shape != self._shape:
            self._rebuild(*shape)
        for cell, tip in zip(cells.itertuples(), tips, strict=True):
            _paint(self.cells[cell.x_index, cell.y_index], cell, tip)
        _label(self._ylabels, self._xlabels, cells)
        self.chosen = None
        best = cells.loc[cells["ratio"].idxmin()] if cells["ratio"].notna().any() else cells.loc[0]
        # In one message: a browser told of fewer values first would choose the last of them.
        with self.across.hold_sync(), self.up.hold_sync():
            for slider, name in ((self.across, "x"), (self.up, "y")):
                values = cells.drop_duplicates(f"{name}_index").sort_values(f"{name}_index")[name]
                slider.description = cells[f"{name}_name"].iloc[0]
                slider.options = [(text, at) for at, text in enumerate(values)]
            self.choose(int(best["x_index"]), int(best["y_index"]))

    def choose(self, x: int, y: int) -> None:
        """Chooses a cell by its position."""
        self.chosen = None  # the sliders are set without being heard
        self.across.value, self.up.value = x, y
        self.chosen = (x, y)
        for button in self.cells.values():
            if "ktl-chosen" in button._dom_classes:
                button.remove_class("ktl-chosen")
                button.tabbable = False
        self.cells[x, y].add_class("ktl-chosen")
        self.cells[x, y].tabbable = True  # the only stop of the map on the way of the Tab key
        self._on_choose()

    def trace(self, path: pd.DataFrame | None, upto: int = 0) -> None:
        """Draws the first `upto` readings of a path over the map; None: nothing."""
        nx, ny = self._shape
        self.trail.value = "" if path is None else trail_svg(path.iloc[:upto], nx=nx, ny=ny)

    def _slid(self, _: object) -> None:
        if self.chosen is not None and self.chosen != (self.across.value, self.up.value):
            self.choose(self.across.value, self.up.value)

    def _rebuild(self, nx: int, ny: int) -> None:
        for button in self.cells.values():
            button.close()
        layout, self.cells, self._shape = w.Layout(**_CELL), {}, (nx, ny)
        for y in reversed(range(ny)):
            for x in range(nx):
                button = w.Button(layout=layout, tabbable=False).add_class("ktl-cell")
                button.add_class(f"ktl-cell-{x}-{y}")
                button.on_click(lambda _, x=x, y=y: self.choose(x, y))
                self.cells[x, y] = button
        self._grid.layout.grid_template_columns = f"repeat({nx}, {WIDE}px)"
        self._grid.children = tuple(self.cells.values())


def trail_svg(path: pd.DataFrame, *, nx: int, ny: int) -> str:
    """Returns a search's way as SVG: dots, crosses for failures, the incumbent's line.

    Args:
        path: The readings so far, from `kt_lab.stats.search_path`.
        nx: Cells across.
        ny: Cells up.
    """
    offsets = slot_offsets(path)
    x = np.round((path["x_index"].to_numpy() + 0.04 + 0.92 * offsets[:, 0]) * WIDE, 1)
    rows = ny - 1 - path["y_index"].to_numpy()
    y = np.round((rows + 0.03 + ABOVE * offsets[:, 1]) * HIGH, 1)
    inside, ok = path["inside"].to_numpy(bool), (path["status"] == OK).to_numpy()
    dots = "".join(f"M{x[i]} {y[i]}h0" for i in np.flatnonzero(inside & ok))
    bad = "".join(f"M{x[i] - 2} {y[i] - 2}l4 4m0-4l-4 4" for i in np.flatnonzero(inside & ~ok))
    steps = [row for row in route(path) if inside[row]]
    way = " ".join(f"{x[i]},{y[i]}" for i in steps)
    parts = [
        f'<path d="{dots}" stroke="#000" stroke-width="5.4" stroke-linecap="round"/>',
        f'<path d="{dots}" stroke="#fff" stroke-width="3.6" stroke-linecap="round"/>',
        f'<path d="{bad}" stroke="#fff" stroke-width="3"/>',
        f'<path d="{bad}" stroke="#000" stroke-width="1.3"/>',
        f'<g mask="url(#{_MASK}-{nx}-{ny})">',
        f'<polyline points="{way}" stroke="#fff" stroke-width="3.4"/>',
        f'<polyline points="{way}" stroke="{ROUTE}" stroke-width="1.8"/></g>',
        _mask(nx, ny),
    ]
    if steps:
        at = steps[-1]
        parts.append(
            f'<text x="{x[at]}" y="{y[at] + 6}" font-size="18" text-anchor="middle" '
            f'fill="{ROUTE}" stroke="#fff" stroke-width="0.8">★</text>'
        )
    if len(path) and inside[-1]:
        parts.append(
            f'<circle cx="{x[-1]}" cy="{y[-1]}" r="5.5" stroke="#fff" stroke-width="3.4"/>'
            f'<circle cx="{x[-1]}" cy="{y[-1]}" r="5.5" stroke="#000" stroke-width="1.6"/>'
        )
    return (
        f'<svg width="{nx * WIDE}" height="{ny * HIGH}" fill="none" role="img" '
        f'aria-label="the first {len(path)} readings of a search" style="display:block">'
        f"{''.join(parts)}</svg>"
    )


def _mask(nx: int, ny: int) -> str:
    """Returns the mask that leaves the cells' numbers free."""
    left, top, wide, high = _DIGITS
    holes = "".join(
        f"M{x * WIDE + left} {y * HIGH + top}h{wide}v{high}h-{wide}z"
        for x in range(nx)
        for y in range(ny)
    )
    size = f'width="{nx * WIDE}" height="{ny * HIGH}"'
    return (
        f'<mask id="{_MASK}-{nx}-{ny}" maskUnits="userSpaceOnUse" x="0" y="0" {size}>'
        f'<rect {size} fill="#fff"/><path d="{holes}" fill="#000"/></mask>'
    )


def scale_html() -> str:
    """Returns the key of the colours: a band from the optimum to MOST times it, with ticks."""
    stops = ",".join(cell_color(MOST ** (i / 12)) for i in range(13))
    ticks = "".join(
        f'<span style="position:absolute;left:{100 * np.log(t) / np.log(MOST):.1f}%">{t:g}</span>'
        for t in log_ticks(1.0, MOST)
    )
    return (
        f'<div class="ktl-axis" style="width:26em;padding:0 1em 1.4em 0">latency / optimum '
        f'(the last colour: {MOST:g} and above)<span style="display:block;height:9px;'
        f'background:linear-gradient(to right,{stops})"></span>'
        f'<span style="position:relative;display:block">{ticks}</span></div>'
    )


def _paint(button: w.Button, cell: object, tip: str) -> None:
    ok, none = cell.status == OK, cell.status == NO_CONFIG
    face = cell_color(cell.ratio) if ok else "transparent"
    blank = "·" if none else "?"
    with button.hold_sync():
        button.description = cell_text(cell.status, cell.ratio) or blank
        button.tooltip = tip
    with button.style.hold_sync():
        button.style.button_color = face
        button.style.text_color = ink_on(face) if ok else _PLAIN
    for css, wanted in (("ktl-none", none), ("ktl-failed", not ok and not none)):
        if wanted != (css in button._dom_classes):
            (button.add_class if wanted else button.remove_class)(css)


def _label(ylabels: w.HTML, xlabels: w.HTML, cells: pd.DataFrame) -> None:
    values = {
        name: cells.drop_duplicates(f"{name}_index").sort_values(f"{name}_index")[name]
        for name in ("x", "y")
    }
    names = {name: html.escape(cells[f"{name}_name"].iloc[0]) for name in ("x", "y")}
    broad = max(_LABELS, _LETTER * len(f"{names['y']} ↑"))
    tall = "".join(
        f'<div class="ktl-tick" style="height:{HIGH}px;width:{broad}px">{text}</div>'
        for text in map(html.escape, reversed(list(values["y"])))
    )
    ylabels.value = f'{tall}<div class="ktl-tick" style="width:{broad}px">{names["y"]} ↑</div>'
    wide = "".join(
        f'<div class="ktl-tick" style="width:{WIDE}px">{html.escape(text)}</div>'
        for text in values["x"]
    )
    xlabels.value = (
        f'<div style="display:flex">{wide}</div><div class="ktl-tick">{names["x"]} →</div>'
    )

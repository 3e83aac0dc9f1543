"""What a compare panel shows: progress, two pictures, where files went, errors."""

import html
from collections.abc import Mapping
from pathlib import Path

import ipywidgets as w

from kt_lab.plots import VENUES, png_bytes
from kt_lab.study import Drawing
from kt_lab.ui.comparing import CompareSnapshot
from kt_lab.ui.controls import button, dropdown
from kt_lab.ui.keyboard import described
from kt_lab.ui.progress import IDLE
from kt_lab.ui.shell import Shell

BANDS = (("interquartile range", "iqr"), ("95% interval of the median", "interval"),
         ("none", "none"))  # fmt: skip
AXES = (("trials", "spent_trials"), ("seconds", "elapsed_s"))
_DPI = 130
_BUTTONS = {
    "start": ("Runs the searchers on the workloads, or opens the stored runs.", "play"),
    "stop": ("Ends after the runs under way; all finished runs are kept.", "stop"),
    "export": ("Writes both figures as pdf, png, csv and json at the venue's size.", "download"),
}


class CompareView(Shell):
    """The widgets that show a comparison, and those that say how it is shown.

    Attributes:
        box: All of them.
        buttons: start, stop and export, by name.
        progress: The bar.
        x, band, target, reference, shown, lanes: How the runs are shown.
        venue, width, figure_name, folder: Where the figures go, and how large.
        images: The pictures: "incumbents" and "ratios".
    """

    def __init__(self):
        """Makes the widgets, for a comparison that has not begun."""
        super().__init__()
        self.status.value = IDLE
        self.buttons = {
            name: button(name, tooltip, css=f"ktl-{name}", icon=icon)
            for name, (tooltip, icon) in _BUTTONS.items()
        }
        self.progress = w.IntProgress(max=1, tooltip="Finished runs.").add_class("ktl-progress")
        self._show_controls()
        self._export_controls()
        layout = {"max_width": "100%", "display": "none"}
        self.images = {
            name: w.Image(format="png", layout=w.Layout(**layout)).add_class(css)
            for name, css in (("incumbents", "ktl-image"), ("ratios", "ktl-ratios"))
        }
        run = w.HBox([self.buttons["start"], self.buttons["stop"], self.progress, self.status])
        self.box = w.VBox([run, self._shown_box, *self.images.values(), self._export, self.drawer])
        self.buttons["export"].disabled = True
        self.render(CompareSnapshot())

    def render(self, snapshot: CompareSnapshot) -> None:
        """Shows how far the comparison is; the pictures are `draw`n apart."""
        self.status.value = compare_status(snapshot)
        self.progress.max = max(snapshot.total, 1)
        self.progress.value = snapshot.done
        self.buttons["start"].disabled = snapshot.alive
        self.buttons["stop"].disabled = not snapshot.alive or snapshot.stopping
        if snapshot.error:
            self.file(snapshot.traceback, snapshot.error)

    def draw(self, drawings: Mapping[str, Drawing]) -> None:
        """Shows pictures by name; those that are not given disappear."""
        for name, image in self.images.items():
            drawing = drawings.get(name)
            if drawing is not None:
                image.value = png_bytes(drawing.figure, dpi=_DPI)
            image.layout.display = "none" if drawing is None else ""
        self.buttons["export"].disabled = not drawings

    def unmeasured(self) -> None:
        """Says that there is nothing to draw, though runs are finished."""
        self.status.value += "; no run measured anything: give them more seconds or trials"

    def exported(self, paths: Mapping[str, Mapping[str, Path]]) -> None:
        """Says where the figures were written."""
        shown = [str(path) for kinds in paths.values() for path in kinds.values()]
        self.paths.value = "<br>".join(map(html.escape, shown))
        self.status.value = f"exported {len(shown)} files to {Path(shown[0]).parent}"

    def _show_controls(self) -> None:
        self.x = dropdown("x", "What the horizontal axis and the time to target count.", AXES)
        self.band = dropdown("band", "What is drawn around the median over seeds.", BANDS)
        self.shown = dropdown("shown", "Whose curves are drawn; ratios are over all workloads.")
        self.reference = dropdown("reference", "The searcher that all others are divided by.")
        self.lanes = dropdown("lanes", "Simulated compile lanes of the runs shown.")
        self.target = w.FloatSlider(
            value=5.0,
            min=0.5,
            max=20.0,
            step=0.5,
            description="target (%)",
            tooltip="Time to within this distance of the optimum; use the arrow keys.",
            readout_format=".1f",
        ).add_class("ktl-target")
        left = w.VBox([self.shown, self.x, self.band])
        self._shown_box = w.HBox([left, w.VBox([self.reference, self.lanes, self.target])])

    def _export_controls(self) -> None:
        venues = [(venue.label, key) for key, venue in VENUES.items()]
        self.venue = dropdown("venue", "Whose page the figures are made for.", venues)
        self.width = dropdown("width", "One column, or the whole text.")
        self.figure_name = w.Text(
            "comparison", **described("name", "Stem of the files' names.")
        ).add_class("ktl-figure-name")
        self.folder = w.Text(
            "figures", **described("folder", "Where the files go; made when absent.")
        ).add_class("ktl-folder")
        self.paths = w.HTML().add_class("ktl-paths")
        names = w.HBox([self.figure_name, self.folder, self.buttons["export"]])
        fields = w.VBox([w.HBox([self.venue, self.width]), names, self.paths])
        self._export = w.Accordion([fields], titles=("export",)).add_class("ktl-export-box")


def compare_status(snapshot: CompareSnapshot) -> str:
    """Returns the status line."""
    if snapshot.state == IDLE:
        return IDLE
    state = "stopping after the runs under way" if snapshot.stopping else snapshot.state
    if snapshot.alive and not snapshot.total:
        return f"{state}: starting up"
    all_of = f"{snapshot.done:,}"
    if snapshot.done != snapshot.total:
        all_of += f" of {snapshot.total:,}"
    said = f"{state}: {all_of} runs in {snapshot.elapsed_s:,.1f} s"
    if snapshot.resumed:
        said += f", {snapshot.resumed:,} of them stored before"
    if snapshot.eta_s is not None:
        said += f"; about {snapshot.eta_s:,.0f} s left"
    return f"{said}; {snapshot.error}" if snapshot.error else said

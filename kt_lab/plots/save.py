"""Saving a figure with the points it shows and where they come from."""

import hashlib
import io
import json
import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from kt_lab.errors import StoreError, UsageError
from kt_lab.plots.captions import latex_text
from kt_lab.plots.style import TRUE_TYPE
from kt_lab.store.files import writing

_PACKAGES = ("kt_lab", "matplotlib", "numpy", "pandas", "scipy")
_PACKAGE = Path(__file__).resolve().parents[1]
_COMPUTES = ("baseline.py", "study.py", "stats/*.py", "comparison/*.py", "publication/*.py",
             "plots/*.py")  # fmt: skip
_NAMES = ("panel", "gpu", "kernel", "workload", "searcher", "reference")
_COLLAPSED = "constrained_layout not applied"  # how matplotlib's warning begins
_FIXED = TRUE_TYPE | {"savefig.bbox": None}  # also for a figure drawn outside `paper`


def save_figure(
    fig: Figure,
    name: str,
    *,
    data: pd.DataFrame | Mapping[str, pd.DataFrame],
    directory: str | Path,
    provenance: Mapping[str, Any] | None = None,
    caption: str = "",
) -> dict[str, Path]:
    """Writes a figure, its points and its origin side by side.

    The same figure written twice gives the same bytes: no file holds a date.

    Args:
        fig: What to write, at its own size.
        name: Stem of the four files, without folders.
        data: Exactly the plotted points, tidy; several tables by panel.
        directory: Made when absent.
        provenance: What `kt_lab.provenance` tells, the run files, the parameters; JSON values.
        caption: The text under the figure.

    Returns:
        The paths by kind: "pdf" (TrueType fonts), "png" (both 300 dpi), "csv" (with a `panel`
        column when data is a mapping; read it with `read_points`) and "json" (caption, provenance,
        versions, size in inches, SHA-256 of the csv).

    Raises:
        UsageError: Labels leave no room for what is drawn.
        StoreError: A file cannot be written.
    """
    from matplotlib.backends.backend_pdf import FigureCanvasPdf  # slow, and no panel needs it

    png = png_bytes(fig, dpi=300)  # first: of what cannot be drawn no file is written
    table, digest = write_points(data, name, directory=directory)
    paths = {kind: table.with_name(f"{name}.{kind}") for kind in ("pdf", "png", "csv", "json")}
    write_file(paths["png"], png)
    pdf = io.BytesIO()
    with _canvas(fig, FigureCanvasPdf, dpi=300) as canvas:
        canvas.print_pdf(pdf, metadata={"CreationDate": None})
    write_file(paths["pdf"], pdf.getvalue())
    inches = [float(length) for length in fig.get_size_inches()]
    facts = {"caption": caption, "inches": inches, "csv_sha256": digest}
    write_facts(facts, paths["json"], provenance=provenance)
    return paths


def write_points(
    data: pd.DataFrame | Mapping[str, pd.DataFrame], name: str, *, directory: str | Path
) -> tuple[Path, str]:
    """Writes <name>.csv into a folder, made when absent; returns its path and SHA-256."""
    if not name or Path(name).name != name:
        raise UsageError(f"name must be a file stem without folders, got {name!r}")
    path = Path(directory) / f"{name}.csv"
    table = _points(data).to_csv(index=False, lineterminator="\n").encode()
    write_file(path, table)
    return path, hashlib.sha256(table).hexdigest()


def write_facts(
    facts: Mapping[str, Any], path: Path, *, provenance: Mapping[str, Any] | None = None
) -> Path:
    """Writes what goes beside a figure or a table, with its origin and the versions, as JSON.

    Nothing of the moment, the folder or the machine is added, so that the same inputs give the
    same bytes.
    """
    told = {
        **facts,
        "caption_latex": latex_text(facts["caption"]),
        "provenance": dict(provenance or {}),
        "versions": {"python": platform.python_version()} | _versions(),
    }
    text = json.dumps(told, indent=2, sort_keys=True, ensure_ascii=False, default=str)
    return write_file(path, text + "\n")


def write_file(path: Path, content: bytes | str) -> Path:
    """Writes bytes, or text as UTF-8, into a folder that is made when absent; returns the path.

    Raises:
        StoreError: The disk is full, or refuses otherwise: the file is named.
    """
    with writing(path, kept="stored runs are as they were"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def png_bytes(fig: Figure, *, dpi: int = 150) -> bytes:
    """Returns the figure as PNG, for a notebook cell or a widget.

    Raises:
        UsageError: Labels leave no room for what is drawn.
    """
    buffer = io.BytesIO()
    with _canvas(fig, FigureCanvasAgg, dpi=dpi) as canvas:
        canvas.print_png(buffer)
    return buffer.getvalue()


@contextmanager
def _canvas(fig: Figure, kind: type[FigureCanvasBase], *, dpi: float) -> Iterator[Any]:
    """Yields a canvas to print on; `savefig` would draw twice, once for the layout alone."""
    kept, dots = fig.canvas, fig.dpi
    try:
        with mpl.rc_context(_FIXED):
            canvas = kind(fig)  # first: with no window that would be resized
            fig.dpi = dpi
            with _room_required(fig):
                yield canvas
    finally:
        fig.dpi = dots
        fig.set_canvas(kept)


@contextmanager
def _room_required(fig: Figure) -> Iterator[None]:
    """Raises UsageError where labels leave no room, of which matplotlib only warns."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", _COLLAPSED)
            yield
    except UserWarning as warning:
        if not str(warning).startswith(_COLLAPSED):
            raise
        written = [text.get_text() for text in fig.findobj(Text) if text.get_visible()]
        inches = "{:.2f} x {:.2f} inches".format(*fig.get_size_inches())
        raise UsageError(
            f"the labels of a figure must leave room for what it draws, those of {inches} do not; "
            f"the longest is {max(written, key=len)!r}: draw it at the width of the text "
            "(width='text'), or give its rows shorter names"
        ) from warning


def read_points(path: str | Path) -> dict[str, pd.DataFrame]:
    """Returns the tables that `save_figure` wrote, by panel; a single table is named "data".

    Numbers come back bit by bit and names as they were written, also "None" or "8", so drawing
    from them gives the same figure. Columns that hold nothing in a panel are left out of it.
    """
    try:
        texts = dict.fromkeys(_NAMES, "str")
        table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the points of a figure must be a CSV table that save_figure wrote, "
            f"{path} is not ({error}); save the figure again"
        ) from error
    if "panel" not in table.columns:
        return {"data": table}
    return {
        str(panel): rows.drop(columns="panel").dropna(axis=1, how="all").reset_index(drop=True)
        for panel, rows in table.groupby("panel", sort=False)
    }


def _points(data: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Returns one table; integers stay integers where another panel lacks their column."""
    if isinstance(data, pd.DataFrame):
        return data
    parts = []
    for panel, table in data.items():
        whole = {name: "Int64" for name in table.select_dtypes("integer").columns}
        part = table.astype(whole)
        part.insert(0, "panel", panel)
        parts.append(part.astype({n: object for n in part.select_dtypes("category").columns}))
    if not parts:
        raise UsageError("data must hold at least one table of points, got an empty mapping")
    return pd.concat(parts, ignore_index=True)


def _versions() -> dict[str, str | None]:
    """Returns the versions that the picture depends on; None: not installed as a package."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found | {"kt_lab_source": _source()}


@lru_cache(maxsize=1)
def _source() -> str:
    """Returns a hash of the code that computes and draws: it holds without git, too."""
    digest = hashlib.sha256()
    for name in _COMPUTES:
        for path in sorted(_PACKAGE.glob(name)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]

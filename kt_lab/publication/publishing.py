"""Writing all of a study: figures and tables with captions, and a document that shows them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kt_lab import comparison
from kt_lab.errors import UnknownName, UsageError
from kt_lab.experiment import process_pool
from kt_lab.plots.save import write_file
from kt_lab.plots.venues import find_venue
from kt_lab.publication.document import document, figure_float
from kt_lab.publication.stored import StoredStudy, parts_of, read_study
from kt_lab.publication.tables import TABLES, draw_tables
from kt_lab.study import VENUE, Drawing

FIGURES = (
    "quality_at_trials",
    "quality_at_seconds",
    "ratios",
    "quality_vs_time",
    "profiles",
    "significance",
    "convergence",
    "anatomy",
)
"""The figures by name, in the order of the document; the anatomy where models predicted."""

# Both halves take about as long; the budget table, which most need, is made in one of them.
_SECOND = {
    *("ratios", "quality_vs_time", "profiles", "anatomy"),
    *("table_running_times", "table_scores", "table_power"),
}
Paths = dict[str, dict[str, Path]]


def publish(
    study: str | StoredStudy,
    *,
    directory: Path | str,
    venue: str = VENUE,
    width: str | None = None,
    lanes: int | None = None,
    reference: str | None = None,
    only: Collection[str] | None = None,
    workers: int = 1,
) -> Paths:
    """Writes figures, tables and captions of a stored study, ready for a venue's page.

    Args:
        study: The name of a stored study ("headline", "field"), or one that was read.
        directory: Made when absent.
        venue: Whose page: a name of `kt_lab.plots.VENUES`.
        width: "column" or "text" for all figures; None: each one's own.
        lanes: Which lane count of the study; None: the most.
        reference: What the others are compared with; None: pattern search.
        only: Names of FIGURES and TABLES that are wanted; None: all that the study has.
        workers: Processes; 2 need about half of the time, more do not help.

    Returns:
        Per figure the paths "pdf", "png", "csv", "json" and "tex" (a float with the caption), per
        table "tex", "html", "csv" and "json", and under "document" the "tex" of a document that
        shows them all on the venue's page.
    """
    find_venue(venue)
    if workers < 1:
        raise UsageError(f"figures are drawn by workers >= 1, got workers={workers}")
    wanted = [*FIGURES, *TABLES] if only is None else list(only)
    for name in wanted:
        if name not in (*FIGURES, *TABLES):
            raise UnknownName("figure or table", name, (*FIGURES, *TABLES))
    page = {"directory": Path(directory), "venue": venue, "width": width}
    with _folder(directory, study):
        if isinstance(study, StoredStudy):
            if lanes is not None or reference is not None:
                raise UsageError(
                    "lanes and reference of a study that was read are its own; leave them out, "
                    f"got lanes={lanes}, reference={reference!r}"
                )
            title, written = study.name, _write(study, wanted, **page)
        else:
            which = {"lanes": lanes, "reference": reference}
            title, written = study, _write_in_two(study, wanted, which, page, workers)
        ordered = {name: written[name] for name in (*FIGURES, *TABLES) if name in written}
        if only is not None:
            _require_all(title, wanted, ordered)
        path = page["directory"] / "document.tex"
        write_file(path, document(title, list(ordered), venue=venue))
        return ordered | {"document": {"tex": path}}


@contextmanager
def _folder(directory: Path | str, study: str | StoredStudy) -> Iterator[None]:
    """Makes a folder for a known study when absent; takes it away again if nothing came into it.

    Raises:
        UsageError: A file stands there.
    """
    if isinstance(study, str):
        parts_of(study)  # a name that is none makes no folder
    absent = not Path(directory).exists()
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(
            f"directory must be a folder, or a name that is free, got {str(directory)!r}, where "
            "a file stands; give another"
        ) from None
    try:
        yield
    finally:
        if absent:
            with suppress(OSError):  # it holds something
                Path(directory).rmdir()


def _require_all(title: str, wanted: Sequence[str], written: Collection[str]) -> None:
    """Raises UsageError unless everything that was named could be drawn."""
    if absent := [name for name in wanted if name not in written]:
        raise UsageError(
            f"what is named must be in the study, got {', '.join(absent)}, of which {title} has "
            "nothing to draw (anatomy: none of its searchers predicts); leave it out"
        )


def _write_in_two(
    name: str, wanted: Sequence[str], which: dict[str, Any], page: dict[str, Any], workers: int
) -> Paths:
    """Writes what is wanted, by two processes if there may be so many and both have a part."""
    halves = [[name for name in wanted if (name in _SECOND) == second] for second in (0, 1)]
    if workers == 1 or not all(halves):
        return _write_stored(name, wanted, which, page)
    with process_pool(2) as pool:
        jobs = [pool.submit(_write_stored, name, half, which, page) for half in halves]
        return {each: paths for job in jobs for each, paths in job.result().items()}


def _write_stored(
    name: str, wanted: Sequence[str], which: dict[str, Any], page: dict[str, Any]
) -> Paths:
    """Reads a study and writes a part of it; runs in a process of its own, too."""
    return _write(read_study(name, **which), wanted, **page)


def _write(
    study: StoredStudy, wanted: Sequence[str], *, directory: Path, venue: str, width: str | None
) -> Paths:
    """Writes what is wanted of a study."""
    known = {"reference": study.reference, "landscapes": study.landscapes}
    table = None
    if set(wanted) - set(_SECOND):
        table = comparison.budget_table(study.runs, **known)
    origin, written = study.provenance() | {"venue": venue}, {}
    if figures := [name for name in wanted if name in FIGURES]:
        drawn = comparison.draw_all(
            study.runs, table=table, rows=study.rows, venue=venue, width=width, only=figures,
            **known,
        )  # fmt: skip
        for name, one in drawn.items():
            whole = Drawing(one.figure, one.points, f"{one.caption} {study.versions()}")
            paths = whole.save(name, directory=directory, provenance=origin)
            paths["tex"] = directory / f"{name}.tex"
            write_file(paths["tex"], figure_float(whole, name, venue=venue))
            written[name] = paths
    tables = draw_tables(study, table=table, only=[name for name in wanted if name in TABLES])
    for name, one in tables.items():
        written[name] = one.save(name, directory=directory, venue=venue, provenance=origin)
    return written

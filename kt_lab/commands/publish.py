"""kt-lab publish: figures, tables and captions of a stored study, at a venue's size."""

import argparse
from pathlib import Path

from kt_lab.commands import require_least
from kt_lab.plots.venues import VENUES, WIDTHS
from kt_lab.publication import FIGURES, TABLES, publish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which study, for whose page, and where the files go."""
    add = parser.add_argument
    add("study", metavar="STUDY", help="as data/runs names it, or field, tuned")
    add("--venue", choices=sorted(VENUES), default="icml", help="whose page; default: icml")
    add("--width", choices=WIDTHS, help="of all figures; default: each its own")
    add("--directory", type=Path, help="default: figures/STUDY")
    add("--lanes", type=int, help="lane count; default: the most")
    add("--reference", help="what the others are compared with; default: pattern search")
    add("--only", nargs="+", metavar="NAME", choices=(*FIGURES, *TABLES),
        help=f"of {' '.join((*FIGURES, *TABLES))}")  # fmt: skip
    add("--workers", type=int, default=2, help="processes; more than 2 do not help")


def run(args: argparse.Namespace) -> int:
    """Writes everything and says what is where."""
    require_least(args, workers=1)
    directory = args.directory or Path("figures") / args.study
    written = publish(
        args.study,
        directory=directory,
        venue=args.venue,
        width=args.width,
        lanes=args.lanes,
        reference=args.reference,
        only=args.only,
        workers=args.workers,
    )
    for name, paths in written.items():
        print(f"{name}: {', '.join(sorted(paths))}")
    print(f"all in {directory}; pdflatex document.tex there shows them")
    return 0

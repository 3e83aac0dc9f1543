"""kt-lab artifact: a study with data, code, figures and a script that recomputes it.

For artifact evaluation: stored runs, the landscapes that they replayed, the lock file, figures and
tables at a venue's size, and a README that tells an evaluator what to do.
"""

import argparse
from pathlib import Path

from kt_lab.artifact import bundle
from kt_lab.commands import require_least
from kt_lab.plots.venues import VENUES, WIDTHS
from kt_lab.publication import FIGURES, TABLES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds which studies, and where the artifact goes."""
    add = parser.add_argument
    add("studies", nargs="+", metavar="STUDY", help="as data/runs names them, or field, tuned")
    add("--output", type=Path, required=True, metavar="DIR|ZIP", help="a folder, or a .zip")
    add("--venue", choices=sorted(VENUES), default="icml", help="whose page; default: icml")
    add("--width", choices=WIDTHS, help="of all figures; default: each its own")
    add("--only", nargs="+", metavar="NAME", choices=(*FIGURES, *TABLES),
        help=f"of {' '.join((*FIGURES, *TABLES))}")  # fmt: skip
    add("--workers", type=int, default=2, help="processes; more than 2 do not help")


def run(args: argparse.Namespace) -> int:
    """Writes the artifact and says where it is."""
    require_least(args, workers=1)
    path = bundle(
        args.studies,
        args.output,
        venue=args.venue,
        width=args.width,
        only=args.only,
        workers=args.workers,
    )
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    size = sum(each.stat().st_size for each in files) / 1e6
    print(f"{path}: {size:.1f} MB; an evaluator begins with its README.md")
    return 0

"""kt-lab datasheet: write the tables of recorded landscapes into the texts, from the data."""

import argparse
from pathlib import Path

import pandas as pd

from kt_lab.datasheet import (
    BEGIN,
    END,
    KERNELS_BEGIN,
    KERNELS_END,
    datasheet,
    kernels_table,
    markdown,
)
from kt_lab.errors import StoreError
from kt_lab.landscape import data_directory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where the text is, and whether to look only."""
    parser.add_argument(
        "--file", type=Path, default=None, help="default: data/README.md, and README.md's summary"
    )
    parser.add_argument("--show", action="store_true", help="print the table, write nothing")


def run(args: argparse.Namespace) -> int:
    """Replaces what stands between the marks of the files by fresh tables."""
    table = datasheet()
    if args.show:
        with pd.option_context("display.width", 250, "display.max_columns", 50):
            print(table.round(4).to_string(index=False))
        return 0
    path = args.file or data_directory() / "README.md"
    _replace(path, BEGIN, END, markdown(table))
    if args.file is None:
        front = data_directory().parent / "README.md"
        _replace(front, KERNELS_BEGIN, KERNELS_END, kernels_table(table))
    print(f"wrote {len(table)} landscapes into {path}")
    return 0


def _replace(path: Path, begin: str, end: str, text: str) -> None:
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise StoreError(f"{path.name} must hold the marks {begin} and {end}, got neither or one")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")

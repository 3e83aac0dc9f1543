"""kt-lab datasheet: write the table of recorded landscapes into data/README.md, from the data."""

import argparse
from pathlib import Path

import pandas as pd

from kt_lab.datasheet import BEGIN, END, datasheet, markdown
from kt_lab.errors import StoreError
from kt_lab.landscape import data_directory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where the text is, and whether to look only."""
    parser.add_argument("--file", type=Path, default=None, help="default: data/README.md")
    parser.add_argument("--show", action="store_true", help="print the table, write nothing")


def run(args: argparse.Namespace) -> int:
    """Replaces what stands between the two marks of the file by a fresh table."""
    table = datasheet()
    if args.show:
        with pd.option_context("display.width", 250, "display.max_columns", 50):
            print(table.round(4).to_string(index=False))
        return 0
    path = args.file or data_directory() / "README.md"
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise StoreError(f"{path.name} must hold the marks {BEGIN} and {END}, got neither or one")
    path.write_text(f"{before}{BEGIN}\n{markdown(table)}\n{END}{after}", encoding="utf-8")
    print(f"wrote {len(table)} landscapes into {path}")
    return 0

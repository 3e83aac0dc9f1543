"""kt-lab datasheet: write the tables of recordings and of stored results into the pages."""

import argparse
from pathlib import Path

import pandas as pd

from kt_lab.datasheet import BEGIN, END, datasheet, markdown
from kt_lab.errors import LandscapeError, UsageError
from kt_lab.evidence import pages
from kt_lab.landscape import data_directory, landscapes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where the text is, and whether to look only."""
    parser.add_argument(
        "--file",
        type=Path,
        default=None,
        help=f"only the landscapes, into this one; default: {', '.join(pages.tables())}",
    )
    parser.add_argument("--show", action="store_true", help="print the table, write nothing")


def run(args: argparse.Namespace) -> int:
    """Replaces what stands between the marks of the pages by fresh tables."""
    if args.show and args.file:
        raise UsageError(f"--show writes nothing, got --file {args.file}; leave one out")
    if (args.show or args.file) and not landscapes():
        raise LandscapeError(
            f"a datasheet needs recorded landscapes, got none in {data_directory()}: does "
            "KT_LAB_DATA fit?"
        )
    if args.show:
        with pd.option_context("display.width", 250, "display.max_columns", 50):
            print(datasheet().round(4).to_string(index=False))
        return 0
    if args.file is not None:
        try:
            text = args.file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"--file must be a page in UTF-8, got {args.file}: {error}") from None
        table = datasheet()
        anew = pages.rewritten(text, {(BEGIN, END): markdown(table)})
        args.file.write_text(anew, encoding="utf-8")
        print(f"wrote {len(table)} landscapes into {args.file}")
        return 0
    changed = pages.write(data_directory().parent)
    print("\n".join(f"wrote {path}" for path in changed) or "every page tells what is stored")
    return 0

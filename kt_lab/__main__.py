"""Runs the command line as `python -m kt_lab`."""

import sys

from kt_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())

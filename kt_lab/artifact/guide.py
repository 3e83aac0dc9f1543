"""What an evaluator of an artifact is told to do."""

import re
from collections.abc import Mapping
from typing import Any

from kt_lab import __version__

_STEPS = """\
## What you need

Python 3.11 or newer, about 1 GB of disk for the packages, 2 GB of memory. No GPU, no network after
the packages are installed. Two cores recompute a study of a million trials in about a minute.

## What to do

1. Unpack, and go into this folder.
2. Install the packages as they were locked:

   ```
   python3 -m venv venv
   venv/bin/pip install -c requirements.lock ".[lab]"
   ```

   To replay the runs of Helion's, Kernel Tuner's or CMA-ES's searchers as well, install
   `".[lab,peers,dev]"` instead; without them those runs are left out of step 3's sample.
3. Check and recompute:

   ```
   venv/bin/python recompute.py
   ```

   It compares the SHA-256 of every file with `MANIFEST.json`, recomputes the numbers of every
   figure and table and the words of its caption from the stored runs, replays a random sample of
   the runs from the recorded landscapes, and ends with status 0 if all are equal.
   `--replay 100 --seed 7` replays other runs and more, `--replay all` every one (hours),
   `--only table_trials` recomputes one table.
4. Compare `recomputed/` with `paper/` by eye, if you like. `pdflatex document.tex` in either
   shows everything on the venue's page (texlive-latex-base, texlive-latex-recommended).

## What counts as reproduced

Numbers must agree to a relative 1e-9. Replayed runs must be equal in every column, bit by bit, but
for `search_s`: the searcher's own computing is measured, so it is another one on each machine. The
seconds in the figures are those that were stored. Runs of Optuna's searchers (`tpe`) may differ
from some late trial on, on a CPU with other vector instructions: the order of equal observations
hangs on these. Such runs are counted apart and are no failure.

## What this artifact cannot show

Latencies were recorded on the GPU that the captions name; measuring them again needs one like it
(`venv/bin/kt-lab record KERNEL`). Searchers read one recorded visit and are judged on the others;
replay says nothing of configs or machines that were not recorded.
"""


def guide(studies: Mapping[str, Mapping[str, Any]], captions: Mapping[str, str]) -> str:
    """Returns the README of an artifact.

    Args:
        studies: Per study how it was published.
        captions: Per "study/figure" its caption.
    """
    rows = [f"| `paper/{name}` | {_first(text)} |" for name, text in captions.items()]
    names = ", ".join(f"`{name}`" for name in studies)
    return "\n".join(
        [
            f"# Artifact of {names}",
            "",
            f"Written by kt_lab {__version__}.",
            "",
            "| | |",
            "| --- | --- |",
            "| `paper/` | the figures and tables: pdf, png and tex beside the numbers (csv) and "
            "their origin (json) |",
            "| `data/runs/` | every trial of every run, as it was stored |",
            "| `data/landscapes/` | the recorded search spaces that the runs replayed |",
            "| `kt_lab/` | the code that ran, judged and drew |",
            "| `requirements.lock` | the versions of all packages |",
            "| `recompute.py` | checks and recomputes all of it |",
            "| `MANIFEST.json` | the SHA-256 of every file |",
            "",
            _STEPS,
            "## What is claimed where",
            "",
            "| file | shows |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


def _first(caption: str) -> str:
    """Returns the first sentence of a caption, fit for a cell."""
    first = re.split(r"(?<!et al)\. ", caption, maxsplit=1)[0]
    return first.replace("|", "/").rstrip(".") + "."

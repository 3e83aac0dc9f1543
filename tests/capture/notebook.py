"""A notebook in a child process: triton decides at import whether it interprets."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


class CellError(Exception):
    """A cell ended with an error, whose type and message these are."""


class Notebook:
    """A process that runs one cell after another, all in one namespace."""

    def __init__(self, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "cells.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean | {"PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"} | environment,
        )

    def __call__(self, cell, **values):
        """Runs a cell, the values assigned before it; returns what its last expression is."""
        assignments = [f"{name} = {value!r}" for name, value in values.items()]
        self._process.stdin.write(json.dumps("\n".join([*assignments, cell])) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise CellError(f"{answer['error']}: {answer['told']}")
        return answer["value"]

    def close(self):
        self._process.kill()
        self._process.wait()

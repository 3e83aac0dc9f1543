"""What `kt-lab evidence vendors` stored of torch.compile, as far as it tells of the GPU."""

import json
from pathlib import Path

import numpy as np

from kt_lab.landscape import data_directory

HOST_US = 200.0
"""What a call of compiled Python may take the host, in microseconds: shorter readings are its."""


def compiled_readings(directory: Path | None = None) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns (workload, GPU) -> latencies of the best recorded config and of torch.compile.

    Both are medians in microseconds, taken in alternation. Where calls were timed that no CUDA
    graph had captured, readings of less than HOST_US are left out.

    Args:
        directory: The recorded data; None: as `data_directory` finds it.
    """
    found = {}
    for path in sorted(((directory or data_directory()) / "evidence").glob("vendors*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        least = 0.0 if result.get("calls") == "captured" else HOST_US
        for row in result["rows"]:
            compiled_us = float(np.median(row.get("compiled_us") or np.nan))
            if compiled_us >= least:
                ours_us = float(np.median(row["kt_lab_us"]))
                found[row["workload"], result["gpu"]] = ours_us, compiled_us
    return found

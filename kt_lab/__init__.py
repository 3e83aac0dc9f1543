"""kt_lab: a research notebook toolkit for autotuning Triton kernels."""

import importlib
from typing import Any

__version__ = "0.1.0"

# The package face, one line a name: where each lives. Loaded on first use, so that importing
# kt_lab costs nothing. A name may not be that of a module: importing it would hide the name.
_FACE = {
    "Budget": "kt_lab.budget",
    "Choice": "kt_lab.parameters",
    "Config": "kt_lab.trial",
    "Constraint": "kt_lab.constraints",
    "Flag": "kt_lab.parameters",
    "GpuRunner": "kt_lab.runners.gpu.runner",
    "History": "kt_lab.trial",
    "Integer": "kt_lab.parameters",
    "Kernel": "kt_lab.workload",
    "KtLabError": "kt_lab.errors",
    "Measurement": "kt_lab.trial",
    "ParameterSpace": "kt_lab.space",
    "PowerOfTwo": "kt_lab.parameters",
    "Proposal": "kt_lab.trial",
    "Trial": "kt_lab.trial",
    "Workload": "kt_lab.workload",
    "get_kernel": "kt_lab.kernels",
    "get_workload": "kt_lab.kernels",
    "load_landscape": "kt_lab.landscape",
    "tune_live": "kt_lab.live",
}

__all__ = ["__version__", *_FACE]


def __getattr__(name: str) -> Any:
    """Imports a name of the package face when it is first asked for."""
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_FACE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Lists the package face, loaded or not."""
    return sorted({*globals(), *_FACE})

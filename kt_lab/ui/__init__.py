"""Interactive tuning: a session that runs in the background, and widget panels on it.

`kt_lab.ui.session` needs no widgets. A panel is imported when it is first asked for, and with it
ipywidgets and matplotlib (the extra `lab`).
"""

import importlib
from typing import Any

_FACE = {
    "ComparePanel": "kt_lab.ui.compare",
    "CompareSession": "kt_lab.ui.comparing",
    "ConfigInspector": "kt_lab.ui.inspector",
    "LandscapePanel": "kt_lab.ui.landscape",
    "ProgramPanel": "kt_lab.ui.program",
    "ProgramSession": "kt_lab.ui.program_session",
    "Session": "kt_lab.ui.session",
    "Snapshot": "kt_lab.ui.progress",
    "TunerPanel": "kt_lab.ui.tuner",
    "roofline_figure": "kt_lab.ui.landscape_figure",
    "slice_figure": "kt_lab.ui.landscape_figure",
}

__all__ = list(_FACE)


def __getattr__(name: str) -> Any:
    """Imports a name when it is first asked for."""
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_FACE[name]), name)

"""Provenance: machine, versions, commit; a plain dict stored with every result."""

import datetime
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from kt_lab.runners.gpu.planning import sources
from kt_lab.workload import Kernel

_PACKAGES = ("numpy", "pandas", "pyarrow", "scipy", "scikit-learn", "optuna", "torch", "triton")


def provenance() -> dict[str, Any]:
    """Returns where and with what this process computes; unknown facts are None.

    The host appears only as a hash: enough to tell two machines apart, and no more.
    """
    commit, dirty = _commit()
    return {
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "kt_lab": _version("kt_lab"),
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "system": platform.system(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "host": hashlib.sha256(platform.node().encode()).hexdigest()[:8],
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def source_hash(*modules: str) -> str:
    """Returns a hash over the source files of modules, named without importing them."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for module in modules:
        digest.update((root / (module.replace(".", "/") + ".py")).read_bytes())
    return digest.hexdigest()[:16]


def kernel_source(kernel: Kernel) -> str:
    """Returns a hash over what defines a kernel, registered or captured: its source files.

    Those of a captured kernel do not say within what it is right, so its tolerances count too.
    """
    if kernel.device.endswith(".py"):
        law = f"rtol={float(kernel.rtol)} atol={float(kernel.atol)}".encode()
        return hashlib.sha256(Path(kernel.device).read_bytes() + law).hexdigest()[:16]
    return source_hash(kernel.device) if kernel.device else source_hash(*sources(kernel.name))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> tuple[str | None, bool | None]:
    root = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), None)

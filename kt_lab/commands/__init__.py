"""The subcommands of `kt-lab`, one module each; kt_lab.cli has the table of them."""

import argparse
from pathlib import Path

from kt_lab.errors import UsageError


def require_least(args: argparse.Namespace, **least: float) -> None:
    """Raises UsageError for the first option that was given a smaller number than it may have."""
    for name, floor in least.items():
        value = getattr(args, name)
        if value is not None and not value >= floor:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} must be >= {floor}, got {value}")


def require_folder(option: str, path: Path | None) -> None:
    """Raises UsageError where an option's folder cannot be made, since a file stands there."""
    if path and path.exists() and not path.is_dir():
        raise UsageError(f"{option} must be a folder, or a name that is free, got {path}")

"""The subcommands of `kt-lab`, one module each; kt_lab.cli has the table of them."""

import argparse

from kt_lab.errors import UsageError


def require_least(args: argparse.Namespace, **least: float) -> None:
    """Raises UsageError for the first option that was given a smaller number than it may have."""
    for name, floor in least.items():
        value = getattr(args, name)
        if value is not None and not value >= floor:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} must be >= {floor}, got {value}")

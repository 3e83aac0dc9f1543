"""Controls: one config timed again and again on every GPU, to tell the GPUs from the configs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kt_lab.errors import UsageError


def drift(readings: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Returns how far GPUs differ and change, as the readings of one config on each tell it.

    Args:
        readings: Device -> latencies of the control in microseconds, in order of time.

    Returns:
        Device -> readings (their number), median_us, offset (median over that of the fastest
        device, minus 1: >= 0), drift (median of the later half over that of the earlier one,
        minus 1) and spread (slowest over fastest reading, minus 1). Null without readings; drift
        needs two.
    """
    medians = {device: float(np.median(us)) for device, us in readings.items() if len(us)}
    least = min(medians.values(), default=None)
    found = {}
    for device, us in readings.items():
        half = len(us) // 2
        found[device] = {
            "readings": len(us),
            "median_us": medians.get(device),
            "offset": medians[device] / least - 1 if len(us) else None,
            "drift": float(np.median(us[-half:]) / np.median(us[:half])) - 1 if half else None,
            "spread": max(us) / min(us) - 1 if len(us) else None,
        }
    return found


def require_one_kind(kinds: Mapping[str, Any]) -> None:
    """Raises UsageError unless all devices are GPUs of one kind.

    Args:
        kinds: Device -> what kind of GPU it is.
    """
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{device} ({kind})" for device, kind in kinds.items())
        raise UsageError(
            f"GPUs that share work must be of one kind, got {told}; latencies of different GPUs "
            "do not compare: give each kind a run of its own"
        )

"""Axes of ratios: their limits, their ticks, and when they are logarithmic."""

from collections.abc import Iterable

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

LOG_SPAN = 3.0  # of the largest over the smallest ratio, above which an axis is logarithmic
_STEPS = (
    (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    (1, 1.2, 1.5, 2, 3, 4, 5, 7),
    (1, 1.5, 2, 3, 5),
    (1, 2, 5),
    (1, 3),
    (1,),
)
_MOST_TICKS = 7
_FEWEST_TICKS = 3
_TOLD = 2  # ticks without which a scale cannot be read
_APART = 1.1  # ends of an axis whose values are all the same


def set_ratio_axis(
    axis: Axis, low: float, high: float, *, log: bool, most: int = _MOST_TICKS
) -> None:
    """Sets the limits of an axis of ratios and labels it with plain numbers (0.5, 1, 2)."""
    axes = axis.axes
    horizontal = axis.axis_name == "x"
    if low == high:  # of a landscape with one config, say
        low, high = low / _APART, high * _APART
    if log:
        (axes.set_xscale if horizontal else axes.set_yscale)("log")
    (axes.set_xlim if horizontal else axes.set_ylim)(low, high)
    if log:
        axis.set_major_locator(FixedLocator(log_ticks(low, high, most=most)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}"))


def log_ticks(low: float, high: float, *, most: int = _MOST_TICKS) -> list[float]:
    """Returns round numbers within the limits: the densest set of 2 to `most`.

    Limits between which hardly any of them lies are so near that even steps look even.
    """
    denser: list[float] = []
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    for steps in _STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        inside = [round(tick, 12) for tick in ticks if low <= tick * 1.0001 and tick <= high]
        if len(inside) < _FEWEST_TICKS and high < 2 * low:
            return _even_ticks(low, high, most=most)
        if len(inside) < _TOLD and denser:
            return _thinned(denser, most=max(most, _TOLD))
        if len(inside) <= most:
            return inside
        denser = inside
    return _thinned(inside, most=most)


def _thinned(ticks: list[float], *, most: int) -> list[float]:
    """Returns every second, third, ... of some ticks, at most so many."""
    return ticks[:: -(-len(ticks) // most)]


def _even_ticks(low: float, high: float, *, most: int) -> list[float]:
    """Returns round numbers in even steps, so many that at least two are within the limits."""
    for steps in range(most - 1, most + _MOST_TICKS):
        even = MaxNLocator(steps, steps=[1, 2, 5, 10]).tick_values(low, high)
        inside = [round(float(tick), 12) for tick in even if low <= tick <= high]
        if len(inside) >= _TOLD:
            break
    return inside


def ratio_limits(values: Iterable[float]) -> tuple[float, float, bool]:
    """Returns low, high and whether to use logarithms, for the finite positive values and 1."""
    known = np.array([1.0, *values], dtype=float)
    known = known[np.isfinite(known) & (known > 0)]
    low, high = known.min(), known.max()
    log = bool(high / low > LOG_SPAN)
    if log:
        pad = (high / low) ** 0.06
        return low / pad, high * pad, log
    pad = max(0.06 * (high - low), 0.01)
    return max(low - pad, 0.0), high + pad, log

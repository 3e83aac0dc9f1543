"""Searchers: ask/tell algorithms that choose what to measure next."""

import importlib
from typing import Any

from kt_lab.errors import UnknownName

SEARCHERS = {
    "random": "kt_lab.search.random:RandomSearch",
    "pattern": "kt_lab.search.pattern:PatternSearch",
    "lfbo_pattern": "kt_lab.search.lfbo_pattern:LFBOPatternSearch",
    "tpe": "kt_lab.search.tpe:TPESearch",
}


def searchers() -> tuple[str, ...]:
    """Returns the names of the registered searchers, in the registry's order."""
    return tuple(SEARCHERS)


def get_searcher(name: str) -> type:
    """Returns a registered searcher's class; only its own module is imported.

    Raises:
        UnknownName: The registry does not hold the name.
    """
    if name not in SEARCHERS:
        raise UnknownName("searcher", name, SEARCHERS)
    module, _, attribute = SEARCHERS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def make_searcher(name: str, space, *, seed: int, budget=None, prior=None, **options: Any):
    """Returns a searcher over `space`, ready to be asked.

    Args:
        name: One of `searchers()`.
        space: What the searcher chooses from.
        seed: Fixes every random choice; >= 0.
        budget: The run's Budget; a searcher may plan by it, the loop enforces it.
        prior: What is known beforehand (Prior), or None.
        options: Fields of the searcher's `Options`.

    Raises:
        UnknownName: No such searcher, or no such option.
        UsageError: An option's value breaks its stated range, or the space is of a wrong kind.
    """
    return get_searcher(name)(space, seed=seed, budget=budget, prior=prior, **options)

"""A searcher class of the user's own, as text that any process makes it from again.

Text rather than a pickle, which would find a cell's class too: its hash says what ran, helpers
and constants included, and a reader of stored runs can read it.
"""

import hashlib
import json
import linecache
import sys
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from kt_lab.capture.source import Collector
from kt_lab.errors import UsageError
from kt_lab.search.base import Searcher


def searcher_source(cls: type) -> str:
    """Returns a module that holds the class, with all that it names; equal classes, equal text.

    A class of `__main__` is written out as it was defined, whatever was assigned to it since; one
    of a module is imported, and the hash of the user's own module noted.

    Raises:
        UsageError: It has no source, or names something that no other process can get.
    """
    gathered = Collector()
    gathered.value(cls, name="searcher")
    about = f"{cls.__name__}, captured by kt_lab: written anew from its source."
    return gathered.text(about=about, ending="__all__ = ['_kt_searcher']")


def source_hash(source: str) -> str:
    """Returns what names a source: 16 hex digits of its SHA-256."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def searcher_class(source: str) -> type:
    """Returns the class that `searcher_source` told, made anew once per process."""
    name = f"_kt_captured_{source_hash(source)}"
    module = ModuleType(name)
    sys.modules[name] = module  # dataclasses and pickle look it up
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), vars(module))
    return module._kt_searcher


def row_name(given: Any) -> str:
    """Returns what a row of an experiment is called where nobody named it."""
    algorithm = given[0] if isinstance(given, tuple | list) else given
    return str(getattr(algorithm, "name", "") or getattr(algorithm, "__name__", algorithm))


def row_of(given: Any) -> tuple[str, dict[str, Any], str | None]:
    """Returns what the facts call a searcher, its options, and its source if it has one.

    Raises:
        UsageError: It is neither a name nor a class, or its options are not JSON.
    """
    algorithm, options = given if isinstance(given, tuple | list) else (given, {})
    options = {k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}
    try:
        json.dumps(options)
    except TypeError:
        raise UsageError(
            "options of a run that is stored must be numbers, texts, flags or lists of them, got "
            f"{options} for {row_name(given)}"
        ) from None
    if isinstance(algorithm, str):
        return algorithm, options, None
    if not (isinstance(algorithm, type) and issubclass(algorithm, Searcher)):
        raise UsageError(
            f"a searcher must be a registered name or a subclass of Searcher, got {algorithm!r}; "
            "give the class itself, and its options beside it: (MySearcher, {'k': 3})"
        )
    source = searcher_source(algorithm)
    return f"{algorithm.__name__}@{source_hash(source)}", options, source

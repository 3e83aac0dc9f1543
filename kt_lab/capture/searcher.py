"""A searcher class of the user's own, as text that any process makes it from again.

Text rather than a pickle, which would find a cell's class too: its hash says what ran, helpers
and constants included, and a reader of stored runs can read it.
"""

import hashlib
import linecache
import sys
from functools import lru_cache
from types import ModuleType

from kt_lab.capture.source import Collector


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

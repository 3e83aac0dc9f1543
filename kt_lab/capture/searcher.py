"""A searcher class of the user's own, as text that any process makes it from again.

Text rather than a pickle, which would find a cell's class too: its hash says what ran, helpers
and constants included, and a reader of stored runs can read it.
"""

import dataclasses
import hashlib
import linecache
import sys
from functools import lru_cache
from types import ModuleType

from kt_lab.capture.source import Collector
from kt_lab.errors import UsageError


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
    text = gathered.text(about=about, ending="__all__ = ['_kt_searcher']")
    _require_same(cls, searcher_class(text))
    return text


def _require_same(cls: type, made: type) -> None:
    """Refuses a class whose source, run now, gives other values: a loop's, or a changed global."""
    here, there = ({**_values(each), **_values(each.Options)} for each in (cls, made))
    for name in here.keys() & there.keys():
        if repr(here[name]) != repr(there[name]):  # NaN is NaN
            raise UsageError(
                f"a captured class must be what its source gives, got {cls.__name__}.{name} = "
                f"{here[name]!r}, and {there[name]!r} from its source: what it names was changed "
                f"since; make {name} an option and pass ({cls.__name__}, "
                f"{{{name!r}: {here[name]!r}}}), or run the cell that defines the class again"
            )


def _values(cls: type) -> dict[str, object]:
    found = dict(vars(cls))
    if dataclasses.is_dataclass(cls):
        found |= {field.name: field.default for field in dataclasses.fields(cls)}
    kinds = int | float | str | tuple | None
    return {k: v for k, v in found.items() if isinstance(v, kinds) and not k.startswith("__")}


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

"""The text of a definition, also of one that only a notebook cell holds, and its scope."""

import ast
import inspect
import linecache
import re
import textwrap
from collections import ChainMap
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from kt_lab.errors import UsageError

# Class of a jitted function -> its decorator; in the interpreter another class stands in.
JITTED = {
    "JITFunction": "_kt_triton.jit",
    "InterpretedFunction": "_kt_triton.jit",
    "ConstexprFunction": "_kt_triton.constexpr_function",
    "GluonJITFunction": "_kt_gluon.jit",
}
_JIT_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")


def definition(value: Any, *, beside: Any = None) -> tuple[str, Mapping[str, Any]]:
    """Returns the text of a function or class, and what the names in it stand for.

    Args:
        value: A function made with def, a jitted one, or a class of `__main__`.
        beside: What names the value; a class without methods is looked for in the same cell.

    Raises:
        UsageError: Its source cannot be read.
    """
    if isinstance(value, type):
        return _class_source(value, beside)
    raw = plain(value)
    return _source(value, raw), scope_of(raw)


def plain(value: Any) -> FunctionType | None:
    """Returns the Python function under a jitted or decorated one; None if there is none."""
    while type(value).__module__.startswith("triton.") and hasattr(value, "fn"):
        value = value.fn
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def scope_of(raw: FunctionType) -> Mapping[str, Any]:
    """Returns what a function's free names stand for: its closure first, then its globals."""
    cells = {}
    for name, cell in zip(raw.__code__.co_freevars, raw.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not assigned yet: reported as a name that is not defined
            continue
    return ChainMap(cells, raw.__globals__)


def _source(value: Any, raw: FunctionType) -> str:
    """Returns the text of a definition; a jitted one keeps no decorator but its own."""
    decorator = JITTED.get(type(value).__name__)
    try:
        text = getattr(value, "src", None) if decorator else None  # what Triton itself compiles
        text = textwrap.dedent(text or inspect.getsource(raw)).strip()
        if ast.parse(text).body[0].name != raw.__name__:
            raise OSError("its file has changed since it was imported")
    except (OSError, TypeError, SyntaxError, AttributeError) as error:
        raise UsageError(
            f"a captured function must have source that can be read, got none for "
            f"{raw.__name__}: {error}; define it in a notebook cell or a file"
        ) from None
    if decorator is None:
        if isinstance(value, FunctionType) and value is not raw and text[0] != "@":
            raise UsageError(
                f"what wraps a captured function must stand above it as @..., got {raw.__name__} "
                "wrapped by a call; write it as a decorator, or define what the call returns"
            )
        return text
    settings = getattr(value, "kwargs", vars(value))
    chosen = ((k, settings.get(k)) for k in _JIT_OPTIONS)
    options = ", ".join(f"{k}={v!r}" for k, v in chosen if v)
    definition = text[re.search(r"^def\s", text, re.MULTILINE).start() :]
    return f"@{decorator}" + (f"({options})" if options else "") + f"\n{definition}"


def _class_source(cls: type, beside: Any) -> tuple[str, Mapping[str, Any]]:
    """Finds a class by the code of its methods: `inspect` finds no class of a notebook cell."""
    own = _methods(cls)
    for near in own or _methods(beside):
        lines, at = linecache.getlines(near.__code__.co_filename), near.__code__.co_firstlineno
        try:
            nodes = [n for n in ast.walk(ast.parse("".join(lines))) if isinstance(n, ast.ClassDef)]
        except SyntaxError:  # the file has changed since
            break
        named = [node for node in nodes if node.name == cls.__name__]
        found = [n for n in named if not own or n.lineno <= at <= n.end_lineno]
        if found:
            first = min(n.lineno for n in (found[-1], *found[-1].decorator_list))
            text = textwrap.dedent("".join(lines[first - 1 : found[-1].end_lineno]))
            return text.strip(), ChainMap(*map(scope_of, own or [near]))
    raise UsageError(
        f"a captured class must have methods whose source can be read, got none for {cls.__name__}"
        "; override one, or for new options alone pass (BestFirst, {'starts': 10}); or define it, "
        "in a notebook cell or a file, inside the class, or in the cell, that uses it"
    )


def _methods(value: Any) -> list[FunctionType]:
    """Returns the functions that a class (or function) holds and whose text is there.

    An enumeration holds functions of the module enum, which are not its own.
    """
    held = vars(value).values() if isinstance(value, type) else [value]
    found = [raw for item in held if (raw := plain(item)) is not None and raw.__module__ != "enum"]
    return [raw for raw in found if linecache.getlines(raw.__code__.co_filename)]

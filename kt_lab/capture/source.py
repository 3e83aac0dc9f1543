"""The source of functions and of everything that they name, as one module of its own.

Worker processes cannot unpickle what a notebook cell defines, and Triton reads the source of its
functions from a file. So functions are written out again, each after what it names: helpers by
their source, plain values as literals, modules and what installed modules hold by an import.
"""

import ast
import builtins
import hashlib
import inspect
import math
import symtable
import sys
import sysconfig
from collections.abc import Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kt_lab.capture.definitions import definition, plain
from kt_lab.errors import UsageError

_HEADER = (  # each where its last word is used: a searcher needs no torch
    "import sys as _kt_sys",
    "import torch as _kt_torch",
    "import triton as _kt_triton",
    "import triton.language as _kt_tl",
    "from kt_lab.capture.device import adopt as _kt_adopt",
    "from triton.experimental import gluon as _kt_gluon",
)
_EVERY_MODULE = {"__name__", "__file__", "__doc__", "__package__", "__spec__", "__loader__"}


class Collector:
    """Gathers functions with all that they name; a name stands for one thing throughout."""

    def __init__(self):
        """Starts with nothing."""
        self._bound: dict[str, Any] = {}
        self._parts: list[str] = []
        self._files: dict[str, str] = {}  # the user's own modules that are imported -> hashes

    def function(self, function: Any, *, role: str) -> str:
        """Takes a function up; returns the name that it has in the module.

        Args:
            function: A `def` or a jitted function, also one of a notebook cell.
            role: What it is to the caller ("reference"), for error messages.

        Raises:
            UsageError: It has no source, or names something that no other process can get.
        """
        raw = plain(function)
        if raw is None or raw.__name__ == "<lambda>" or inspect.ismethod(function):
            raise UsageError(
                f"{role} must be a function made with def, whose source can be read, got "
                f"{_kind(function)}; write `def {role}(...):` and call it in there"
            )
        self._bind(raw.__name__, function, by=role, define=True)
        return raw.__name__

    def value(self, value: Any, *, name: str) -> str:
        """Takes a value up under a name of its own; returns that name."""
        self._bind(f"_kt_{name}", value, by=name)
        return f"_kt_{name}"

    def expression(self, text: str, *, name: str, scope: Mapping[str, Any], by: str) -> None:
        """Adds `name = text`, an expression whose names are looked up in `scope`."""
        self._names(text, scope, by)
        self._parts.append(f"{name} = {text}")

    def strings(self) -> set[str]:
        """Returns the texts in what was gathered and in the user's own modules that it imports."""
        own = [inspect.getsource(sys.modules[name]) for name in self._files]
        nodes = ast.walk(ast.parse("\n".join([*self._parts, *own])))
        return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}

    def text(self, *, about: str, ending: str) -> str:
        """Returns the module: its header, what was gathered, and an ending."""
        body = "\n\n".join([*self._parts, ending])
        header = [line for line in _HEADER if line.rpartition(" ")[2] in body]
        files = [f"# imports {name}, sha256 {digest}" for name, digest in self._files.items()]
        return "\n\n".join([f'"""{about}"""', *sorted(files), "\n".join(header), body]) + "\n"

    def _bind(self, name: str, value: Any, *, by: str, define: bool = False) -> None:
        """Makes `name` stand for `value` in the module, with all that the value names.

        `define` asks for the source even where an import would do.
        """
        literal, raw = _literal(value), plain(value)
        made = value if isinstance(value, type) and value.__module__ == "__main__" else raw
        if name in self._bound:
            known = self._bound[name]
            if known is value or (literal is not None and literal == _literal(known)):
                return
            raise UsageError(
                f"a global must be one thing in all that is captured, got two for {name!r}, the "
                f"second in {by}; rename one of them"
            )
        self._bound[name] = value
        if isinstance(value, ModuleType):
            self._import_module(name, value, by)
        elif literal is not None:
            self._parts.append(f"{name} = {literal}")
        elif (
            made is None
            or made.__name__ == "<lambda>"
            or (_in_library(made.__module__) and not define)
        ):
            self._import_from(name, value, by)
        elif made.__name__ != name:
            self._bind(made.__name__, value, by=by, define=define)
            self._parts.append(f"{name} = {made.__name__}")
        else:
            text, scope = definition(value, beside=self._bound.get(by))
            self._names(text, scope, name)
            self._parts.append(text)

    def _names(self, text: str, scope: Mapping[str, Any], by: str) -> None:
        """Binds every global that a text refers to."""
        for name in sorted(n for n in _globals(text, scope) if not n.startswith("_kt_")):
            if name in scope and name not in _EVERY_MODULE:
                self._bind(name, scope[name], by=by)
                if isinstance(scope[name], ModuleType):
                    self._submodules(text, name, scope[name])
            elif not hasattr(builtins, name) and name not in _EVERY_MODULE:
                raise UsageError(
                    f"every name that a captured function uses must be defined, got {name!r} in "
                    f"{by}, which is not; run the cell that defines it, then capture again"
                )

    # -- imports --------------------------------------------------------------------------------

    def _import_module(self, name: str, module: ModuleType, by: str) -> None:
        self._importable(name, module, module, by)
        alias = "" if module.__name__ == name else f" as {name}"
        self._parts.append(f"import {module.__name__}{alias}")

    def _submodules(self, text: str, name: str, module: ModuleType) -> None:
        """Imports the submodules that are reached through a module: `import a` loads no a.b."""
        for node in ast.walk(ast.parse(text)):
            chain = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
            at = module
            for attribute in chain[1:] if chain[:1] == [name] else ():
                below = vars(at).get(attribute)
                if not isinstance(below, ModuleType) or not below.__name__.startswith(at.__name__):
                    break
                at = below
            line = f"import {at.__name__} as _kt_{at.__name__.replace('.', '_')}"
            if at is not module and line not in self._parts:
                self._parts.append(line)

    def _import_from(self, name: str, value: Any, by: str) -> None:
        attribute, home = getattr(value, "__name__", None), getattr(value, "__module__", None)
        places = {
            place: module
            for place, module in list(sys.modules.items())
            if place != "__main__" and getattr(module, "__dict__", {}).get(attribute) is value
        }
        if isinstance(attribute, str) and places:
            # Where it was made, if it can be had there; else the shortest name of a library.
            place = min(places, key=lambda p: (p != home, not _in_library(p), len(p), p))
            self._importable(name, value, places[place], by)
            alias = "" if attribute == name else f" as {name}"
            self._parts.append(f"from {place} import {attribute}{alias}")
            return
        raise _refusal(name, value, by)

    def _importable(self, name: str, value: Any, module: ModuleType, by: str) -> None:
        """Refuses what no other process can import; notes the content of a user's own module."""
        if not isinstance(getattr(module, "__spec__", None), ModuleSpec):
            raise _refusal(name, value, by)
        self._note(module)

    def _note(self, module: ModuleType) -> None:
        """Notes the content of a user's own module, and of those that it takes names from."""
        file, name = getattr(module, "__file__", None), module.__name__
        if not file or name in ("__main__", *self._files) or _in_library(name):
            return
        text = Path(file).read_bytes()
        plain = type(getattr(module.__spec__, "loader", None)) is SourceFileLoader
        if plain and _edited(module, text):  # pytest, for one, loads other code than it reads
            raise UsageError(
                f"a module must be loaded as its file stands, got {name}, which was edited since "
                f"({file}); importlib.reload({name}) and what imports from it, or restart"
            )
        self._files[name] = hashlib.sha256(text).hexdigest()
        for value in list(vars(module).values()):
            home = getattr(value, "__module__", None)
            home = value if isinstance(value, ModuleType) else sys.modules.get(str(home))
            if home is not None:
                self._note(home)


def _edited(module: ModuleType, text: bytes) -> bool:
    """Whether a function that a module defines is no longer what its file says."""
    try:
        told, todo = set(), [compile(text, module.__file__, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return True
    while todo:
        code = todo.pop()
        told.add(code)
        todo += [part for part in code.co_consts if isinstance(part, CodeType)]
    own = [v for v in vars(module).values() if getattr(v, "__module__", 0) == module.__name__]
    held = [item for v in own for item in (vars(v).values() if isinstance(v, type) else [v])]
    codes = [item.__code__ for item in held if isinstance(item, FunctionType)]
    return any(c not in told and c.co_filename == module.__file__ for c in codes)


def _in_library(module: str) -> bool:
    """Whether a module comes with Python or an installed package, and so can be imported."""
    if module.partition(".")[0] == "kt_lab":
        return True  # also where it is installed in place
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if module == "__main__" or not file:
        return module in sys.builtin_module_names
    path = Path(file).resolve()
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return bool(installed) or path.is_relative_to(Path(sysconfig.get_path("stdlib")).resolve())


def _globals(text: str, scope: Mapping[str, Any]) -> set[str]:
    """Returns the names that a text takes from outside, also in defaults and decorators.

    `class Options(Options)` inside a class takes a name from outside and then makes it its own.
    `global N` with `N += 1` takes it, though no symbol table says so; with `N = 1` it need not be
    there before.
    """
    names: set[str] = set()
    tables = [symtable.symtable(text, "captured", "exec")]
    added = {ast.unparse(n.target) for n in ast.walk(ast.parse(text)) if type(n) is ast.AugAssign}
    made: set[str] = set()
    while tables:
        table = tables.pop()
        hidden = scope if table.get_type() == "class" else ()
        read = [s for s in table.get_symbols() if s.is_referenced() or s.get_name() in added]
        names |= {s.get_name() for s in read if s.is_global() or s.get_name() in hidden}
        made |= {s.get_name() for s in read if s.is_declared_global() and s.is_assigned()}
        tables += table.get_children()
    return names - (made - added - {*scope})


def _literal(value: Any) -> str | None:
    """Returns an expression that makes an equal value again; None: there is none."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, float) and type(value) is float and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or type(value) in (bool, int, float, str, bytes):
        return repr(value)
    if type(value) in (tuple, list):
        parts = [_literal(item) for item in value]
        comma = "," if type(value) is tuple and len(parts) == 1 else ""
        inside = None if None in parts else ", ".join(parts) + comma
        opening, closing = "()" if type(value) is tuple else "[]"
        return None if inside is None else f"{opening}{inside}{closing}"
    if type(value) is dict:
        pairs = [(_literal(key), _literal(item)) for key, item in value.items()]
        broken = any(None in pair for pair in pairs)
        return None if broken else "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    if kind == "triton.language.core.constexpr":
        inner = _literal(value.value)
        return None if inner is None else f"_kt_tl.constexpr({inner})"
    if kind == "triton.language.core.dtype":
        return f"_kt_tl.dtype({value.name!r})"
    return {"torch.dtype": f"_kt_{value}", "torch.device": f"_kt_torch.{value!r}"}.get(kind)


def _kind(value: Any) -> str:
    if getattr(value, "__name__", "") == "<lambda>":
        return "a lambda"
    if inspect.isbuiltin(value):
        return f"the builtin {value.__name__}"
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"a {module}{kind.__qualname__}"


def _refusal(name: str, value: Any, by: str) -> UsageError:
    return UsageError(
        f"a captured definition may use globals that another process can make again (numbers, "
        f"text, dtypes, functions made with def, imports), got {name!r}, {_kind(value)}, in {by}; "
        f"make it inside {by}, return it from inputs() if it is a kernel's, or import a module "
        "that holds it"
    )

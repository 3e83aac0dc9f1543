"""The file that worker processes import for a kernel of the user's own."""

import ast
import hashlib
import inspect
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kt_lab.capture.definitions import JITTED, plain, scope_of
from kt_lab.capture.parts import OPTIONS, Parameters
from kt_lab.capture.source import Collector
from kt_lab.errors import UnknownName, UsageError
from kt_lab.store.files import replacing

# What a reference may ask of an argument without reading what is in it.
_OUTSIDES = {"dtype", "shape", "device", "ndim", "size", "stride", "numel", "new_empty"}


@dataclass(frozen=True)
class Request:
    """What the user gave to `capture`; see there.

    Attributes:
        fn: The jitted function, perhaps under `@triton.autotune` and `@triton.heuristics`.
        inputs: Makes the arguments.
        grid: Says how many programs to launch.
        reference: Computes what the outputs must hold.
        baseline: What is timed beside the kernel.
        outputs: Names of the arguments that the kernel writes.
        constexprs: Values that neither the space nor the extents give.
        restore: Names of tensors to restore beside those found out; None: no others; (): none.
    """

    fn: Any
    inputs: Callable
    grid: Callable
    reference: Callable
    baseline: Callable
    outputs: tuple[str, ...]
    constexprs: Mapping[str, Any]
    restore: tuple[str, ...] | None


def write_module(text: str, *, name: str) -> Path:
    """Writes a module unless it is there; returns its path.

    The file is named by its content, in $KT_LAB_CACHE/captured or ~/.cache/kt_lab/captured.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("KT_LAB_CACHE") or Path.home() / ".cache" / "kt_lab")
    path = cache.absolute() / "captured" / f"{name}-{digest}.py"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return path


def module_text(it: Request) -> str:
    """Returns the module of a request; equal requests give equal text."""
    jitted, rules, restored, zeroed = _unwrapped(it.fn)
    gathered = Collector()
    parts: dict[str, str] = {"fn": gathered.function(jitted, role="fn")}
    for role in ("inputs", "grid", "reference", "baseline"):
        parts[role] = gathered.function(getattr(it, role), role=role)
    names = []
    for number, text in enumerate(_heuristics(jitted, len(rules))):
        names.append(f"_kt_heuristics_{number}")
        gathered.expression(text, name=names[-1], scope=scope_of(plain(jitted)), by="heuristics")
    values = {name: gathered.value(v, name=name) for name, v in sorted(it.constexprs.items())}
    restored = (*(it.restore or ()), *_read(it.reference, it.outputs), *restored, *zeroed)
    restored = () if it.restore == () else tuple(dict.fromkeys(restored))
    parts |= {
        "outputs": repr(it.outputs),
        "restored": repr(restored),
        "zeroed": repr(tuple(name for name in zeroed if name in restored)),
        "constants": "{" + ", ".join(f"{k!r}: {v}" for k, v in values.items()) + "}",
        "heuristics": "(" + "".join(f"{name}, " for name in names) + ")",
    }
    lines = [f"    {name}={value}," for name, value in parts.items()]
    ending = "\n".join(["_kt_adopt(", "    _kt_sys.modules[__name__],", *lines, ")"])
    about = f"{parts['fn']}, captured by kt_lab: written anew from its source, not to be edited."
    return gathered.text(about=about, ending=ending)


def _unwrapped(fn: Any) -> tuple[Any, list[Mapping], tuple[str, ...], tuple[str, ...]]:
    """Returns the jitted function, its heuristics, and what is restored and zeroed for it."""
    rules, restored, zeroed, given = [], [], [], fn
    while type(fn).__name__ in ("Autotuner", "Heuristics"):
        if type(fn).__name__ == "Heuristics":
            rules.append(fn.values)
        else:
            hooked = fn.user_defined_pre_hook or fn.user_defined_post_hook
            if hooked or any(config.pre_hook for config in fn.configs):
                raise UsageError(
                    "a captured kernel must need no hooks, got an @triton.autotune with a "
                    "pre_hook or post_hook; pass the jitted function under it (`kernel.fn`) and "
                    "do in inputs() and with restore= what the hooks did"
                )
            restored += fn.restore_value
            zeroed += fn.reset_to_zero
        fn = fn.fn
    if type(fn).__name__ not in JITTED or plain(fn) is None:
        raise UsageError(
            f"fn must be a function under @triton.jit, got {given!r}; decorate it, or pass the "
            "jitted function itself rather than what launches it"
        )
    return fn, rules, tuple(restored), tuple(zeroed)


def _heuristics(jitted: Any, count: int) -> list[str]:
    """Returns the arguments of the `@triton.heuristics` over a function, as they are written."""
    if not count:
        return []
    calls = [d for d in _tree(plain(jitted)).decorator_list if isinstance(d, ast.Call)]
    found = [d for d in calls if ast.unparse(d.func).split(".")[-1] == "heuristics"]
    if len(found) != count:
        raise UsageError(
            f"heuristics must be written as decorators to be captured, got {count} of which "
            f"{len(found)} are; write @triton.heuristics(...) above {plain(jitted).__name__}"
        )
    return [ast.unparse(d.args[0] if d.args else d.keywords[0].value) for d in found]


def _tree(raw: Any) -> ast.FunctionDef:
    return ast.parse(textwrap.dedent(inspect.getsource(raw))).body[0]


def _read(reference: Callable, outputs: Iterable[str]) -> tuple[str, ...]:
    """Returns the outputs whose content a reference reads: the kernel works on them in place.

    Those are all where it does anything with its argument but name tensors of it one by one.
    """
    tree = _tree(plain(reference))
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Subscript)]
    argument = next(iter(inspect.signature(plain(reference)).parameters), None)
    named = {n.value for n in found if isinstance(n.slice, ast.Constant)}
    uses = {n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == argument}
    if uses - named:
        return tuple(outputs)
    passed: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _OUTSIDES:
            passed.add(node.value)
        if isinstance(node, ast.Call):
            passed |= {k.value for k in node.keywords if k.arg == "out"}
            if ast.unparse(node.func).endswith("_like"):
                passed |= set(node.args[:1])
    read = {getattr(n.slice, "value", None) for n in found if n not in passed}
    return tuple(name for name in outputs if name in read)


def check_names(
    it: Request, space: Iterable[str], extents: Iterable[str], parameters: Parameters
) -> None:
    """Raises UsageError for a name that nothing uses, or that something lacks.

    Args:
        it: The request.
        space: Names of the space's parameters.
        extents: Names of the extents.
        parameters: Those of the kernel.
    """
    of = f"of {plain(it.fn).__name__}"
    known = (*parameters.runtime, *parameters.constexprs)
    launching = {*known, *OPTIONS, *_strings(it.grid)}
    taken = list(inspect.signature(plain(it.inputs)).parameters.values())
    if not taken:
        raise UsageError("inputs must take the device first, got no parameter; inputs(device)")
    if not it.outputs:
        raise UsageError("a captured kernel must have at least one output to check, got none")
    making = {p.name for p in taken[1:]}
    needed = {p.name for p in taken[1:] if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    anything = any(p.kind is p.VAR_KEYWORD for p in taken)
    used = launching | making | _strings(it.reference) | _strings(it.baseline)
    named = {*known, *OPTIONS}
    laws = (  # what it is, the names, those allowed, those to suggest if they are others
        (f"a parameter of the space ({of}, its options or its grid)", space, launching, named),
        (f"a name in constexprs ({of} or its options)", it.constexprs, named, ()),
        (f"an output (argument {of})", it.outputs, set(parameters.runtime), ()),
        (f"a tensor to restore (argument {of})", it.restore or (), set(parameters.runtime), ()),
        ("an extent (used by inputs, kernel or grid)", () if anything else extents, used, making),
        ("a parameter of inputs() after the device (an extent)", needed, {*extents}, ()),
    )
    for kind, names, allowed, suggested in laws:
        for name in names:
            if name not in allowed:
                raise UnknownName(kind, name, suggested or allowed)


def _strings(function: Callable) -> set[str]:
    """Returns the texts in a function and in all that it names: every key that it may look up."""
    gathered = Collector()
    gathered.function(function, role="grid")
    return gathered.strings()

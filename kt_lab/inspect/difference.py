"""What two configs compile to, side by side, without what only says where it came from."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kt_lab.errors import UnknownName, UsageError
from kt_lab.inspect.compiled import TIMEOUT_S, compilers
from kt_lab.inspect.targets import Target, get_target
from kt_lab.trial import OK, Config
from kt_lab.workload import Subject

# Patterns, by kind of text, of what is taken out; a line of which nothing is left goes too.
_MLIR = r"^#loc.*$|\s*\bloc\((?:[^()\"]|\"[^\"]*\"|\([^()]*\))*\)"
_NOISE = {
    "ttir": _MLIR,
    "ttgir": _MLIR,
    "llir": r"^;.*$|^source_filename.*$|,? !dbg !\d+|^!\d+ = (?:distinct )?!DI.*$",
    "ptx": r"^\s*\.(?:file|loc)\s.*$|\s*//.*$",
    "amdgcn": r"^\s*\.(?:file|loc|ident)\s.*$|\s*;.*$",
    "sass": r"(?!)",  # nothing: addresses are labels already
}


def diff(
    subject: Subject,
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
    target: Target | str = "sm_90",
    kind: str = "ttgir",
    cache: Path | None = None,
) -> str:
    """Returns the unified diff of what two configs compile to; empty if that is the same.

    Args:
        subject: The workload and its device code.
        a: Values of every parameter.
        b: The same, of the other config.
        target: A Target or the name of one in TARGETS.
        kind: One of the target's kinds: ttir, ttgir, llir, and ptx, sass or amdgcn.
        cache: Folder of Triton's cache; None: as the environment says.

    Raises:
        UsageError: A config does not compile, or the target has no such text.
    """
    target = get_target(target)
    if kind not in target.kinds:
        raise UnknownName(f"kind of text on {target.name}", kind, target.kinds)
    with compilers(target, workers=1, cache=cache) as compiling:
        for at, config in enumerate((a, b)):
            task = {"subject": subject, "config": dict(config), "sms": target.sms, "asm": True}
            compiling.submit(at, task, timeout_s=TIMEOUT_S)
        outcomes = dict(compiling.next() for _ in range(2))
    texts = []
    for config, outcome in zip((a, b), (outcomes[0], outcomes[1]), strict=True):
        facts = outcome.value or {"status": outcome.kind, "error": outcome.error}
        if facts["status"] != OK:
            raise UsageError(
                f"a config must compile for {target.name} to be compared, got "
                f"{facts['status']} ({facts['error']}) for {Config(config)!r}"
            )
        if kind not in facts["asm"]:
            raise UsageError(f"{kind} needs cuobjdump and nvdisasm beside Triton, got none")
        texts.append(stripped(facts["asm"][kind], kind))
    return "\n".join(difflib.unified_diff(*texts, _name(a), _name(b), lineterm="", n=2))


def stripped(text: str, kind: str) -> list[str]:
    """Returns the lines of a compiled text without locations, comments and blank lines."""
    lines = re.sub(_NOISE[kind], "", text, flags=re.MULTILINE).splitlines()
    return [line.rstrip() for line in lines if line.strip()]


def _name(config: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in config.items())

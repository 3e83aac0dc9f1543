"""Errors: each states the violated law, the values and the next step."""

import copyreg
import difflib
import re
from collections.abc import Iterable
from numbers import Integral

_MANY = 12  # more names are not told one by one
_LISTED = ("kernel", "searcher", "workload")  # by kt-lab list


class KtLabError(Exception):
    """Base of every error that kt_lab raises on purpose."""


class UsageError(KtLabError, ValueError):
    """A mistake of the caller: the arguments break a stated law."""


class SpaceError(UsageError):
    """A search space, a parameter or a config breaks its law."""


class ConstraintError(SpaceError):
    """A constraint expression is outside the whitelisted language, or cannot be evaluated."""


class BudgetError(UsageError):
    """A budget that allows nothing."""


class LandscapeError(UsageError):
    """A landscape file is truncated, foreign, or does not belong to the space."""


class UnrecordedConfig(LandscapeError):
    """A valid config that the landscape has no measurement of."""


class ProgramError(UsageError):
    """A program, a move or a schedule breaks a law of the program dojo."""


class StoreError(UsageError):
    """A stored run, journal or study cannot be read or does not match its request."""


class GpuBusy(UsageError):
    """A GPU on which another run, of this process or another, is timing."""


class UnknownName(UsageError):
    """A name that no registry or options table holds; the nearest names are listed."""

    def __init__(self, kind: str, name: object, known: Iterable[str]):
        """Builds the message from the registry itself.

        Args:
            kind: What was looked up, in the singular ("searcher", "option of lfbo_pattern").
            name: The name that was given.
            known: Every name that would have been accepted; all are told if they are few.
        """
        known = sorted(set(known), key=_natural)
        told, hint = f"known: {', '.join(known) or 'none'}", did_you_mean(name, known)
        if len(known) > _MANY:
            some = "" if hint else f", such as {', '.join(known[:3])}"
            told = f"{len(known)} are known{f': kt-lab list {kind}s' if kind in _LISTED else some}"
        super().__init__(f"{kind} must be one of the known names, got {name!r}; {hint}{told}")

    def __reduce__(self):
        """Is pickled with its message: a process of a pool must be able to hand it on."""
        return copyreg.__newobj__, (type(self), *self.args)


def whole(name: str, value: object, *, low: int) -> int:
    """Returns a whole number of at least `low` as Python's own, or raises UsageError."""
    if isinstance(value, Integral) and not isinstance(value, bool) and value >= low:
        return int(value)
    raise UsageError(f"{name} must be a whole number >= {low}, got {name}={value!r}")


def whole_fields(of: object, **least: int) -> None:
    """Makes fields of a frozen dataclass whole numbers of at least so much, as `whole` does."""
    for name, low in least.items():
        object.__setattr__(of, name, whole(name, getattr(of, name), low=low))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Returns a question with the nearest of some names, and a space; nothing if none is near."""
    near = difflib.get_close_matches(str(name), list(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


def install(extra: str) -> str:
    """Returns the command that installs what an extra of kt_lab's needs; no index has kt_lab."""
    return f'pip install -c requirements.lock -e ".[{extra}]"'


def _natural(name: str) -> list:
    """Sorts names by the numbers in them: 2 before 16."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def require_path_part(what: str, name: str, *, hint: str = "") -> None:
    """Raises UsageError for a name that cannot be a part of a path everywhere."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.+-]{0,99}", name):
        raise UsageError(
            f"{what} is a part of paths, so it must be of at most 100 letters, digits and "
            f"_ . + -, got {name!r:.120}{hint}"
        )


def require_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises UnknownName for the first of some names that is none of the known ones."""
    if unknown := sorted(set(names) - set(known)):
        raise UnknownName(kind, unknown[0], set(known))

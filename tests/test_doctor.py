"""The doctor: it never raises, it drifts from nothing, and each gap comes with its remedy."""

import importlib.metadata
import json
import sys
from types import SimpleNamespace

import pytest

from kt_lab import cli, doctor
from kt_lab.doctor import Check, diagnose, satisfies
from kt_lab.errors import LandscapeError


def by_name(checks):
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("2.0", ">=2", True),
        ("2", ">=2.0", True),
        ("1.26.4", ">=2", False),
        ("2.13.0+cpu", ">=2.9", True),
        ("2.13.0+cpu", "==2.13.0", True),
        ("5.0.0", ">=5,<6", True),
        ("6.0.0rc1", "<6,>=5", False),
        ("4.5.0", ">=5,<6", False),
        ("13.615.71", "", True),
        ("10.1", ">=9.2", True),
    ],
)
def test_satisfies(version, wanted, expected):
    assert satisfies(version, wanted) is expected


def test_a_gap_and_only_a_gap_has_a_remedy():
    for check in diagnose():
        assert bool(check.fix) is (check.ok is not True), check


def test_core_packages_are_here():
    found = by_name(diagnose())
    for name in ("python", "numpy", "pandas", "pyarrow", "scipy", "scikit-learn", "optuna"):
        assert found[name].ok is True
        assert found[name].purpose == "everything"


def test_checks_of_one_purpose_stand_together():
    purposes = [check.purpose for check in diagnose()]
    starts = [p for p, before in zip(purposes, [None, *purposes], strict=False) if p != before]
    assert len(starts) == len(set(starts))
    assert starts[0] == "everything"


def test_a_missing_package_fails_only_what_needs_it(monkeypatch):
    known = importlib.metadata.version

    def version(name):
        if name in ("optuna", "jupyterlab"):
            raise importlib.metadata.PackageNotFoundError(name)
        return {"seaborn": "4.8.0", "matplotlib": None}.get(name, known(name))

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = by_name(diagnose())
    assert found["optuna"].ok is False
    assert found["jupyterlab"].ok is None
    assert found["matplotlib"].found == "a broken installation"
    assert found["jupyterlab"].fix == 'pip install -c requirements.lock -e ".[lab]"'


def test_an_unfit_version_is_named_with_what_is_wanted(monkeypatch):
    known = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "4.5.0" if name == "optuna" else known(name)
    )
    check = by_name(diagnose())["optuna"]
    assert check.ok is False
    assert check.found.startswith("4.5.0, but kt_lab needs ")
    assert "<6" in check.found


def test_a_checkout_that_is_not_installed_is_told_how(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    check = by_name(diagnose())["kt_lab"]
    assert check.ok is False
    assert check.fix.startswith("pip install ")


def nvml(*, names=(), failing=None):
    """A stand-in for nvidia-ml-py with some GPUs, or failing in one call."""
    error = type("NVMLError", (Exception,), {})

    def call(name, value):
        def answer(*_):
            if name == failing:
                raise error("broken")
            return value

        return answer

    return SimpleNamespace(
        NVMLError=error,
        nvmlInit=call("nvmlInit", None),
        nvmlShutdown=call("nvmlShutdown", None),
        nvmlDeviceGetCount=call("nvmlDeviceGetCount", len(names)),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda index: names[index],
        nvmlSystemGetDriverVersion=call("nvmlSystemGetDriverVersion", b"580.1"),
    )


@pytest.mark.parametrize(
    ("module", "ok", "found"),
    [
        (
            nvml(names=["NVIDIA H100", b"NVIDIA H200"]),
            True,
            "NVIDIA H100, NVIDIA H200, driver 580.1",
        ),
        (nvml(), None, "none, driver 580.1"),
        (nvml(failing="nvmlInit"), None, None),
        (nvml(failing="nvmlSystemGetDriverVersion"), None, "unreadable: broken"),
        (None, None, "unknown, nvidia-ml-py is missing"),
    ],
)
def test_the_gpu_is_named_or_missed_without_an_error(monkeypatch, module, ok, found):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    check = by_name(diagnose())["NVIDIA GPU"]
    assert (check.ok, check.found) == (ok, found)


@pytest.mark.parametrize(
    ("version", "names", "ok"),
    [("2.13.0+cpu", ["NVIDIA H100"], None), ("2.13.0+cpu", [], True), ("2.13.0", ["A100"], True)],
)
def test_a_torch_without_cuda_is_unfit_where_there_is_a_gpu(monkeypatch, version, names, ok):
    known = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: version if name == "torch" else known(name)
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml(names=names))
    found = {check.purpose: check for check in diagnose() if check.name == "torch"}
    assert found["measuring on a GPU"].ok is ok
    assert found["CPU programs"].ok is True
    if ok is None:
        assert found["measuring on a GPU"].found == "2.13.0+cpu, built without CUDA"
        assert found["measuring on a GPU"].fix.startswith("pip uninstall -y torch && pip install")


def test_landscapes_and_workloads_are_counted_apart(monkeypatch):
    found = [("a/1", "h100"), ("a/1", "h200"), ("a/2", "h200")]
    entries = [SimpleNamespace(workload=key, gpu=gpu, configs=500) for key, gpu in found]
    monkeypatch.setattr("kt_lab.landscape.landscapes", lambda: entries)
    told = by_name(diagnose())["landscapes"].found
    assert told == "3 landscapes of 2 workloads on h100, h200, 1,500 configs"


def test_broken_landscapes_are_reported(monkeypatch):
    def landscapes():
        raise LandscapeError("a manifest must hold kernel")

    monkeypatch.setattr("kt_lab.landscape.landscapes", landscapes)
    check = by_name(diagnose())["landscapes"]
    assert check.ok is False
    assert check.found == "unreadable: a manifest must hold kernel"


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (None, 0), (False, 1)])
def test_the_exit_code_counts_only_what_everything_needs(monkeypatch, capsys, ok, code):
    checks = [Check("thing", "everything", ok, None, "" if ok else "get it")]
    monkeypatch.setattr("kt_lab.commands.doctor.diagnose", lambda: checks)
    assert cli.main(["doctor"]) == code
    out = capsys.readouterr().out
    assert ("mend: get it" in out) is (ok is not True)
    assert cli.main(["doctor", "--json"]) == code
    assert json.loads(capsys.readouterr().out)[0]["ok"] is ok


def test_every_extra_that_a_user_installs_has_a_purpose():
    extras = set(importlib.metadata.metadata("kt_lab").get_all("Provides-Extra"))
    assert extras - {"dev"} == set(doctor._PURPOSES) - {""}

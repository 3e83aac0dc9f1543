"""What this machine has of what kt_lab needs, and the command that mends each gap.

Nothing heavy is imported: versions come from the installed packages' metadata, so that a broken
torch cannot take the diagnosis down.
"""

import importlib.metadata
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kt_lab.errors import KtLabError, install

_EVERYTHING = "everything"
_MEASURING = "measuring on a GPU"
# extra of pyproject.toml -> what it is for, in the order of the report; "" is the core.
_PURPOSES = {
    "": _EVERYTHING,
    "lab": "notebooks, widgets and figures",
    "gpu": _MEASURING,
    "programs": "CPU programs",
    "peers": "comparing with other tuners",
    "dask": "experiments on a cluster",
    "tvm": "comparing programs with TVM",
    "llm": "programs as a language model reads them",
}
_REQUIREMENT = re.compile(r"([\w.-]+)\s*([^;]*)(?:;(.*))?")
_EXTRA = re.compile(r"extra == ['\"]([\w-]+)['\"]")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked for.

    Attributes:
        name: What was looked for.
        purpose: What needs it ("everything", "notebooks, widgets and figures"...).
        ok: True: here and fit. False: missing or unfit, and everything needs it. None: missing
            or unfit, but only its purpose suffers.
        found: Version, path or description; None when nothing was found.
        fix: The command that mends it; empty when there is nothing to mend.
    """

    name: str
    purpose: str
    ok: bool | None
    found: str | None
    fix: str = ""


def diagnose() -> list[Check]:
    """Checks Python, packages, GPU, compiler, browser and recorded landscapes; never raises."""
    packages, gpu = _packages(), _gpu()
    if gpu.ok:
        packages = map(_for_gpu, packages)
    checks = [_python(), *packages, *_landscapes(), gpu, *_tools()]
    order = list(_PURPOSES.values())
    known = {purpose: place for place, purpose in enumerate(order)}
    return sorted(checks, key=lambda check: known.get(check.purpose, len(order)))


def _python() -> Check:
    ok = sys.version_info >= (3, 11)
    fix = "" if ok else "install Python 3.11 or newer and make the environment anew"
    return Check("python", _EVERYTHING, ok, sys.version.split()[0], fix)


def _packages() -> Iterator[Check]:
    """Checks what kt_lab's own metadata requires, so that no second list can drift."""
    try:
        requirements = importlib.metadata.requires("kt_lab") or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("kt_lab", _EVERYTHING, False, None, install("lab"))
        return
    for requirement in requirements:
        name, wanted, marker = _REQUIREMENT.fullmatch(requirement).groups(default="")
        extra = "".join(_EXTRA.findall(marker)[:1])
        elsewhere = "sys_platform" in marker and f'"{sys.platform}"' not in marker
        if extra in _PURPOSES and not elsewhere:
            yield _package(name, wanted.strip(), extra)


def _package(name: str, wanted: str, extra: str) -> Check:
    fix = install(extra).replace("[]", "")
    absent = None if extra else False
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, _PURPOSES[extra], absent, None, fix)
    if not found:  # what an installation that was cut off leaves behind
        return Check(name, _PURPOSES[extra], absent, "a broken installation", fix)
    if satisfies(found, wanted):
        return Check(name, _PURPOSES[extra], True, found)
    return Check(name, _PURPOSES[extra], absent, f"{found}, but kt_lab needs {wanted}", fix)


def _for_gpu(check: Check) -> Check:
    """A torch that was built without CUDA is fit for CPU programs, but not for the GPU here."""
    built = (check.name, check.purpose, (check.found or "")[-4:])
    if built != ("torch", _MEASURING, "+cpu"):
        return check
    fix = f"pip uninstall -y torch && {install('gpu')}"
    return replace(check, ok=None, found=f"{check.found}, built without CUDA", fix=fix)


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is in a range of plain releases (">=5,<6"); local parts are ignored.

    Only the comparisons that pyproject.toml uses are known: >=, <, ==.
    """
    release = _release(version)
    for clause in filter(None, (part.strip() for part in wanted.split(","))):
        sign, bound = re.fullmatch(r"(>=|<|==)\s*(.+)", clause).groups()
        other = _release(bound)
        length = max(len(release), len(other))
        left, right = (v + (0,) * (length - len(v)) for v in (release, other))
        if not {">=": left >= right, "<": left < right, "==": left == right}[sign]:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    """Returns the leading numbers of a version: "2.13.0+cpu" -> (2, 13, 0)."""
    return tuple(map(int, re.match(r"\d+(?:\.\d+)*", version).group().split(".")))


def _gpu() -> Check:
    fix = "install NVIDIA's driver on a machine with a GPU; replay needs neither"
    try:
        import pynvml
    except ImportError:
        return Check(
            "NVIDIA GPU", _MEASURING, None, "unknown, nvidia-ml-py is missing", install("gpu")
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return Check("NVIDIA GPU", _MEASURING, None, None, fix)
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        names = [_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        return Check("NVIDIA GPU", _MEASURING, None, f"unreadable: {error}", "run nvidia-smi")
    finally:
        pynvml.nvmlShutdown()
    if not names:
        return Check("NVIDIA GPU", _MEASURING, None, f"none, driver {driver}", fix)
    return Check("NVIDIA GPU", _MEASURING, True, f"{', '.join(names)}, driver {driver}")


def _text(value: str | bytes) -> str:
    """Older releases of nvidia-ml-py answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _tools() -> Iterator[Check]:
    tools = (
        ("C compiler", _MEASURING, ("gcc", "clang", "cc"), "apt-get install gcc"),
        (
            "chromium",
            "browser tests",
            ("chromium", "chromium-browser", "google-chrome"),
            "apt-get install chromium",
        ),
    )
    for name, purpose, programs, fix in tools:
        found = next(filter(None, map(shutil.which, programs)), None)
        yield Check(name, purpose, True if found else None, found, "" if found else fix)


def _landscapes() -> Iterator[Check]:
    """Counts the recorded landscapes; a broken file is reported, not raised."""
    fix = "git checkout -- data, or set KT_LAB_DATA to the folder that holds landscapes/"
    try:
        from kt_lab.landscape import landscapes

        found = landscapes()
        configs = sum(entry.configs for entry in found)
    except (ImportError, KtLabError, OSError, ValueError, KeyError, TypeError) as error:
        yield Check("landscapes", _EVERYTHING, False, f"unreadable: {error}", fix)
        return
    if not found:
        yield Check("landscapes", _EVERYTHING, False, None, fix)
        return
    gpus = ", ".join(sorted({entry.gpu for entry in found}))
    workloads = len({entry.workload for entry in found})
    text = f"{len(found)} landscapes of {workloads} workloads on {gpus}"
    yield Check("landscapes", _EVERYTHING, True, f"{text}, {configs:,} configs")

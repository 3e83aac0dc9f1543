"""The subcommands of `kt-lab`, one module each; kt_lab.cli has the table of them.

What several of them take is here: numbers, folders, and kernels that a file captures.
"""

import argparse
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from kt_lab.errors import UnknownName, UsageError
from kt_lab.kernels import REGISTRY, workload_of_shape, workloads
from kt_lab.workload import Kernel, Workload


def require_least(args: argparse.Namespace, **least: float) -> None:
    """Raises UsageError for the first option that was given a smaller number than it may have."""
    for name, floor in least.items():
        value = getattr(args, name)
        if value is not None and not value >= floor:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} must be >= {floor}, got {value}")


def require_folder(option: str, path: Path | None) -> None:
    """Raises UsageError where an option's folder cannot be made, since a file stands there."""
    if path and path.exists() and not path.is_dir():
        raise UsageError(f"{option} must be a folder, or a name that is free, got {path}")


def add_from(parser: argparse.ArgumentParser) -> None:
    """Adds the file that captures what a command names."""
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE",
        help="Python file that captures the kernel named (kt_lab.capture); without it, the kernel "
        "is one that ships",
    )  # fmt: skip


def kernel_from(source: Path | None, name: str) -> Kernel | None:
    """Returns the kernel of a file that `kernel` or `kernel/shape` names; None without a file.

    Raises:
        UsageError: There is no such file, or it captures nothing.
        UnknownName: It captures no kernel of that name.
    """
    if source is None:
        return None
    known, wanted = kernels_from(source), name.partition("/")[0]
    if wanted not in known:
        raise UnknownName(f"kernel of {source}", wanted, known)
    return known[wanted]


def kernels_from(source: Path | None) -> dict[str, Kernel]:
    """Returns the kernels that a file captures, by name; none without a file.

    The file is imported, as another module would: what is below `if __name__ == "__main__"` does
    not run.

    Raises:
        UsageError: There is no such file, or it captures nothing.
    """
    if source is None:
        return {}
    if not source.is_file():
        raise UsageError(f"--from must name a Python file that is there, got {source}")
    known = {kernel.name: kernel for kernel in _captured(source)}
    if not known:
        raise UsageError(
            f"{source} must capture a kernel at its top level, got none; "
            "write kernel = kt_lab.capture.capture(...) there"
        )
    return known


def workloads_named(names: Iterable[str], kernel: Kernel | None) -> list[Workload]:
    """Returns the workloads that names of kernels and of shapes stand for.

    Args:
        names: `softmax`, for all its workloads, or any shape: `softmax/1000x777`.
        kernel: That all of them are of; None: the registered ones.
    """
    found: list[Workload] = []
    for name in names:
        if kernel is not None and name.partition("/")[0] != kernel.name:
            law = "a command takes one captured kernel at a time"
            raise UsageError(f"{law}, got {name} beside {kernel.name}; run it for each")
        if kernel is not None and name == kernel.name:
            found += kernel.workloads
        elif kernel is None and name in REGISTRY:
            found += workloads(name)
        else:
            found.append(workload_of_shape(name, kernel))
    return found


def _captured(source: Path) -> list[Kernel]:
    module_name = f"_kt_lab_from_{source.stem}"
    spec = importlib.util.spec_from_file_location(module_name, source)
    if spec is None or spec.loader is None:
        raise UsageError(f"--from must name a Python file, got {source}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # where functions are looked for that a file defines
    sys.path.insert(0, str(source.resolve().parent))  # files beside it, as a script would
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if isinstance(value, Kernel)]

"""Kernels that nobody designed a searcher on, captured like a user's own, and recorded.

Their landscapes are not shipped. What is recorded is searched like any other:

    kt-lab evidence captured --directory DIR/landscapes
    KT_LAB_DATA=DIR kt-lab evidence --out data/evidence/cold-captured.json cold --kernels ...
"""

import argparse
import hashlib
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from kt_lab.errors import require_known
from kt_lab.evidence.markdown import grid
from kt_lab.evidence.resuming import Rows, short
from kt_lab.landscape import Landscape
from kt_lab.provenance import provenance
from kt_lab.record import RecordOptions, record
from kt_lab.runners.gpu.facts import cuda_device, gpu_slug
from kt_lab.study import levels
from kt_lab.trial import OK
from kt_lab.workload import Kernel, Workload

_MODULES = (
    "attention", "choices", "gathers", "products", "ranks", "scans", "shares", "signals", "updates"
)  # fmt: skip


def kernels() -> dict[str, Kernel]:
    """Returns the captured kernels by name; imports torch and Triton."""
    modules = [import_module(f"{__name__}_{name}") for name in _MODULES]
    return {kernel.name: kernel for module in modules for kernel in module.KERNELS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to record, where, and with how many processes."""
    parser.add_argument("--directory", type=Path, required=True, help="where landscapes go")
    parser.add_argument("--kernels", nargs="+", help="default: all of them")
    parser.add_argument("--visits", type=int, default=2)
    parser.add_argument("--workers", type=int, help="compile processes")
    parser.add_argument("--gpu", help="only tell what is recorded of it, without one: h200")
    parser.add_argument("--again", action="store_true", help="tell what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Records what is missing, and tells what is there; goes on where it was stopped."""
    known = kernels()
    require_known("captured kernel", args.kernels or (), known)
    rows = Rows(args.out, {"visits": args.visits}, provenance(), again=args.again)
    options = RecordOptions(visits=args.visits, compile_workers=args.workers, contention=0)
    gpu = args.gpu or _slug()
    for name in args.kernels or known:
        for workload in known[name].workloads:
            path = args.directory / name / gpu / f"{workload.name}.parquet"
            if args.gpu is None and not path.exists():
                record([workload], directory=args.directory, options=options, kernel=known[name])
            told = partial(_row, known[name], workload, path)
            rows.once({"workload": workload.key, "gpu": gpu}, told)
    return rows.result


def _slug() -> str:
    import torch

    return gpu_slug(torch.cuda.get_device_properties(cuda_device(0)).name)


def _row(kernel: Kernel, workload: Workload, path: Path) -> dict[str, Any]:
    landscape = Landscape.load(path)
    landscape.require(kernel.space(workload))
    default = landscape.index(landscape.space.default)
    return {
        "kernel": kernel.name,
        "says": kernel.description,
        "configs": len(landscape.table),
        "failed": int((landscape.status != OK).sum()),
        **levels(landscape),
        "default_us": short(float(landscape.latency_us[default])),
        "recorded": landscape.manifest["provenance"],
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest()[:12],
    }


def report(result: Mapping[str, Any]) -> str:
    """Returns a table of what was recorded, for people and for RESULTS.md."""
    heads = ["workload", "what it does", "configs (failed)"]
    heads += ["µs, fastest", "default", "noise floor"]
    return grid(heads, map(_cells, result["rows"]))


def _cells(row: Mapping[str, Any]) -> list[str]:
    default = row["default_us"]
    return [
        f"`{row['workload']}`",
        row["says"].rstrip("."),
        f"{row['configs']:,} ({row['failed']:,})",
        f"{row['optimum_us']:.1f}",
        "fails" if default is None else f"{default / row['optimum_us']:.2f}x",
        f"{row['noise_floor']:.3f}",
    ]

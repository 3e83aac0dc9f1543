"""Lists what ships with kt_lab: kernels, workloads, searchers or landscapes."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

_Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `kt-lab list`."""
    parser.add_argument("what", choices=sorted(_ROWS), help="which registry to list")
    parser.add_argument("--json", action="store_true", help="print a JSON list of objects")


def run(args: argparse.Namespace) -> int:
    """Prints the rows as a table or as JSON."""
    rows = _ROWS[args.what]()
    if args.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        print(aligned(rows))
    else:
        from kt_lab.landscape import data_directory

        print(f"no {args.what} found in {data_directory() / args.what}: does KT_LAB_DATA fit?")
    return 0


def aligned(rows: Sequence[_Row]) -> str:
    """Formats rows that share their keys as columns of text, numbers to the right."""
    table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    right = [isinstance(value, int) for value in rows[0].values()]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in table
    )


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def _kernels() -> list[_Row]:
    from kt_lab.kernels import kernels

    return [
        {"kernel": k.name, "workloads": len(k.workloads), "description": k.description}
        for k in kernels()
    ]


def _workloads() -> list[_Row]:
    from kt_lab.kernels import get_kernel, workloads

    return [
        {
            "workload": w.key,
            "dtype": w.dtype,
            "configs": get_kernel(w.kernel).space(w).size,
            "extents": dict(w.extents),
            "source": w.source,
        }
        for w in workloads()
    ]


def _searchers() -> list[_Row]:
    from kt_lab.search import get_searcher, searchers
    from kt_lab.search.peers import PEERS

    rows = []
    for name in (*searchers(), *PEERS):
        kind = get_searcher(name)
        needs = kind.needs + (" (extra peers)" if name in PEERS else "")
        summary = (kind.__doc__ or "").partition("\n")[0]
        rows.append({"searcher": name, "needs": needs, "summary": summary})
    return rows


def _landscapes() -> list[_Row]:
    from kt_lab.landscape import landscapes

    return [
        {"landscape": e.workload, "gpu": e.gpu, "configs": e.configs, "path": str(e.path)}
        for e in landscapes()
    ]


_ROWS = {
    "kernels": _kernels,
    "workloads": _workloads,
    "searchers": _searchers,
    "landscapes": _landscapes,
}

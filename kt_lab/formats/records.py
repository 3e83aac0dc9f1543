"""One config's record, whichever file it is in, and the landscape that a file's records make."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.formats.axes import space_of
from kt_lab.formats.text import member, number, require
from kt_lab.landscape import Landscape
from kt_lab.runners.gpu.facts import gpu_slug
from kt_lab.runners.replay import contention_factor
from kt_lab.trial import OK, STATUSES

OWN = "kt_lab"  # under this name, and names that begin with it, stands what only kt_lab reads
OBJECTIVES = {
    "times": "samples are the recorded repeats, a cold first launch among them; else one time",
    "time": "the one sample is the recorded time: Kernel Tuner's mean, a cold launch included",
}
_COSTS = ("compile_time", "verification_time", "benchmark_time", "framework_time")
FIELDS = ("time", "times", *_COSTS)  # what a record is read for, beside its config
_UNKNOWN = ("compile_cpu_s", "registers", "spills", "shared_bytes")
_LAW = "visits must number the samples, every working config's from 0 without a gap"


def landscape_of(
    records: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    axes: Mapping[str, Sequence[Any]],
    facts: Mapping[str, Any],
    *,
    objective: str = "times",
    restrictions: Sequence[str] = (),
    default: Mapping[str, Any] | None = None,
    kernel: Any = None,
    workload: Any = None,
    gpu: Any = None,
    protocol: Mapping[str, str] | None = None,
) -> Landscape:
    """Returns the landscape of one file's records; `read_cache` tells the options.

    Args:
        records: A config and its fields each, in Kernel Tuner's names and milliseconds, with its
            status, its error and where it is.
        axes: Values of every parameter.
        facts: For the manifest: file and format at least.
        objective: One of OBJECTIVES.
        restrictions: Expressions that the configs obey.
        default: The default config; None: the first that works.
        kernel: Name of the kernel.
        workload: Its name within the kernel.
        gpu: The GPU; if nothing is left of it as a name, the file's name.
        protocol: How its samples were taken, where the file says so.
    """
    if objective not in OBJECTIVES:
        raise UsageError(f"objective must be {' or '.join(OBJECTIVES)}, got {objective!r}")
    kernel, gpu, where = named(kernel), named(gpu), facts["file"]
    gpu = re.sub(r"(_T4)?\.json.*$", "", where) if gpu == "unknown" else gpu
    table, visits = _table([fields for _, fields in records], kernel, objective, where)
    configs = [config for config, _ in records]
    default = default or configs[int((table["status"] == OK).argmax())]
    space, told = space_of(axes, configs, restrictions=restrictions, default=default)
    table[[f"p_{name}" for name in space.names]] = space.rows(configs)
    if protocol is None or objective == "time":
        protocol = {"name": f"{facts['format']}/{objective}", "rules": OBJECTIVES[objective]}
    manifest = {
        "kernel": kernel,
        "workload": f"{kernel}/{named(workload)}",
        "gpu": gpu_slug(gpu),
        "dtype": "unknown",
        "source": where,
        "space": space.describe(),
        "fingerprint": space.fingerprint,
        "protocol": dict(protocol),
        "visits": visits,
        "flush_us": 0.0,
        "contention": None,
        "imported": {**facts, "restrictions": told},
    }
    return Landscape(table, manifest)


def _table(
    records: Sequence[Mapping[str, Any]], kernel: str, objective: str, where: str
) -> tuple[pd.DataFrame, int]:
    """Returns a landscape's table, but for the configs, and how many visits it tells of."""
    rows = [
        _row(fields, f"{kernel}-{place}", objective, fields["where"])
        for place, fields in enumerate(records)
    ]
    visits = {frozenset(row["visit"]) for row in rows if row["status"] == OK}
    law, found = "a landscape must hold a config that works", f"{len(rows):,} that do not"
    require(visits, law, found, f"{where}; measure until one does")
    count = min(100, max(map(len, visits)))
    require(visits == {frozenset(range(count))}, _LAW, visits, where)
    return pd.DataFrame(rows), count


def _row(fields: Mapping[str, Any], identity: str, objective: str, where: str) -> dict[str, Any]:
    """Returns a landscape's row, but for the config, from fields in milliseconds."""
    status = fields.get(f"{OWN}_status", fields["status"])
    require(status in STATUSES, f"status must be one of {STATUSES}", status, where)
    good = status == OK
    times = member({"times": [], **fields}, "times", list, where)
    # Some write 0 for what did not run.
    times = [1e3 * number(ms, "times (ms)", where, low=1e-9 * good) for ms in times]
    single = not times or objective == "time"
    samples = times if good else []
    if good and (single or "time" in fields):
        told = 1e3 * number(fields.get("time"), "time (ms)", where, low=1e-9)
        samples = [told] if single else samples
        near = min(times or [told]) / 2 <= told <= 2 * max(times or [told])
        law = "a time must be as long as its repeats, all in one unit (T4: metadata.timeunit)"
        require(near, law, f"{told / 1e3:g} ms beside {[t / 1e3 for t in times[:5]]}", where)
    visit = [0] * len(samples) if single else fields.get(f"{OWN}_visit", [0] * len(samples))
    whole = isinstance(visit, list) and [type(v) for v in visit] == [int] * len(samples)
    require(whole, _LAW, visit, where)
    costs = (1e-3 * number(fields.get(n) or 0.0, f"{n} (ms)", where) for n in _COSTS)
    compile_s, check_s, *spent = costs
    beyond_s = max(0.0, sum(spent) - sum(times) * 1e-6)
    error = member({f"{OWN}_error": fields["error"], **fields}, f"{OWN}_error", str, where)
    return dict.fromkeys(_UNKNOWN) | {
        "status": status,
        "error": error.encode(errors="replace").decode(),
        "samples_us": samples,
        "visit": visit,
        "specialisation": identity,  # its own: nobody looked which binaries are the same
        "code_hash": identity,
        "grid": "",
        "compile_s": compile_s,
        "compile_workers": 1,
        "check_s": check_s,
        "timing_overhead_s": beyond_s if good else None,
        "failure_s": None if good else check_s + sum(spent) or None,
    }


def named(text: Any) -> str:
    """Returns text as a name that a folder may have too; "unknown" if nothing is left."""
    text = str(text) if isinstance(text, str | int) else ""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip(".-") or "unknown"


def records_of(landscape: Landscape) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Returns a landscape's recorded configs, in order, each with its fields as in a cache.

    Times are in milliseconds; a failed config has none. A compilation takes what replay charges
    where nothing else compiles: no other tuner knows how many did when it was recorded.
    """
    told = landscape.manifest
    flush_us, by_cpu = float(told.get("flush_us") or 0.0), told.get("compile_clock") == "cpu"
    slower = contention_factor(None if by_cpu else told.get("contention"))
    recorded = landscape.space.enumerate()[landscape.table.index.to_numpy()]
    configs = landscape.space.configs(recorded)
    rows = landscape.table.to_dict("records")
    records = []
    for config, row in zip(configs, rows, strict=True):
        samples = np.asarray(row["samples_us"], dtype=np.float32).astype(float)
        names = ("compile_s", "check_s", "timing_overhead_s", "failure_s")
        spent = {n: 0.0 if pd.isna(row[n]) else float(row[n]) for n in names}
        compile_s, check_s, overhead_s, failure_s = spent.values()
        compile_s /= slower(row["compile_workers"])
        if by_cpu and pd.notna(row["compile_cpu_s"]):
            compile_s = float(row["compile_cpu_s"])
        launches_s = (samples.sum() + flush_us * len(samples)) * 1e-6
        good = row["status"] == OK
        there = (check_s, launches_s + overhead_s) if good else (0.0, failure_s)
        costs = (compile_s, *there, 0.0)
        fields: dict[str, Any] = {n: 1e3 * float(s) for n, s in zip(_COSTS, costs, strict=True)}
        if good:
            times = (samples / 1e3).tolist()
            visit = [int(v) for v in row["visit"]]
            fields |= {"time": statistics.median(times), "times": times, f"{OWN}_visit": visit}
        else:
            fields |= {f"{OWN}_status": row["status"], f"{OWN}_error": row["error"]}
        records.append((config, {"status": row["status"]} | fields))
    return records


def told_by(landscape: Landscape) -> dict[str, Any]:
    """Returns what a file says of a landscape under kt_lab's name, mostly for people."""
    space, default = landscape.space, landscape.space.default
    return {
        "default": dict(default) if space.index(default) in landscape.table.index else None,
        "kernel": landscape.kernel,
        "workload": landscape.workload.partition("/")[2],
        "gpu": landscape.gpu,
        "constraints": {c.canonical: c.sentence for c in space.constraints},
        "constants": space.constants,
        "protocol": landscape.manifest.get("protocol"),
    }


def hints(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the options of `read_cache` that a file tells under kt_lab's name, if it has it."""
    own = member({OWN: {}, **found}, OWN, dict, where)
    told = {k: own[k] for k in ("default", "kernel", "workload", "gpu") if own.get(k)}
    if own.get("protocol") is None:
        return told
    protocol = member(own, "protocol", dict, where)
    return told | {"protocol": {n: member(protocol, n, str, where) for n in ("name", "rules")}}

"""From a recording's journal to landscapes: tables, manifests, and the contention curve."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.landscape import Landscape
from kt_lab.manifests import read_manifest
from kt_lab.provenance import kernel_source, provenance
from kt_lab.record.works import Work
from kt_lab.runners.controls import drift
from kt_lab.runners.gpu.protocols import get_protocol

_CROWDED = 16  # compilations at once, from which their wall seconds are not what one takes alone


def assemble(state: Any, works: Iterable[Work], directory: Path, options: Any) -> list[Path]:
    """Saves a landscape for every workload whose configs have all been visited.

    Args:
        state: Lookups over the journal (compiled, visits, contention, compared, facts).
        works: What is recorded.
        directory: Landscapes go to <directory>/<kernel>/<gpu>/<workload name>.parquet.
        options: The RecordOptions, stored in the manifest.
    """
    contention = fit_contention(state.contention)
    paths = []
    for work in works:
        rows = _rows(state, work, options.visits)
        if rows is None:
            continue
        workload = work.workload
        table = pd.DataFrame(rows)
        # On a crowded host, or where nobody knows how crowded, the wall clock tells nothing.
        crowded = contention is None or table["compile_workers"].max() > _CROWDED
        clock = {"compile_clock": "cpu" if crowded else "wall"}
        manifest = _manifest(state, work, options, contention) | clock
        if table["device"].nunique() < 2:  # `control` in the manifest names the one
            table = table.drop(columns="device")
        folder = directory / workload.kernel / manifest["gpu"]
        paths.append(Landscape(table, manifest).save(folder / workload.name))
    return paths


def require_own(state: Any, works: Any, directory: Path, options: Any, gpu: str) -> None:
    """Raises UsageError where `assemble` would replace what this journal does not give back.

    Args:
        state: Lookups over the journal as it was before this recording.
        works: As for `assemble`, as are directory and options.
        directory: Where landscapes may lie.
        options: The RecordOptions.
        gpu: The GPU's short name.
    """
    begun = [told["facts"] for told in state.facts[:1]]
    for work in works:
        path = directory / work.kernel.name / gpu / f"{work.workload.name}.json"
        there = read_manifest(path) if path.exists() else {}
        size = work.space.size
        own = begun and begun == (there.get("facts") or [])[:1]
        kept = min(size, options.limit or size) if own else 0
        if there.get("configs", 0) > kept:
            raise UsageError(
                "a recording must not replace another journal's landscape, nor one by a sample of "
                f"it, got {path} with {there['configs']:,} configs, of which it would keep "
                f"{kept:,}; record into another --directory, or move that landscape away"
            )


def _rows(state: Any, work: Work, visits: int) -> list[dict[str, Any]] | None:
    """Returns one row per recorded config, or None while a visit is missing."""
    key, space = work.workload.key, work.space
    first = {at: r for (name, at, v), r in state.visits.items() if name == key and v == 0}
    rows = []
    for specialisation, at in state.pairs(key):
        compiled = state.compiled.get(specialisation)
        if compiled is None:
            return None
        readings = [first.get(at)] if compiled["status"] == "ok" else []
        if readings and readings[0] and readings[0]["status"] == "ok":
            readings += [state.visits.get((key, at, v)) for v in range(1, visits)]
        if state.disturbed(key, at, visits):
            readings.append(state.visits.get((key, at, visits)))
        if any(r is None for r in readings):
            return None
        values = zip((f"p_{n}" for n in space.names), space.enumerate()[at].tolist(), strict=True)
        flush_us = state.facts[0]["facts"]["flush_us"]
        row = _row(specialisation, compiled, readings, flush_us, visits=visits)
        devices = "+".join(sorted({r["device"] for r in readings if r.get("device")}))
        rows.append(dict(values) | row | {"grid": state.grids[key][at], "device": devices or None})
    return rows or None


def _row(
    specialisation: str, compiled: dict, readings: list[dict], flush_us: float, *, visits: int
) -> dict[str, Any]:
    bad = next((r for r in [compiled, *readings] if r["status"] != "ok"), None)
    good = _agreeing(readings, visits) if bad is None else []
    head = readings[0] if readings else {}
    return {
        "status": "ok" if bad is None else bad["status"],
        "error": "" if bad is None else bad["error"],
        "samples_us": [s for r in good for s in r["samples_us"]],
        "visit": [v for v, r in enumerate(good) for _ in r["samples_us"]],
        "specialisation": specialisation,
        "code_hash": compiled.get("code_hash", ""),
        "compile_s": compiled["wall_s"],
        "compile_cpu_s": compiled["cpu_s"],
        "compile_workers": compiled["workers"],
        "check_s": head.get("check_s"),
        "timing_overhead_s": _overhead_s(head, flush_us),
        "failure_s": None if bad is None or bad is compiled else bad.get("seconds"),
        "registers": head.get("registers"),
        "spills": head.get("spills"),
        "shared_bytes": head.get("shared_bytes", compiled.get("shared_bytes")),
    }


def _agreeing(readings: list[dict], visits: int) -> list[dict]:
    """Returns those of the readings, as many as visits were asked for, that differ least."""

    def apart(chosen: tuple[dict, ...]) -> float:
        medians = [float(np.median(reading["samples_us"])) for reading in chosen]
        return max(medians) / min(medians)

    return list(min(combinations(readings, visits), key=apart))


def _overhead_s(reading: dict, flush_us: float) -> float | None:
    """Returns what a first visit costs beyond its check and its flushed launches, in seconds.

    Loading the binary and the first launch, and then warm-up, head start and queueing.
    """
    if "load_s" not in reading:
        return None
    launches = sum(us + flush_us for us in reading.get("samples_us", ())) * 1e-6
    return reading["load_s"] + max(0.0, reading.get("timing_s", 0.0) - launches)


def fit_contention(records: Sequence[dict]) -> dict[str, Any] | None:
    """Fits how much slower a compilation gets when n run at once: 1 + a (n - 1)^p.

    Args:
        records: Compilations of the same configs at several worker counts: specialisation,
            workers, wall_s.

    Returns:
        a, p, the root mean square error of log(seconds) over all configs, and the mean factor
        seen at each worker count; None without records.
    """
    frame = pd.DataFrame([r for r in records if r.get("status") == "ok"])
    if frame.empty:
        return None
    wall = frame.pivot_table(index="specialisation", columns="workers", values="wall_s").dropna()
    factors = np.exp(np.log(wall.div(wall[1], axis=0)).mean())
    counts = np.asarray(factors.index, dtype=float)
    many = counts > 1
    if not many.any():
        return None
    # Least squares in the factors, not in their logs: a factor near 1 is mostly noise. For a
    # given p the best a has a closed form; a negative one means no contention was seen.
    extra, steps = factors.to_numpy()[many] - 1, counts[many] - 1
    powers = np.linspace(0.2, 2.0, 181) if many.sum() > 1 else np.ones(1)
    fits = [(max(0.0, float(extra @ steps**p / (steps**p @ steps**p))), float(p)) for p in powers]
    a, p = min(fits, key=lambda fit: float(np.sum((fit[0] * steps ** fit[1] - extra) ** 2)))
    fitted = 1 + a * np.maximum(counts - 1, 0) ** p
    residual = np.log(wall.div(wall[1], axis=0)).to_numpy() - np.log(fitted)[None, :]
    return {
        "a": a,
        "p": p,
        "rms_log_error": float(np.sqrt(np.mean(residual[:, many] ** 2))),
        "configs": len(wall),
        "factors": {str(n): float(f) for n, f in factors.items()},
    }


def _manifest(state: Any, work: Work, options: Any, contention: Any) -> dict[str, Any]:
    workload, kernel, space = work.workload, work.kernel, work.space
    key = workload.key
    facts = state.facts[0]["facts"]
    compared = state.compared.get(key, {})
    protocol = get_protocol(options.protocol)
    return {
        "kernel": kernel.name,
        "workload": key,
        "gpu": facts["slug"],
        "extents": dict(workload.extents),
        "dtype": workload.dtype,
        "source": workload.source,
        "space": space.describe(),
        "fingerprint": space.fingerprint,
        "kernel_source": kernel_source(kernel),
        "protocol": {"name": protocol.name, "rules": protocol.rules},
        "visits": options.visits,
        "repetitions": [options.fewest, options.repetitions],
        "bytes_moved": kernel.bytes_moved(workload),
        "flops": kernel.flops(workload),
        "bytes_floor_us": kernel.bytes_moved(workload) / facts["copy_bytes_per_s"] * 1e6,
        "flush_us": facts["flush_us"],
        "timer_floor_us": facts["timer_floor_us"],
        "contention": contention,
        "control": _control(state, options),
        "disturbed": sum(n == key and visit == options.visits for n, _, visit in state.visits),
        "baseline": {"name": compared.get("baseline")}
        | {
            # what a timer reads is no finer than float32, and shorter so
            name: [float(str(np.float32(us))) for us in compared.get(told) or ()]
            for name, told in (("samples_us", "baseline_us"), ("beside_us", "samples_us"))
        },
        "facts": [f["facts"] for f in state.facts],
        "provenance": provenance(),
    }


def _control(state: Any, options: Any) -> dict[str, Any] | None:
    """Returns what the control says of the GPUs: `kt_lab.runners.controls.drift` of each."""
    if not state.controls:
        return None
    workload, config = state.control
    read: dict[str, list[float]] = {}
    for record in state.controls:
        read.setdefault(record["device"], [])
        if record["status"] == "ok":
            read[record["device"]].append(float(np.median(record["samples_us"])))
    about = {"workload": workload, "config": config, "every": options.control_every}
    return about | {"devices": drift(read)}

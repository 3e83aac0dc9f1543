"""T4 1.0.0 results, the interchange format that autotuners and the public hub share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kt_lab.formats.axes import check_values
from kt_lab.formats.records import OWN, hints, landscape_of, records_of, told_by
from kt_lab.formats.text import member, number, read_json, require, to_json, write_text
from kt_lab.landscape import Landscape
from kt_lab.trial import OK

_STATUS = {
    "correct": OK,
    "compile": "compile_error",
    "runtime": "launch_error",
    "correctness": "wrong_result",
    "timeout": "timeout",
    "constraints": "invalid",
}
_INVALIDITY = {status: name for name, status in _STATUS.items()} | {"censored": "timeout"}
_COSTS = {  # Kernel Tuner's name: T4's, the schema's before what is written everywhere
    "compile_time": ("compilation_time", "compilation"),
    "verification_time": ("validation",),
    "benchmark_time": ("benchmark",),
    "framework_time": ("framework",),
}
_UNITS_MS = {"s": 1e3, "seconds": 1e3, "ms": 1.0, "milliseconds": 1.0, "us": 1e-3, "ns": 1e-6}
_UNITS_MS |= {"microseconds": 1e-3, "nanoseconds": 1e-6, "miliseconds": 1.0}  # sic, on the hub


def read_t4(path: Path | str, **options: Any) -> Landscape:
    """Reads T4 results, plain or gzipped, as `read_cache` reads caches; see there.

    A parameter's values are those that occur. Of results with one configuration the first counts:
    a search that comes back to a config writes it again, at no cost. T4 names neither kernel nor
    device: unless kt_lab wrote the file they are the names of its folder and its own, as on the
    public hub.

    Args:
        path: The file.
        **options: As for `read_cache`.

    Raises:
        LandscapeError: The file is truncated, foreign, contradicts itself, or measures no time.
        SpaceError: Its parameters, a restriction or the default break a law of spaces.
        UsageError: There is no such objective.
    """
    found, facts = read_json(path)
    where, axes, records = facts["file"], {}, {}
    metadata = member({"metadata": {}, **found}, "metadata", dict, where)
    unit = metadata.get("timeunit")
    results, law = found.get("results"), "T4 must hold a list of results (read_cache reads caches)"
    require(isinstance(results, list), law, sorted(found), where)
    for place, result in enumerate(results):
        config, fields = _record(result, unit, f"{where}, result {place}")
        same, law = not place or set(config) == set(axes), "results must have the same parameters"
        hint = f"{fields['where']}; before it {', '.join(axes)}: complete it, or drop it"
        require(same, law, list(config), hint)
        typed = {name: (type(value), value) for name, value in config.items()}  # 1 is not 1.0
        records.setdefault(frozenset(typed.items()), (config, fields))
        for name, value in typed.items():
            axes.setdefault(name, {})[value] = None
    told = {"kernel": Path(path).resolve().parent.name} | hints(metadata, where)
    return landscape_of(
        list(records.values()),
        {name: [value for _, value in values] for name, values in axes.items()},
        facts | {"format": "t4", "repeated": len(results) - len(records)},
        **(told | {k: v for k, v in options.items() if v is not None}),
    )


def _record(result: Any, unit: Any, where: str) -> tuple[dict, dict]:
    """Returns a result's configuration, and its fields under Kernel Tuner's names in ms."""
    invalidity = member(result, "invalidity", str, where)
    require(invalidity in _STATUS, f"invalidity must be one of {[*_STATUS]}", invalidity, where)
    times = member(result, "times", dict, where)
    measured = member({"measurements": [], **result}, "measurements", list, where)
    units = {member(m, "name", str, where): m.get("unit") for m in measured}
    unit = unit or units.get("time") or "milliseconds"
    to_ms = _milliseconds(unit, where)
    fields = {m["name"]: m.get("value") for m in measured if m["name"].startswith(("time", OWN))}
    repeats = member({"runtimes": [], **times}, "runtimes", list, where)
    error = "" if invalidity == "correct" else invalidity
    fields |= {"status": _STATUS[invalidity], "error": error, "where": where}
    fields["times"] = [to_ms * number(t, "runtimes", where) for t in repeats]
    if invalidity == "correct" and "time" in fields:
        time = number(fields["time"], "time", where)
        fields["time"] = time * _milliseconds(units["time"] or unit, where)
    for name, theirs in _COSTS.items():
        spent = next((times[n] for n in theirs if n in times), 0.0)
        fields[name] = to_ms * number(spent, theirs[-1], where)
    config = member(result, "configuration", dict, where)
    check_values(list(config.values()), where)
    return config, fields


def _milliseconds(unit: Any, where: str) -> float:
    known = isinstance(unit, str) and unit in _UNITS_MS
    require(known, f"a unit of time must be one of {', '.join(_UNITS_MS)}", unit, where)
    return _UNITS_MS[unit]


def write_t4(
    landscape: Landscape, path: Path | str, *, metadata: Mapping[str, Any] | None = None
) -> Path:
    """Writes a landscape as T4 1.0.0 results; gzipped if the name ends in .gz; returns the path.

    Times are in milliseconds; the measurement `time` is the median of all samples. What T4 has no
    place for stands under names that begin with kt_lab, as in `write_cache`.

    Args:
        landscape: What to write.
        path: The file.
        metadata: More facts for the metadata, by name.
    """
    own = {"timeunit": "milliseconds", OWN: told_by(landscape)}
    head = to_json({"schema_version": "1.0.0", "metadata": {**(metadata or {}), **own}})[:-1]
    lines = ",\n".join(to_json(_result(*record)) for record in records_of(landscape))
    return write_text(path, f'{head},\n"results":[\n{lines}\n]}}\n')


def _result(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    status = fields["status"]
    costs = {name: fields[ours] for ours, theirs in _COSTS.items() for name in theirs}
    measured = {"time": fields["time"]} if status == OK else {}
    measured |= {name: value for name, value in fields.items() if name.startswith(OWN)}
    return {
        "configuration": dict(config),
        "times": {**costs, "runtimes": fields.get("times", []), "search_algorithm": 0.0},
        "invalidity": _INVALIDITY.get(status, "runtime"),
        "correctness": int(status != "wrong_result"),
        "measurements": [
            {"name": name, "value": value, "unit": "ms" if name == "time" else ""}
            for name, value in measured.items()
        ],
        "objectives": ["time"],
    }

"""Kernel Tuner's cache files, as it writes them while it tunes and replays them in simulation."""

from pathlib import Path
from typing import Any

from kt_lab.formats.axes import check_values
from kt_lab.formats.records import FIELDS, OWN, hints, landscape_of, named, records_of, told_by
from kt_lab.formats.text import member, read_json, require, to_json, write_text
from kt_lab.landscape import Landscape
from kt_lab.trial import OK

_FAILURES = {
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "launch_error",
    "InvalidConfig": "invalid",
    "ErrorConfig": "launch_error",  # no kind given
}
_ERRORS = {"compile_error": "CompilationFailedConfig", "invalid": "InvalidConfig"}


def read_cache(path: Path | str, **options: Any) -> Landscape:
    """Reads a Kernel Tuner cache, plain or gzipped, closed or as an interrupted run left it.

    The members of the landscape's space are the recorded configs. Milliseconds become
    microseconds. Failures keep their kind and their cost. There is one visit only, unless kt_lab
    wrote the file: the samples that a searcher reads judge it too.

    Args:
        path: The file.
        **options: What the file does not say, or says otherwise; None or left out: as it says.
            objective: "times" (as if left out): the recorded repeats are the samples, so that a
            config's latency is their median. "time": its one sample is the recorded `time`,
            which published scores use and which is the mean of all repeats, the cold first
            launch included. The manifest says which, under protocol.
            restrictions: Expressions that the recorded configs obey, as given to Kernel Tuner;
            see `conditions`. They explain the space; without them its members are the same.
            default: What the kernel runs without tuning; else the first recorded config that
            works, unless kt_lab wrote the file.
            kernel: Name of the kernel; else `kernel_name`.
            workload: Its name within the kernel; else `problem_size`, joined by x.
            gpu: The GPU; else `device_name`, and where that is blank the file's name.

    Raises:
        LandscapeError: The file is truncated, foreign or contradicts itself.
        SpaceError: Its parameters, a restriction or the default break a law of spaces.
        UsageError: There is no such objective.
    """
    found, facts = read_json(path, closing="}\n}")
    where = facts["file"]
    law = "a Kernel Tuner cache must hold tune_params and cache (read_t4 reads T4 results)"
    require({"tune_params", "cache"} <= set(found), law, sorted(found), where)
    axes = member(found, "tune_params", dict, where)
    names = found.get("tune_params_keys", list(axes))
    law = "tune_params_keys must name every parameter once"
    good = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(good and sorted(names) == sorted(axes), law, names, where)
    both, law = sorted(set(names) & set(FIELDS)), "a parameter must not have a field's name"
    require(not both, law, both, f"{where}; rename it there")
    size, device = found.get("problem_size"), found.get("device_name")
    size = "x".join(map(named, size)) if isinstance(size, list) else size
    told = {"kernel": found.get("kernel_name"), "workload": size, "gpu": device}
    axes = {name: axes[name] for name in names}
    records = member(found, "cache", dict, where).items()
    return landscape_of(
        [_record(key, record, axes, f"{where}, record {key[:80]!r}") for key, record in records],
        axes,
        facts | {"format": "kernel-tuner-cache", "device": named(device)},
        **(told | hints(found, where) | {k: v for k, v in options.items() if v is not None}),
    )


def _record(key: str, record: Any, axes: dict[str, Any], where: str) -> tuple[dict, dict]:
    require(isinstance(record, dict), "a record must be an object", record, where)
    config = {name: record[name] for name in axes if name in record}
    check_values(list(config.values()), where)
    told = ",".join(str(config.get(name)) for name in axes)
    good = len(config) == len(axes) and told == key
    require(good, "a record's parameters must agree with its key", config, where)
    odd = {n: v for n, v in config.items() if isinstance(axes[n], list) and v not in axes[n]}
    law = "a record's values must be listed in tune_params"
    require(not odd, law, odd, f"{where}; list them there, or drop it")
    fields = {name: value for name, value in record.items() if name not in config}
    error = next((v for v in fields.values() if isinstance(v, str) and v in _FAILURES), "")
    return config, fields | {"status": _FAILURES.get(error, OK), "error": error, "where": where}


def write_cache(landscape: Landscape, path: Path | str) -> Path:
    """Writes a landscape as a cache that Kernel Tuner replays; gzipped if the name ends in .gz.

    Each config's `time` is the median of all its samples, and `times` are the samples, in
    milliseconds. A failure is told as one of Kernel Tuner's three kinds. Its own status, the
    visits and the constraints stand under names that begin with kt_lab, which Kernel Tuner passes
    over; costs are told as far as Kernel Tuner has a name for them, binaries are not. Kernel
    Tuner itself reads plain .json only. Returns the path.

    Raises:
        LandscapeError: A parameter has the name of one of the file's fields, or two configs have
            one key (their values, joined by commas).
    """
    space, records = landscape.space, records_of(landscape)
    head = {
        "device_name": landscape.gpu,
        "kernel_name": landscape.kernel,
        "problem_size": list(landscape.manifest.get("extents", {}).values()) or [1],
        "tune_params_keys": space.names,
        "tune_params": {p.name: p.values for p in space.parameters},
        "objective": "time",
        OWN: told_by(landscape),
    }
    cache = {}
    for config, fields in records:
        status = fields.pop("status")
        if status != OK:
            fields["time"] = _ERRORS.get(status, "RuntimeFailedConfig")
        both = sorted(set(config) & set(fields))
        require(not both, "a parameter must not have a field's name", both, landscape.workload)
        cache[",".join(map(str, config.values()))] = {**config, **fields, "strategy_time": 0.0}
    law = "the values of configs, joined by commas, must differ"
    require(len(cache) == len(records), law, len(cache), landscape.workload)
    lines = ",\n".join(to_json({key: record})[1:-1] for key, record in cache.items())
    return write_text(path, f'{to_json(head)[:-1]},\n"cache":{{\n{lines}}}\n}}')

"""What is fuzzed: every parser with valid inputs to start from, and how it takes one."""

import argparse
import contextlib
import functools
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.cli import COMMANDS, build_parser
from kt_lab.constraints import Constraint
from kt_lab.decisions import Winner, load_winner, matches, save_winner
from kt_lab.errors import KtLabError, UsageError
from kt_lab.formats import conditions, read_cache, read_t4, write_cache, write_t4
from kt_lab.landscape import Landscape, landscapes
from kt_lab.programs.operators import operators
from kt_lab.programs.schedule import parse_schedule, replay, schedule_text
from kt_lab.programs.text import parse, to_text
from kt_lab.runners.readings import header, measured, submission
from kt_lab.runners.readings import parse as parse_readings
from kt_lab.space import ParameterSpace
from kt_lab.store import Journal, read_journal, read_table, write_table
from kt_lab.trial import Config, Measurement, Proposal

_COLUMNS = {"BLOCK": np.array([16, 64, 0, -1]), "num_warps": np.array([1, 2, 4, 8]), "N": 640}
_CONSTRAINTS = (
    "BLOCK >= num_warps * 32",
    "BLOCK * 4 <= N and (num_warps != 8 or BLOCK > 16)",
    "cdiv(N, BLOCK) % 2 == 0 if BLOCK > 0 else not num_warps in (1, 2, '4', None)",
    "1 < min(BLOCK, next_power_of_two(N), 3) <= abs(-max(num_warps, 2)) // 1.5",
)
_MADE = Path("landscapes", "softmax", "a100", "made")
_SEPARATOR = "\x1f"  # between the words of a command line
_COMMAND_LINES = (
    "record softmax/4096x640 --device 0",
    "tune softmax/4096x640 --searcher lfbo_pattern --option tiles=3 --trials 20 --seconds 1.5",
    "convert a.json.gz b.parquet --format t4 --gpu h200 --objective time --conditions c.json",
    "recheck softmax/4096x640",
    "list kernels",
    "inspect softmax/4096x640",
    "doctor",
    "datasheet",
    "study headline",
    "compare --workloads softmax/4096x640 --searchers random lfbo_pattern --seeds 3",
    "publish headline --venue mlsys",
    "programs build s.json --to lib --threads 2",
    "evidence --out x.json dojo --sizes tiny --rounds 3",
    "benchmark",
    "--version",
)


@dataclass(frozen=True)
class Target:
    """A parser under test.

    Attributes:
        modules: Parts of file names whose lines guide the choice of inputs.
        samples: Makes valid inputs; may use a folder.
        feed: Parses one input in a folder that holds what `samples` left; raises what it raises.
    """

    modules: tuple[str, ...]
    samples: Callable[[Path], list[bytes]]
    feed: Callable[[bytes, Path], Any]


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


# -- texts ----------------------------------------------------------------------------------------


def _constraint(data: bytes, _) -> None:
    found = Constraint("fuzzed", _text(data))
    if found.names <= set(_COLUMNS):
        with np.errstate(all="ignore"):
            found.evaluate(_COLUMNS)


def _program(data: bytes, _) -> None:
    program = parse(_text(data))
    if parse(to_text(program)) != program:
        raise AssertionError("a program's text must parse back to it")


@functools.cache
def _start():
    softmax = next(operator for operator in operators() if operator.name == "softmax")
    return softmax.program(softmax.tiny)


def _schedule(data: bytes, _) -> None:
    moves = parse_schedule(_text(data))
    if parse_schedule(schedule_text(moves)) != moves:
        raise AssertionError("a schedule's text must parse back to it")
    replay(_start(), moves[:8])


def _command(data: bytes, _) -> None:
    words = _text(data).split(_SEPARATOR)[:500]  # argparse takes quadratic time
    chosen = next((word for word in words if word in COMMANDS), None)
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        try:
            _parser(chosen).parse_args(words)
        except SystemExit as end:
            if end.code == 2:
                raise UsageError("argparse's own") from None
            if end.code:
                raise


@functools.cache
def _parser(chosen: str | None) -> argparse.ArgumentParser:
    return build_parser(chosen)


def _programs(_) -> list[bytes]:
    return [to_text(operator.program(operator.tiny)).encode() for operator in operators()]


def _schedules(_) -> list[bytes]:
    told = ("", "fuse 0", "split 0 2; swap 2; parallelise 0", "place s stack; unroll 0 2")
    return [text.encode() for text in told]


def _commands(_) -> list[bytes]:
    return [line.replace(" ", _SEPARATOR).encode() for line in _COMMAND_LINES]


# -- files ----------------------------------------------------------------------------------------


def _cache(layouts: tuple = ("row",)) -> dict[str, Any]:
    """Returns a small Kernel Tuner cache with a failure; of one layout it is complete."""
    axes = {"BLOCK": [16, 32], "num_warps": [1, 2], "stages": [2, 3, 4], "layout": [*layouts]}
    names = list(axes)
    records = {}
    for k, config in enumerate(itertools.product((16, 32), (1, 2), (2, 3, 4), ("row",))):
        times = [1.0 + k, 1.5 + k]
        good = {"time": sum(times) / 2, "times": times, "compile_time": 30.0}
        fields = good if k else {"time": "CompilationFailedConfig", "compile_time": 9.0}
        records[",".join(map(str, config))] = dict(zip(names, config, strict=True)) | fields
    head = {"device_name": "A100", "kernel_name": "softmax", "problem_size": [64, 64]}
    return head | {"tune_params_keys": names, "tune_params": axes, "cache": records}


def _landscape(folder: Path, layouts: tuple = ("row",)) -> Landscape:
    path = folder / "made.json"
    path.write_text(json.dumps(_cache(layouts)))
    return read_cache(path, restrictions=["BLOCK >= num_warps"])


def _caches(folder: Path) -> list[bytes]:
    own = write_cache(_landscape(folder), folder / "own.json").read_bytes()
    packed = write_cache(_landscape(folder), folder / "own.json.gz").read_bytes()
    return [json.dumps(_cache()).encode(), own, packed]


def _t4s(folder: Path) -> list[bytes]:
    landscape = _landscape(folder)
    return [write_t4(landscape, folder / f"t4.{end}").read_bytes() for end in ("json", "json.gz")]


def _tables(folder: Path) -> list[bytes]:
    _landscape(folder).save(folder / _MADE)
    return [(folder / _MADE).with_suffix(".parquet").read_bytes()]


def _manifests(folder: Path) -> list[bytes]:
    few = _landscape(folder, ("row", None)).save(folder / _MADE).with_suffix(".json").read_text()
    _tables(folder)
    text = (folder / _MADE).with_suffix(".json").read_text()
    sha256 = json.loads(text)["sha256"]
    return [json.dumps(json.loads(found) | {"sha256": sha256}).encode() for found in (text, few)]


def _manifest(data: bytes, folder: Path) -> None:
    """Feeds a manifest, its fingerprint that of its space if that is one."""
    path = (folder / _MADE).with_suffix(".json")
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, dict) and "space" in found:
            space = ParameterSpace.from_description(found["space"])
            data = json.dumps(found | {"fingerprint": space.fingerprint}).encode()
    path.write_bytes(data)
    landscapes(folder / "landscapes")
    _used(Landscape.load(path))


def _table(data: bytes, folder: Path) -> None:
    """Feeds a damaged table with a manifest that says that it is as it was written."""
    path = (folder / _MADE).with_suffix(".parquet")
    path.write_bytes(data)
    manifest = json.loads(path.with_suffix(".json").read_text())
    manifest["sha256"] = hashlib.sha256(data).hexdigest()
    path.with_suffix(".json").write_text(json.dumps(manifest))
    _used(Landscape.load(path))


def _used(landscape: Landscape) -> None:
    """Asks of a landscape what replay does."""
    if landscape.space.size < 10**4:
        assert len(landscape.latency_us) == len(landscape.launches) == landscape.space.size


def _file(read: Callable[[Path], Any]) -> Callable[[bytes, Path], None]:
    def feed(data: bytes, folder: Path) -> None:
        path = folder / "fuzzed.json"
        path.write_bytes(data)
        read(path)

    return feed


def _conditions(_) -> list[bytes]:
    told = [{"Expression": text, "Parameters": ["BLOCK"]} for text in _CONSTRAINTS]
    return [json.dumps({"ConfigurationSpace": {"Conditions": told}}).encode()]


def _winners(folder: Path) -> list[bytes]:
    config = Config(BLOCK=64, num_warps=4, order=(0, 1))
    ratios = dict.fromkeys(("apparent_ratio", "ratio", "low", "high"), 0.9)
    winner = Winner(
        **ratios,
        **{"kernel": "softmax", "workload": "64x64", "kernel_source": "ab", "gpu": "h200"},
        **{"extents": {"rows": 64}, "dtype": "float16", "p_best": None, "protocol": "events"},
        **{"config": config, "default": config, "finalists": (config,), "latency_us": 1.5},
        **{"default_us": 2.0, "searcher": "random", "seed": 0, "trials": 9, "elapsed_s": 1.0},
        provenance={"triton": "3.5", "packages": {"torch": "2.9"}, "capability": "9.0"},
    )
    return [save_winner(winner, folder / "winners").read_bytes()]


def _winner(data: bytes, folder: Path) -> None:
    path = folder / "winners" / "softmax" / "h200" / "64x64.json"
    path.write_bytes(data)
    found = load_winner("softmax/64x64", directory=folder / "winners")
    matches(found, kernel_source="ab", gpu="h200", triton="3.5", driver="1", arch="sm_90")
    save_winner(found, folder / "saved")  # its names make a path


def _records() -> list[dict[str, Any]]:
    proposal = Proposal(0, Config(BLOCK=64, order=(0, 1)))
    done = measured(proposal, Measurement("ok", (1.0, 2.0), 0.1, 0.1, 0.1, {"grid": "1"}), 2.0)
    return [header({"workload": "softmax/64x64"}), submission(1, 0, [proposal]), done]


def _journals(folder: Path) -> list[bytes]:
    with Journal(folder / "made.jsonl") as journal:
        for record in _records():
            journal.append(record)
    plain = "".join(json.dumps(record) + "\n" for record in _records()).encode()  # version 1
    return [(folder / "made.jsonl").read_bytes(), plain]


def _readings(data: bytes, _) -> None:
    """Feeds records that a journal held as they were written, whatever they say."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(found, list) and found and all(isinstance(record, dict) for record in found):
        parse_readings(found, name="fuzzed")


def _stored(folder: Path) -> list[bytes]:
    import pandas as pd

    frame = pd.DataFrame({"searcher": ["a", "b"], "trial": [0, 1], "latency_us": [1.0, None]})
    return [write_table(frame, folder / "run.parquet", facts={"a": 1}).read_bytes()]


_FORMATS = ("formats/", "space.py", "rows.py", "parameters.py", "constraints.py")
TARGETS: Mapping[str, Target] = {
    "constraints": Target(
        ("constraints.py",), lambda _: [c.encode() for c in _CONSTRAINTS], _constraint
    ),
    "programs": Target(("programs/",), _programs, _program),
    "schedules": Target(("programs/",), _schedules, _schedule),
    "command lines": Target(("cli.py", "commands/", "argparse.py"), _commands, _command),
    "readings": Target(
        ("runners/readings.py", "trial.py"),
        lambda _: [json.dumps(_records()).encode()],
        _readings,
    ),
    "journals": Target(("store/",), _journals, _file(read_journal)),
    "decisions": Target(("decisions.py", "readings.py", "trial.py"), _winners, _winner),
    "conditions": Target(_FORMATS, _conditions, _file(conditions)),
    "caches": Target(_FORMATS, _caches, _file(read_cache)),
    "t4": Target(_FORMATS, _t4s, _file(read_t4)),
    "manifests": Target(("landscape.py", *_FORMATS), _manifests, _manifest),
    "landscape tables": Target(("landscape.py", "ticks.py"), _tables, _table),
    "stored tables": Target(("store/tables.py",), _stored, _file(read_table)),
}
REFUSALS = (KtLabError,)

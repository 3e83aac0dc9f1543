"""Files that lie, break off or attack: one clear error each, nothing executed, nothing left."""

import contextlib
import copy
import gzip
import json
import math
import random
import sys

import pytest

from kt_lab.errors import KtLabError, LandscapeError
from kt_lab.formats import conditions, read_cache, read_t4, write_cache, write_t4
from kt_lab.landscape import Landscape
from tests.formats.files import hub, t4, write
from tests.runners.tables import make_landscape

KEY = "16,1,0,15"


def _own(path, name):
    """Returns what kt_lab writes of a landscape, as data to spoil."""
    writer = write_cache if name == "cache" else write_t4
    return json.loads(writer(make_landscape(), path).read_text())


@pytest.mark.parametrize(
    ("raw", "law"),
    [
        (b"", "one JSON object"),
        (b"{", "one JSON object"),
        (b"[]", "a list at the top"),
        (b"\xff\xfe{}", "UnicodeDecodeError"),
        (gzip.compress(json.dumps(hub()).encode())[:-20], "EOFError"),
        (b"\x1f\x8bnonsense", "one JSON object"),
        (b'{"cache": NaN}', "must"),
        (b'{"cache": {"a": 1, "a": 2}}', "'a' 2 times"),
        (b'{"cache": ' + b"[" * 10**6 + b"]" * 10**6 + b"}", "RecursionError"),
        (b'{"cache": ' + b"9" * 5000 + b"}", "ValueError"),
        (json.dumps(hub()).encode()[:-200], "one JSON object"),
        (b"{}", "must"),
    ],
)
@pytest.mark.parametrize("read", [read_cache, read_t4, conditions])
def test_what_is_no_json_object_is_refused(tmp_path, read, raw, law):
    with pytest.raises(LandscapeError, match=law):
        read(write(tmp_path / "a.json", raw))


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "no.json", tmp_path):
        with pytest.raises(LandscapeError, match="one JSON object"):
            read_cache(path)


def test_a_gzipped_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("kt_lab.formats.text._LARGEST", 2**16)
    path = write(tmp_path / "a.json.gz", b" " * 2**17 + json.dumps(hub()).encode())
    with pytest.raises(LandscapeError, match="more than 65,536 bytes"):
        read_cache(path)


def test_each_reader_names_the_other(tmp_path):
    with pytest.raises(LandscapeError, match="read_t4 reads T4"):
        read_cache(write(tmp_path / "a.json", t4()))
    with pytest.raises(LandscapeError, match="a list of results"):
        read_t4(write(tmp_path / "b.json", hub()))


def _set(data, *path):
    *path, last, value = path
    for name in path:
        data = data[name]
    data[last] = value


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (("cache", []), "cache must be an object"),
        (("cache", {}), "a config that works"),
        (("tune_params", "block_size_y", 7), "values must be at most"),
        (
            ("tune_params", "block_size_y", [1, 2]),
            "listed in tune_params, got {'block_size_y': 4} in a.json, ",
        ),
        (("tune_params", "block_size_y", [1, 2, 4, 10**400]), "below 2\\*\\*53"),
        (("tune_params", "block_size_y", [1, 2, 4, [1]]), "below 2\\*\\*53"),
        (
            ("tune_params", "block_size_y", [1, 2, 4, 4]),
            "must have distinct values, got",
        ),
        (("tune_params", "block_size_y", [1, 2, 4, 4.0]), "must have distinct values, got"),
        (("tune_params", "more", [1]), "tune_params_keys must name every parameter"),
        (("tune_params_keys", "block_size_x"), "tune_params_keys must name"),
        (("tune_params_keys", [1, 2, 3, 4]), "tune_params_keys must name"),
        (("tune_params_keys", ["block_size_x"] * 4), "tune_params_keys must name"),
        (("cache", KEY, None), "a record must be an object"),
        (("cache", KEY, "block_size_x", 32), "agree with its key"),
        (("cache", KEY, "block_size_x", [16]), "below 2\\*\\*53"),
        (("cache", "16,1,0,16", {}), "agree with its key"),
        (("cache", KEY, "times", 1.0), "times must be a list"),
        (
            ("cache", KEY, "times", [None]),
            f"record '{KEY}'; mark the config as failed, or drop it",
        ),
        (("cache", KEY, "times", [0.0]), "times \\(ms\\) must be a number in 1e-09"),
        (("cache", KEY, "times", ["1.0"]), "times \\(ms\\)"),
        (("cache", KEY, "times", [10**400]), "times \\(ms\\)"),
        (("cache", KEY, "times", [math.nan]), "times \\(ms\\) must be a number in 1e-09"),
        (("cache", KEY, "times", [math.inf]), "times \\(ms\\)"),
        (("cache", KEY, "compile_time", math.nan), "compile_time \\(ms\\) must be"),
        (("cache", KEY, "block_size_x", math.nan), "below 2\\*\\*53"),
        (("tune_params", "block_size_y", [1, 2, 4, math.inf]), "below 2\\*\\*53"),
        (("cache", KEY, "compile_time", -1), "compile_time \\(ms\\) must be"),
        (("cache", KEY, "kt_lab_status", "fast"), "status must be one of"),
        (("cache", KEY, "kt_lab_status", ["ok"]), "status must be one of"),
        (("cache", KEY, "kt_lab_visit", [0]), "visits must number the samples"),
        (("cache", KEY, "kt_lab_visit", [0, 0, 0, 10**9]), "visits must number the samples"),
        (("cache", KEY, "kt_lab_error", 7), "kt_lab_error must be a string"),
        (("kt_lab", []), "kt_lab must be an object"),
        (("kt_lab", {"default": 7}), "a default must be values by name"),
        (("kt_lab", {"default": {"block_size_x": 16}}), "must assign exactly"),
    ],
)
def test_a_cache_that_breaks_a_law_is_refused_with_it(tmp_path, change, law):
    data = hub()
    _set(data, *change)
    with pytest.raises(KtLabError, match=law):
        read_cache(write(tmp_path / "a.json", data))


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (("results", {}), "a list of results"),
        (("results", []), "a config that works"),
        (
            ("results", 1, "configuration", "more", 1),
            "have the same parameters, got .*'more'.* result 1; ",
        ),
        (("results", 0, 7), "invalidity must be a string"),
        (("results", 0, "invalidity", "odd"), "invalidity must be one of"),
        (("results", 0, "configuration", None), "configuration must be an object"),
        (("results", 0, "configuration", {"block_size_x": 16}), "before it block_size_x: "),
        (("results", 0, "configuration", "block_size_x", 10**400), "below 2\\*\\*53"),
        (("results", 0, "times", None), "times must be an object"),
        (("results", 0, "times", "runtimes", {}), "runtimes must be a list"),
        (("results", 0, "times", "runtimes", [-1]), "runtimes must be a number"),
        (("results", 0, "times", "runtimes", [math.nan]), "runtimes must be a number"),
        (("results", 0, "configuration", "block_size_x", -math.inf), "below 2\\*\\*53"),
        (("results", 0, "measurements", 0, "value", math.nan), "time must be a number"),
        (("results", 0, "times", "compilation", "1"), "compilation must be a number"),
        (("results", 0, "measurements", [7]), "name must be a string"),
        (("results", 0, "measurements", 0, "value", 10**400), "time must be a number"),
        (("results", 0, "measurements", 0, "unit", "hours"), "unit of time"),
        (("metadata", "timeunit", "fortnights"), "unit of time"),
        (("metadata", "kt_lab", []), "kt_lab must be an object"),
        (("metadata", 7), "metadata must be an object"),
    ],
)
def test_t4_that_breaks_a_law_is_refused_with_it(tmp_path, change, law):
    data = t4()
    _set(data, *change)
    with pytest.raises(KtLabError, match=law):
        read_t4(write(tmp_path / "a.json", data))


def test_a_result_without_a_parameter_is_named(tmp_path):
    data = t4()
    del data["results"][3]["configuration"]["use_padding"]
    law = "results must have the same parameters, got .* result 3; before it .*drop"
    with pytest.raises(LandscapeError, match=law):
        read_t4(write(tmp_path / "a.json", data))


def test_a_cache_without_a_config_that_works_says_what_to_do(tmp_path):
    data = hub()
    for record in data["cache"].values():
        record["time"] = "InvalidConfig"
    with pytest.raises(LandscapeError, match=r"a config that works, got .*a\.json; measure until"):
        read_cache(write(tmp_path / "a.json", data))


def test_a_parameter_with_the_name_of_a_field_is_told(tmp_path):
    data = hub()
    data["tune_params"]["times"] = [1]
    data["tune_params_keys"].append("times")
    law = r"must not have a field's name, got \['times'\] in a.json; rename it"
    with pytest.raises(LandscapeError, match=law):
        read_cache(write(tmp_path / "a.json", data))


def test_t4_of_another_objective_than_time_is_refused(tmp_path):
    data = t4()
    data["results"][0]["times"]["runtimes"] = []
    data["results"][0]["measurements"] = [{"name": "score", "value": -0.4, "unit": ""}]
    with pytest.raises(LandscapeError, match="time \\(ms\\) must be a number"):
        read_t4(write(tmp_path / "a.json", data))


def _spoil(data, rng):
    """Replaces, removes or doubles one thing, somewhere."""
    odd = [None, True, -1, 0, 10**400, math.nan, 0.5, "", "ok", "\ud800", "a,b"]
    odd += [[], {}, [[]], {"x": []}]
    here = data
    while True:
        places = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not places:
            return
        place = rng.choice(places)
        inner = here[place]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            here = inner
            continue
        match rng.randrange(4):
            case 0:
                del here[place]
            case 1 if isinstance(here, dict):
                here[rng.choice(["x", "time", "kt_lab_visit", "kt_lab_error", "1"])] = inner
            case 2 if isinstance(here, list):
                here.append(inner)
            case _:
                here[place] = copy.deepcopy(rng.choice(odd))
        return


@pytest.mark.parametrize("name", ["hub", "t4", "own_cache", "own_t4"])
def test_spoiled_files_are_read_or_refused_and_nothing_else(tmp_path, name):
    """A seeded fuzz: whatever is accepted can be saved, loaded and told its best config."""
    rng = random.Random(f"formats-{name}")
    read = read_t4 if name.endswith("t4") else read_cache
    made = {"hub": hub, "t4": t4}.get(name) or (lambda: own)
    own = _own(tmp_path / "own.json", name.removeprefix("own_"))
    accepted = refused = 0
    for _ in range(250):
        data = copy.deepcopy(made())
        for _ in range(rng.randint(1, 3)):
            _spoil(data, rng)
        text = json.dumps(data)
        if rng.random() < 0.2:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(["", "{", '"', "NaN", "\x00"]) + text[at + 1 :]
        try:
            found = read(write(tmp_path / "spoiled.json", text))
        except KtLabError:
            refused += 1
            continue
        accepted += 1
        found.save(tmp_path / "saved")
        assert Landscape.load(tmp_path / "saved").best == found.best
    assert accepted > 20
    assert refused > 20
    names = {"own.json", "spoiled.json", "saved.parquet", "saved.json"}
    assert {p.name for p in tmp_path.iterdir()} == names


@pytest.mark.parametrize("below", range(0, 60, 7))
def test_nesting_near_the_limit_of_the_stack_is_refused_or_read(tmp_path, below):
    """What the parser just manages must not break what looks at it afterwards."""
    deep = "[" * (sys.getrecursionlimit() - below) + "]" * (sys.getrecursionlimit() - below)
    for at, fields in enumerate(
        ("kernel_name", "problem_size", "device_name", "tune_params_keys")
    ):
        text = json.dumps(hub() | {fields: "DEEP"}).replace('"DEEP"', deep)
        with contextlib.suppress(LandscapeError):
            read_cache(write(tmp_path / f"{at}.json", text)).save(tmp_path / "saved")

"""Every parser withstands mutated inputs; the fuzzer sees each law that a parser could break."""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kt_lab.artifact.recompute import MANIFEST, check_files
from kt_lab.artifact.recomputing import recompute
from kt_lab.constraints import Constraint
from kt_lab.decisions import Winner, architecture, load_winner
from kt_lab.errors import (
    ConstraintError,
    KtLabError,
    LandscapeError,
    ProgramError,
    SpaceError,
    StoreError,
    UsageError,
)
from kt_lab.evidence import fuzzing
from kt_lab.evidence.fuzz_mutations import LARGEST, mutated
from kt_lab.evidence.fuzz_targets import TARGETS
from kt_lab.landscape import Landscape, landscapes
from kt_lab.parameters import Integer
from kt_lab.programs.schedule import parse_schedule
from kt_lab.programs.text import parse
from kt_lab.runners.readings import header, submission
from kt_lab.runners.readings import parse as parse_readings
from kt_lab.space import ParameterSpace
from kt_lab.store import Journal, read_journal, read_table
from tests.runners.tables import make_landscape

BAD = """
import json, os
from kt_lab.evidence import fuzz_process, fuzz_targets
fuzz_process._LIMIT_S = 0.3
FEEDS = {
    "executes": lambda data, folder: eval("1" if data == b"1" else "2"),
    "reaches out": lambda data, folder: data == b"1" or open("/etc/hostname").close(),
    "hangs": lambda data, folder: [None for _ in iter(lambda: data == b"1", True)],
    "eats": lambda data, folder: data == b"1" or bytearray(8 << 30),
    "crashes": lambda data, folder: 1 // (data == b"1"),
    "is right": lambda data, folder: int("1"),
}
for name, feed in FEEDS.items():
    fuzz_targets.TARGETS[name] = fuzz_targets.Target((), lambda _: [b"1"], feed)
job = {"parsers": list(FEEDS), "seed": 0, "inputs": 3, "folder": os.environ["FOLDER"]}
print(json.dumps(fuzz_process.answer(job)))
"""
TEXTS = ["constraints", "programs", "schedules", "command lines", "readings", "journals"]
FILES = [name for name in TARGETS if name not in TEXTS]
DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("parsers", "inputs"), [(TEXTS, 1000), (FILES, 300)], ids=["texts", "files"]
)
def test_mutated_inputs_break_no_parser(parsers, inputs):
    rows = fuzzing.fuzzed(parsers, inputs, seed=7)
    assert [row["findings"] for row in rows] == [[]] * len(parsers)
    for name, row in zip(parsers, rows, strict=True):
        assert row["parsed"] + row["refused"] == inputs
        assert row["refused"], f"{name}: mutations must break something"
        assert row["kept"], f"{name}: no input reached a line that it is guided by"
        # whose pages have checksums
        assert row["parsed"] or name == "stored tables", f"{name}: something must stay valid"


def test_the_fuzzer_sees_every_law_broken(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", BAD],
        capture_output=True,
        text=True,
        env={"FOLDER": str(tmp_path), "PYTHONPATH": str(fuzzing.__file__.partition("kt_lab/")[0])},
    )
    assert done.returncode == 0, done.stderr
    found = [[f["type"] for f in row["findings"]] for row in json.loads(done.stdout)["rows"]]
    wanted = [["Broken"], ["Broken"], ["Broken"], ["MemoryError"], ["ZeroDivisionError"], []]
    assert found == wanted


def test_a_process_that_dies_is_a_finding_with_its_input(monkeypatch, tmp_path):
    def dies(_, job, **__):
        at = b"the input"
        with open(f"{job['folder']}/{fuzzing.CURRENT}", "wb") as file:
            file.write(len(at).to_bytes(8, "little") + at + bytes(9))
        raise UsageError("exit code -11")

    monkeypatch.setattr(fuzzing, "answer", dies)
    parser = argparse.ArgumentParser()
    fuzzing.add_arguments(parser)
    args = parser.parse_args(["--parsers", "programs"])
    args.out = tmp_path / "fuzzing.json"
    result = fuzzing.run(args)
    [finding] = result["rows"][0]["findings"]
    assert (finding["message"], finding["example"]) == ("exit code -11", "b'the input'")
    assert "exit code -11" in fuzzing.report(result)


def test_mutations_repeat_with_their_seed_and_stay_small():
    import random

    corpus = [b'{"a": [1, {"b": null}]}', b"x + 1", b""]
    once, again = ([mutated(random.Random(s), corpus) for s in range(500)] for _ in range(2))
    assert once == again
    assert max(map(len, once)) <= LARGEST
    assert len(set(once)) > 300


# -- what it found --------------------------------------------------------------------------------


def space(**changes):
    made = ParameterSpace([Integer("n", 1, 3)], default={"n": 1}).describe()
    return made | changes


TEXT = "kernel k\nin x f32 [4]\nout z f32 [4]\n---\n4\n| z[{0}] = x[{0}]\n"


@pytest.mark.parametrize("text", ["not " * 300 + "x", "+".join("x" * 900), "-" * 900 + "x"])
def test_a_deep_constraint_is_refused(text):
    with pytest.raises(ConstraintError):
        Constraint("deep", text)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("x[{0}]", "(" * 300 + "x[{0}]" + ")" * 300),
        TEXT.replace("x[{0}]", " + ".join(["x[{0}]"] * 500)),
        TEXT.replace("x[{0}]", "x[{99999999999999999999}]"),
        TEXT.replace("[4]", f"[{'9' * 5000}]"),
        TEXT.replace("x[{0}]", f"x[{'9' * 5000}]"),
        TEXT.replace(
            "4\n| z", "4\n| 1\n" + "".join(f"{'| ' * n}1\n" for n in range(2, 300)) + "z"
        ),
    ],
)
def test_what_a_programs_text_may_hold_is_bounded(text):
    assert parse(TEXT)
    with pytest.raises(ProgramError):
        parse(text)


@pytest.mark.parametrize("text", [f"split 0 {'9' * 5000}", f"fuse {'9' * 5000}"])
def test_numbers_of_schedules_are_bounded(text):
    with pytest.raises(ProgramError):
        parse_schedule(text)


@pytest.mark.parametrize(
    "wrong",
    [
        17,
        [1],
        space(parameters=3),
        space(parameters=["n"]),
        space(constraints=[5]),
        space(constants=["text"]),
        space(parameters=[{"kind": "Integer", "name": "n", "low": 0, "high": 10**12}]),
        space(members=base64.b85encode(zlib.compress(bytes(64 << 20), 1)).decode()),
        space(members=base64.b85encode(zlib.compress(bytes(12))[:-4]).decode()),
    ],
    ids=range(9),
)
def test_a_space_that_no_space_described_is_refused(wrong):
    with pytest.raises(SpaceError):
        ParameterSpace.from_description(wrong)


@pytest.mark.parametrize("text", [DEEP, "[]", "{", '{"kernel": 1}', "\ufffd"])
def test_a_manifest_that_is_none_is_refused_wherever_it_is_read(tmp_path, text):
    path = tmp_path / "softmax" / "h200" / "64x64.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("utf-16") if text == "\ufffd" else text.encode())
    path.with_suffix(".parquet").touch()  # a file without a table may be anybody's
    for read in (lambda: landscapes(tmp_path), lambda: Landscape.load(path)):
        with pytest.raises(LandscapeError):
            read()


def test_a_table_that_contradicts_itself_is_refused(tmp_path):
    import hashlib

    import pyarrow.parquet as pq

    [_] = TARGETS["landscape tables"].samples(tmp_path)
    path = next(tmp_path.glob("landscapes/*/*/*.parquet"))
    frame, manifest = pq.read_table(path).to_pandas(), path.with_suffix(".json")
    for column, value in (("p_BLOCK", 6400), ("p_BLOCK", -1), ("visit", [0, 0, 0]), ("p_x", 0)):
        wrong = frame.copy() if column in frame else frame.drop(columns="p_BLOCK")
        if column in frame:
            wrong[column] = [value] * len(wrong)
        wrong.to_parquet(path)
        facts = json.loads(manifest.read_text())
        facts["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        manifest.write_text(json.dumps(facts))
        with pytest.raises(LandscapeError):
            Landscape.load(path)


def test_a_foreign_table_is_not_even_parsed(tmp_path, monkeypatch):
    [raw] = TARGETS["landscape tables"].samples(tmp_path)
    path = next(tmp_path.glob("landscapes/*/*/*.parquet"))
    path.write_bytes(raw[:-1] + b"X")
    monkeypatch.setattr("kt_lab.landscape.read_table", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(LandscapeError, match="sha256"):
        Landscape.load(path)


@pytest.mark.parametrize(
    "changes",
    [{"provenance": {"packages": [1]}}, {"latency_us": "x"}, {"gpu": "x" * 5000}, {"gpu": ".."}],
    ids=str,
)
def test_a_winner_of_other_types_is_refused(tmp_path, changes):
    [raw] = TARGETS["decisions"].samples(tmp_path)
    path = next(tmp_path.glob("winners/*/*/*.json"))
    assert isinstance(load_winner("softmax/64x64", directory=tmp_path / "winners"), Winner)
    for text in (json.dumps(json.loads(raw) | changes), DEEP):
        path.write_text(text)
        with pytest.raises(StoreError):
            load_winner("softmax/64x64", directory=tmp_path / "winners")
    assert architecture({"capability": ["9.0"]})


def test_journals_that_hold_something_else_are_refused(tmp_path):
    (tmp_path / "deep").write_text(f'{{"a":{DEEP}\n')
    with pytest.raises(StoreError):
        read_journal(tmp_path / "deep")
    with Journal(tmp_path / "sound") as journal:
        journal.append(header({}) | {"facts": None})
    with pytest.raises(StoreError):
        parse_readings(read_journal(tmp_path / "sound"), name="sound")
    asked = submission(1, 0) | {"proposals": [[[1], {"n": 1}]]}
    with pytest.raises(StoreError):
        parse_readings([header({}), asked], name="unhashable")


def test_a_stored_table_whose_names_are_no_text_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    facts = pa.table({"latency": [1.0]}).replace_schema_metadata({"kt_lab": "{}"})
    pq.write_table(facts, path)
    path.write_bytes(path.read_bytes().replace(b"latency", b"lat\xbancy"))
    with pytest.raises(StoreError, match="readable Parquet file"):
        read_table(path)


@pytest.mark.parametrize("visit", [None, -1])
def test_a_landscape_that_does_not_know_a_visit_is_refused(visit, tmp_path):
    path = make_landscape().save(tmp_path / "landscape")
    table = pq.read_table(path)
    at = table.schema.get_field_index("visit")
    unknown = [[visit] * len(cell) for cell in table["visit"].to_pylist()]
    table = table.set_column(at, "visit", pa.array(unknown, pa.list_(pa.int8())))
    pq.write_table(table, path)
    about = path.with_suffix(".json")
    manifest = json.loads(about.read_text())
    manifest["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    about.write_text(json.dumps(manifest))
    with pytest.raises(LandscapeError, match="every sample and its visit"):
        Landscape.load(path)


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/b"])
def test_an_artifact_reaches_no_other_folder(tmp_path, name):
    root, other = tmp_path / "artifact", tmp_path / "outside"
    for folder in (root, other):
        folder.mkdir()
    (other / "kept").write_text("kept")
    files = {"../outside/kept": {"sha256": ""}, str(other / "kept"): {"sha256": ""}}
    (root / MANIFEST).write_text(json.dumps({"studies": {name: {"only": []}}, "files": files}))
    assert all("outside the artifact" in said for said in check_files(root))
    with pytest.raises(KtLabError):
        recompute(root)
    assert (other / "kept").exists()

"""The command line: exit codes, JSON, and mistakes told in one sentence."""

import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kt_lab import __version__, cli
from kt_lab.commands import evidence, listing
from kt_lab.commands import tune as tune_command
from kt_lab.errors import UnknownName, UsageError


class Failing:
    """A command that fails on purpose."""

    def __init__(self, error):
        self.error = error

    @staticmethod
    def add_arguments(parser):
        parser.add_argument("--number", type=int)

    def run(self, _args):
        raise self.error


@pytest.fixture
def failing(monkeypatch):
    """Registers a command `fail` that raises what the test names."""

    def register(error):
        monkeypatch.setitem(cli.COMMANDS, "fail", ("failing", "a command that fails"))
        command = Failing(error)
        monkeypatch.setattr(cli.importlib, "import_module", lambda _: command)

    return register


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"kt_lab {__version__}\n"


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in cli.COMMANDS)


@pytest.mark.parametrize("argv", [[], ["nosuch"], ["list"], ["list", "nosuch"]])
def test_a_wrong_command_line_exits_with_2(argv, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(argv)
    assert "usage: kt-lab" in capsys.readouterr().err


def test_a_users_mistake_is_one_sentence_without_a_stack_trace(failing, capsys):
    failing(UsageError("trials must be >= 1, got 0"))
    assert cli.main(["fail"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "kt-lab: trials must be >= 1, got 0\n"
    assert not captured.out


def test_an_interrupt_exits_as_shells_expect(failing):
    failing(KeyboardInterrupt())
    assert cli.main(["fail", "--number", "3"]) == 130


def test_a_programming_error_keeps_its_stack_trace(failing):
    failing(ZeroDivisionError("division by zero"))
    with pytest.raises(ZeroDivisionError):
        cli.main(["fail"])


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_is_a_module_with_arguments_and_help(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    assert command in capsys.readouterr().out


def test_every_module_of_commands_is_registered():
    folder = Path(cli.__file__).parent / "commands"
    found = {f"kt_lab.commands.{path.stem}" for path in folder.glob("[a-z]*.py")}
    registered = {module for module, _ in cli.COMMANDS.values()}
    assert found == {module for module in registered if ".commands." in module}


@pytest.mark.parametrize("what", ["kernels", "workloads", "searchers", "landscapes"])
def test_list_as_json_and_as_text_show_the_same_rows(what, capsys):
    assert cli.main(["list", what, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert cli.main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (len(rows) + 1 if rows else 1)
    assert all(row.keys() == rows[0].keys() for row in rows)


def test_list_knows_every_searcher(capsys):
    from kt_lab.search import searchers
    from kt_lab.search.peers import PEERS

    cli.main(["list", "searchers", "--json"])
    listed = [row["searcher"] for row in json.loads(capsys.readouterr().out)]
    assert listed == [*searchers(), *PEERS]


def test_aligned_puts_numbers_to_the_right():
    rows = [{"name": "a", "configs": 1}, {"name": "long", "configs": 12345}]
    assert listing.aligned(rows).splitlines() == [
        "name  configs",
        "a           1",
        "long   12,345",
    ]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "x.md"), "'x.md'"),
        (
            ModuleNotFoundError("no", name="matplotlib"),
            "needs matplotlib, which is not there",
        ),
    ],
)
def test_what_the_machine_lacks_is_one_sentence(failing, capsys, error, said):
    failing(error)
    assert cli.main(["fail"]) == 2
    assert said in capsys.readouterr().err


RECORD = ["record", "softmax/4096x640"]
INSPECT = ["inspect", "softmax/4096x640"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([*RECORD, "--limit", "-5"], "--limit must be >= 1, got -5"),
        ([*RECORD, "--limit", "0"], "--limit must be >= 1, got 0"),
        ([*RECORD, "--contention", "-1"], "--contention must be >= 0, got -1"),
        ([*RECORD, "--workers", "0"], "--workers must be >= 1, got 0"),
        ([*RECORD, "--stop-after", "-1"], "--stop-after must be >= 1, got -1.0"),
        ([*RECORD, "--device", "3", "--devices", "0"], "--device names one GPU and --devices"),
        ([*RECORD, "--cache", "x"], "got x without --session"),
        (
            [*RECORD, "--session", "2026-11/28"],
            "name of a session is a part of paths, so",
        ),
        ([*RECORD, "--session", "../../escaped"], "letters, digits and _ . + -, got '../../esc"),
        ([*RECORD, "--session", ""], "name of a session is a part of paths"),
        (["convert", "softmax/4096x640", ".", "--format", "cache"], "got the folder .; name one"),
        (["convert", "x.json", "/", "--format", "t4"], "such as /landscape.json"),
        ([*INSPECT, "--workers", "0"], "--workers must be >= 1, got 0"),
        ([*INSPECT, "--max-spill-bytes", "-5"], "--max-spill-bytes must be >= 0, got -5"),
        ([*INSPECT, "--csv", "/"], "--csv must name a file in a folder that exists, got /"),
        ([*INSPECT, "--cache", __file__], "--cache must be a folder, or a name that is free"),
        ([*INSPECT, "--diff", "a", "b", "--json"], "--diff prints a text, got --json"),
        (["compare", "--figures", __file__], "--figures must be a folder, or a name that is free"),
        (["figures", "--directory", __file__], "--directory must be a folder, or a name that is"),
        (["datasheet", "--show", "--file", "x"], "--show writes nothing, got --file x"),
        (["publish", "headline", "--workers", "0", "--directory", "x"], "--workers must be >= 1"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    argv, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(argv) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_datasheet_or_a_comparison_of_nothing_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KT_LAB_DATA", str(tmp_path))
    for command in (["datasheet", "--show"], ["compare"]):
        assert cli.main(command) == 2
        assert f"got none in {tmp_path}: does KT_LAB_DATA fit?" in capsys.readouterr().err


def test_a_page_that_is_no_text_is_one_sentence_and_stays(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_bytes(b"\xff\xfe")
    assert cli.main(["datasheet", "--file", str(page)]) == 2
    assert "--file must be a page in UTF-8" in capsys.readouterr().err
    assert page.read_bytes() == b"\xff\xfe"


def test_an_unknown_name_survives_the_way_out_of_a_process():
    error = UnknownName("study", "headlin", ["headline"])
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (UnknownName, str(error))


@pytest.mark.parametrize("pair", ["seed=3", "budget=10", "prior=1"])
def test_what_is_the_runs_is_no_option_of_its_searcher(pair):
    with pytest.raises(UsageError, match=f"must be the searcher's, got '{pair}'.*--seed"):
        tune_command._options([pair])
    assert tune_command._options(["starts=4", "kind=a"]) == {"starts": 4, "kind": "a"}


@pytest.fixture
def piece(monkeypatch, tmp_path):
    """A piece of evidence that can be told to refuse; returns where its result goes."""

    ran = []

    def run(args):
        ran.append(args.number)
        if args.number < 1:
            raise UsageError("--number must be >= 1")
        return {"number": args.number}

    def add_arguments(parser):
        parser.add_argument("--number", type=int, default=1)

    told = SimpleNamespace(add_arguments=add_arguments, run=run, report=str)
    monkeypatch.setitem(sys.modules, "a_piece", told)
    monkeypatch.setitem(evidence.EVIDENCE, "cost", ("a_piece", "what this test makes"))
    return tmp_path / "new" / "newer" / "found.json", ran


def test_evidence_stores_its_result_where_it_is_told(piece):
    out, _ = piece
    assert cli.main(["evidence", "--out", str(out), "cost", "--number", "3"]) == 0
    assert json.loads(out.read_text()) == {"number": 3}
    assert [path.name for path in out.parent.iterdir()] == ["found.json"]


def test_evidence_that_refuses_leaves_no_folder(piece, capsys):
    out, ran = piece
    assert cli.main(["evidence", "--out", str(out), "cost", "--number", "0"]) == 2
    assert "--number must be >= 1" in capsys.readouterr().err
    assert ran == [0]
    assert not out.parent.parent.exists()


def test_evidence_that_could_not_be_stored_is_refused_before_it_runs(piece, tmp_path, capsys):
    _, ran = piece
    (tmp_path / "file").touch()
    for out, law in ((tmp_path, "--out must name a file"), (tmp_path / "file" / "a", "writable")):
        assert cli.main(["evidence", "--out", str(out), "cost"]) == 2
        assert law in capsys.readouterr().err
    assert ran == []

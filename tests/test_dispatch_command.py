"""The table of decisions from the command line: what is printed, stored, and refused."""

import argparse
import json
from dataclasses import replace

import pytest

from kt_lab import cli
from kt_lab.commands import dispatch as command
from kt_lab.decisions import load_winner, save_winner, winners
from kt_lab.dispatching import stored_dispatch
from kt_lab.errors import StoreError
from kt_lab.kernels import get_kernel, get_workload
from kt_lab.kernels.moe_spaces import published
from kt_lab.recorded_gpu import replayed
from kt_lab.trial import Config
from tests.moe_landscapes import latency_us, moe_landscape
from tests.test_dispatching import NOW

SHAPES = [f"jagged_rowwise/{n}" for n in ("16640x8192x1x1x1", "16640x8192x64x2x1")]
TUNE = [*SHAPES, "--space", "pr3952"]


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Calls the command with recordings in place of the GPU; returns its exit code."""
    opened = []
    made = [moe_landscape(get_workload(key), seed=i) for i, key in enumerate(SHAPES)]
    recorded = replayed(made)

    def runner(workload, *, space, **how):
        opened.append((workload.key, how))
        return recorded(workload, space=space)

    monkeypatch.setattr(command, "GpuRunner", runner)
    monkeypatch.setattr(command, "gpu_arch", lambda _: "sm_90")
    monkeypatch.setattr(command, "here", lambda *_, **__: NOW)

    def call(*words):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        return command.run(parser.parse_args([*words, "--directory", str(tmp_path)]))

    call.opened, call.directory = opened, tmp_path
    return call


def test_shapes_are_decided_stored_and_printed_as_a_table(asked, capsys):
    assert asked(*TUNE, "--device", "1", "--wait", "9") == 0
    said = capsys.readouterr().out
    assert said.count("replaced") == 2
    assert f"{SHAPES[0]}: 16 configs, on the GPU #1\n" in said
    assert "TOKENS  WIDTH" in said
    assert "other values of the key use the default of jagged_rowwise" in said
    assert {key for key, _ in asked.opened} == set(SHAPES)
    how = {"device": 1, "wait_s": 9.0, "protocol": "events", "compile_workers": None}
    assert all(given == how for _, given in asked.opened)
    assert [key for key, _, _ in winners(asked.directory)] == SHAPES


def test_what_is_stored_is_told_without_opening_the_gpu(asked, capsys):
    asked(*TUNE, "--json")
    tuned = json.loads(capsys.readouterr().out)
    asked.opened.clear()
    assert asked("jagged_rowwise", "--stored", "--json") == 0
    assert json.loads(capsys.readouterr().out) == tuned
    assert asked.opened == []
    assert (tuned["kernel"], tuned["gpu"], len(tuned["table"])) == ("jagged_rowwise", "h200", 2)
    table = stored_dispatch("jagged_rowwise", directory=asked.directory, **NOW)
    for key, row in zip(SHAPES, tuned["table"], strict=True):
        workload = get_workload(key)
        picked = table.config(workload, get_kernel("jagged_rowwise").space(workload).default)
        assert picked == Config(row["config"])
        best = min(latency_us(c, workload) for c in published("jagged_rowwise", "pr3952"))
        assert latency_us(picked, workload) <= 1.02 * best


def test_one_config_for_all_shapes_and_a_shorter_key(asked, capsys):
    assert asked(*TUNE, "--configs", "1", "--key", "WIDTH", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["table"]
    assert row["key"] == [8192]
    assert Config(row["config"]) in published("jagged_rowwise", "pr3952")


def test_shapes_that_share_a_value_of_the_key_and_differ_are_not_called_undecided(asked, capsys):
    asked(*TUNE, "--json")
    capsys.readouterr()
    first, other = (load_winner(key, directory=asked.directory) for key in SHAPES)
    (unlike,) = {c for c in published("jagged_rowwise", "original") if c != other.config}
    save_winner(replace(first, config=unlike), asked.directory)
    assert asked(*SHAPES, "--stored", "--key", "WIDTH") == 0
    said = capsys.readouterr().out
    assert f"no one config is decided, so that the default is used: {', '.join(SHAPES)}\n" in said
    assert "no one config of jagged_rowwise is decided on h200: use the default" in said


def test_of_shapes_that_are_named_only_theirs_is_told(asked, capsys):
    asked(*TUNE, "--json")
    capsys.readouterr()
    other = "jagged_rowwise/16640x8192x32x1x1"
    assert asked(SHAPES[0], other, "--stored", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["table"]
    assert row["key"][2:5] == [1, 1, 1]
    assert asked(SHAPES[0], other, "--stored") == 0
    said = capsys.readouterr().out
    assert f"no one config is decided, so that the default is used: {other}\n" in said
    assert asked(other, "--stored") == 0
    assert "no one config of jagged_rowwise is decided on" in capsys.readouterr().out


def test_a_stale_decision_is_refused_and_named(asked, monkeypatch, capsys):
    asked(*TUNE, "--json")
    monkeypatch.setattr(command, "here", lambda *_, **__: NOW | {"triton": "9.9"})
    with pytest.raises(StoreError, match=r"jagged_rowwise/16640x8192x1x1x1 .*Triton|triton"):
        asked("jagged_rowwise", "--stored")
    monkeypatch.setattr(command, "here", lambda *_, **__: NOW | {"gpu": None})
    assert asked("jagged_rowwise", "--stored") == 0
    assert "no one config of jagged_rowwise is decided on this machine" in capsys.readouterr().out
    assert asked(SHAPES[0], "--stored", "--key", "WIDTH", "gpu") == 0
    assert f"so that the default is used: {SHAPES[0]}\n" in capsys.readouterr().out


def test_where_there_is_nothing_to_tune_it_says_so(asked, monkeypatch, capsys):
    monkeypatch.setattr(command, "gpu_arch", lambda _: "sm_75")
    assert asked(*SHAPES) == 0
    said = capsys.readouterr().out
    assert "there is nothing to tune of jagged_rowwise on sm_75: its spaces were publ" in said
    assert f"kt-lab tune {SHAPES[0]} searches all of its space" in said
    assert asked.opened == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["softmax", "matmul"], "a table is of one kernel, got shapes of matmul, softmax"),
        (["softmax", "--key", "Q"], "a tuning key's argument of softmax must be one of"),
        (["softmax/4096x640", "--device", "7"], "got no GPU with index 7"),
        (["softmax/4096"], "a shape of softmax must have the extents M x N"),
    ],
)
def test_a_mistake_is_one_sentence(words, said, monkeypatch, capsys):
    monkeypatch.setattr(command, "gpu_arch", lambda _: None)
    assert cli.main(["dispatch", *words]) == 2
    assert said in capsys.readouterr().err

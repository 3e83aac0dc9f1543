"""The evidence of the dojo's learners: every part is run, measured once, and told."""

import argparse
import json
import zlib
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from kt_lab.errors import UsageError
from kt_lab.evidence import dojo_figures, learners, players
from kt_lab.evidence.playing import Field, shaped
from kt_lab.programs.operators import get_operator
from kt_lab.programs.space import ScheduleSpace
from tests.queued import Queued

pytest.importorskip("torch")
pytest.importorskip("safetensors")


@contextmanager
def made_up_arena(workload, args):  # noqa: ARG001 - what the real one takes
    operator = get_operator(workload.kernel)
    space = ScheduleSpace(operator.program(workload.extents), longest=4)

    def latency_us(config):
        return 10.0 + zlib.crc32(space.key(config).encode()) % 1000

    runner = Queued(latency_us, space=space, workload=SimpleNamespace(key=workload.key))
    yield Field(runner, space, space.default, 1.0), 1000.0


def asked(out, *arguments):
    parser = argparse.ArgumentParser()
    learners.add_arguments(parser)
    given = parser.parse_args([str(a) for a in arguments])
    given.out = out
    return given


def test_every_part_is_measured_once_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(learners, "arena", made_up_arena)
    monkeypatch.setattr(players, "arena", made_up_arena)
    out = tmp_path / "learners.json"
    small = ("--operators", "row_sum", "--size", "tiny", "--budget", 4)
    small += ("--seeds", 1, "--rounds", 1, "--samples", 2, "--train", "row_sum", "softmax")
    small += ("--unseen", "multiply", "--players", "max_q_dqn", "annealing")
    small += ("--shapes", "row_sum/7x9", "softmax/5x6")
    first = learners.run(asked(out, *small, "--encoders", "structure"))
    found = {(r["part"], r["workload"].split("/")[0], r["player"]) for r in first["rows"]}
    carried = {("transfer", w, how) for w in ("multiply", "row_sum", "softmax")
               for how in ("scratch", "frozen", "tuned")}  # fmt: skip
    assert found == carried | {
        ("curves", "row_sum", "max_q_dqn"),
        ("curves", "row_sum", "annealing"),
        ("training", "row_sum+softmax", "max_q_dqn"),
        ("encoders", "row_sum", "structure"),
    }
    assert all(row["programs"] <= 4 for row in first["rows"] if row["part"] != "training")
    [training] = [row for row in first["rows"] if row["part"] == "training"]
    assert [turn["workload"].split("/")[0] for turn in training["curve"]] == ["row_sum", "softmax"]
    assert learners.policy_path(asked(out, *small), 0).exists()
    stored = json.loads(out.read_text())["rows"]
    again = learners.run(asked(out, *small, "--encoders", "structure", "--parts", "curves"))
    assert again["rows"] == stored
    told = learners.report(first)
    assert "transfer:" in told
    assert "trained with seed 0" in told


def test_one_stored_policy_plays_other_shapes_without_a_training(tmp_path, monkeypatch):
    monkeypatch.setattr(learners, "arena", made_up_arena)
    monkeypatch.setattr(players, "arena", made_up_arena)
    common = ("--size", "tiny", "--budget", 4, "--rounds", 1, "--train", "row_sum")
    first = asked(tmp_path / "first.json", *common, "--parts", "training", "--seeds", 1)
    learners.run(first)
    kept = learners.policy_path(first, 0)
    shapes = ("--parts", "transfer", "--unseen", "--shapes", "row_sum/7x9", "row_sum/3x4")
    args = asked(tmp_path / "b.json", *common, *shapes, "--policy", kept, "--seeds", 2)
    found = learners.run(args)["rows"]
    assert {row["part"] for row in found} == {"transfer"}
    assert {row["workload"] for row in found} == {"row_sum/7x9", "row_sum/3x4"}
    assert len(found) == 2 * 2 * 3
    assert not learners.policy_path(args, 0).exists()


@pytest.mark.parametrize("key", ["row_sum/7", "row_sum/7x0", "row_sum/7xa", "row_sum"])
def test_a_shape_names_every_extent(key):
    with pytest.raises(
        UsageError, match=r"a shape of row_sum is row_sum/\w+x\w+ in whole numbers"
    ):
        shaped(key)


@pytest.mark.parametrize("kept", [False, True])
def test_a_lesson_is_drawn_from_what_is_stored_or_from_a_short_training(
    tmp_path, monkeypatch, kept
):
    monkeypatch.setattr(learners, "arena", made_up_arena)
    monkeypatch.setattr(players, "arena", made_up_arena)
    result = None
    if kept:
        monkeypatch.setattr(learners, "data_directory", lambda: tmp_path)
        (tmp_path / "evidence").mkdir()
        small = ("--parts", "transfer", "--size", "tiny", "--budget", 4)
        small += ("--seeds", 1, "--rounds", 1, "--train", "row_sum", "--unseen", "multiply")
        result = learners.run(asked(tmp_path / "evidence" / "learners.json", *small))
    found = learners.lesson(result, "row_sum/512x1024", "multiply/65536", budget=4)
    assert [turn["round"] for turn in found["curve"]] == ([0] if kept else [0, 1, 2])
    walk = found["walk"]
    assert walk["move"].iloc[0] == "start"
    assert walk["speedup"].tolist() == pytest.approx(
        (walk["latency_us"].iloc[0] / walk["latency_us"]).tolist()
    )
    assert 1 < len(walk) <= 25
    assert {row["player"] for row in found["rows"] if row["part"] == "transfer"} == {
        "scratch",
        "frozen",
        "tuned",
    }
    drawing = dojo_figures.training_figure(found)
    assert drawing.points["best_speedup"].gt(0).all()
    assert "One network trained on 1 workload" in drawing.caption
    assert len(dojo_figures.learners_figure(found, "transfer").points)

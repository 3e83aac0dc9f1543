"""Controls say what a searcher's options and a space's values are, and are set exactly."""

import dataclasses
import re
import typing

import ipywidgets as w
import numpy as np
import pytest

from kt_lab import Integer, ParameterSpace, get_kernel, get_workload
from kt_lab.constraints import Constraint
from kt_lab.errors import SpaceError, UnknownName, UsageError
from kt_lab.runners.workers import usable_cores
from kt_lab.search import get_searcher, searchers
from kt_lab.search.peers import PEERS
from kt_lab.ui.compare_choice import CompareOptions
from kt_lab.ui.controls import OptionControls, RunOptions, ValueControls
from kt_lab.ui.restriction import count_text, restrict

KEYS = ("softmax/4096x640", "int4_gemm/1x1x7168x8192")
KINDS = {name: get_searcher(name).Options for name in (*searchers(), *PEERS)}


def space_of(key):
    workload = get_workload(key)
    return get_kernel(workload.kernel).space(workload)


def other(field, value):
    """A legal value of an option that is neither `value` nor, where possible, its default."""
    kinds = typing.get_args(field.type) or (field.type,)
    choices, low, high = (field.metadata[k] for k in ("choices", "low", "high"))
    if choices is not None:
        return next(c for c in reversed(choices) if c != value or len(choices) == 1)
    if bool in kinds:
        return not value
    low, high = (0 if low is None else low), (1000 if high is None else high)
    middle = (low + high) / 2 if float in kinds else (low + high) // 2
    return middle if middle != value else high


@pytest.mark.parametrize("name", KINDS)
def test_options_go_in_and_come_out_as_they_are(name):
    kind = KINDS[name]
    controls = OptionControls(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    assert set(controls.value) == set(fields), "every option of a shipped searcher has a widget"
    assert kind(**controls.value) == kind()
    changed = {n: other(f, f.default) for n, f in fields.items()}
    kind(**changed)
    controls.value = changed
    assert controls.value == changed
    assert [type(v) for v in controls.value.values()] == [type(v) for v in changed.values()]
    controls.reset()
    assert kind(**controls.value) == kind()


@pytest.mark.parametrize("kind", [*KINDS.values(), RunOptions])
def test_every_option_is_told_by_name_unit_and_tooltip(kind):
    controls = OptionControls(kind)
    for field in dataclasses.fields(kind):
        box = controls._rows[field.name].box
        assert re.sub("<[^>]*>", "", box.children[0].description) == field.name
        assert box.children[0].tooltip == field.metadata["doc"]
        assert box.children[1].value == field.metadata["unit"]
        for bound, trait in (("low", "min"), ("high", "max")):
            if field.metadata[bound] is not None:
                assert getattr(box.children[0], trait) == field.metadata[bound]


def test_a_none_is_a_box_that_is_not_ticked():
    controls = OptionControls(get_searcher("differential_evolution").Options)
    number, _, used = controls._rows["patience"].box.children
    assert controls.value["patience"] is None
    assert number.disabled
    used.value = True
    number.value = 7
    assert controls.value["patience"] == 7
    assert not number.disabled
    used.value = False
    assert controls.value["patience"] is None


@pytest.mark.parametrize(
    ("kind", "name", "first"),
    [
        (RunOptions, "seconds", 60.0),
        (CompareOptions, "seconds", 60.0),
        (CompareOptions, "workers", usable_cores()),
    ],
)
def test_an_option_that_is_set_starts_from_a_value_to_work_with(kind, name, first):
    controls = OptionControls(kind)
    assert controls.value[name] is None
    controls._rows[name].box.children[2].value = True
    assert controls.value[name] == first


def test_options_that_break_a_law_change_nothing():
    controls = OptionControls(get_searcher("pattern").Options, value={"copies": 3})
    for wrong, error in (({"copys": 1}, UnknownName), ({"copies": 0}, UsageError)):
        with pytest.raises(error):
            controls.value = wrong
    assert controls.value["copies"] == 3


def test_the_reset_button_resets():
    controls = OptionControls(get_searcher("pattern").Options, value={"copies": 3})
    reset = controls.box.children[-1]
    assert isinstance(reset, w.Button)
    reset.click()
    assert controls.value["copies"] == get_searcher("pattern").Options().copies


@pytest.mark.parametrize("key", KEYS)
def test_the_count_of_valid_configs_is_exact(key):
    space = space_of(key)
    controls = ValueControls(space)
    assert controls.count.value == f"{space.size:,} valid configs"
    configs = space.configs(space.enumerate())
    rng = np.random.default_rng(0)
    for _ in range(6):
        allowed = {
            p.name: [v for v in p.values if rng.random() < 0.7] or [p.values[0]]
            for p in space.parameters
        }
        for name, values in allowed.items():
            at = space.names.index(name)
            indices = tuple(space.parameters[at].index(v) for v in values)
            controls._lists[name].value = indices
        kept = [c for c in configs if all(c[n] in v for n, v in allowed.items())]
        assert controls.count.value == f"{len(kept):,} valid configs"
        if kept:
            restricted = restrict(space, controls.value)
            assert restricted.size == len(kept)
            assert set(restricted.configs(restricted.enumerate())) == set(kept)
    controls.reset()
    assert controls.value == {}
    assert controls.count.value == f"{space.size:,} valid configs"


def test_allowing_everything_is_the_space_itself_and_nothing_is_refused():
    space = space_of(KEYS[0])
    assert restrict(space, {}) is space
    assert restrict(space, {"num_warps": (1, 2, 4, 8, 16, 32)}) is space
    controls = ValueControls(space, value={"num_warps": []})
    assert controls.count.value == "0 valid configs"
    with pytest.raises(SpaceError, match="allow more values"):
        restrict(space, controls.value)
    with pytest.raises(SpaceError, match="num_warps must be one of"):
        controls.value = {"num_warps": [3]}
    with pytest.raises(UnknownName, match="num_warps"):
        controls.value = {"num_warp": [4]}
    assert controls.value == {"num_warps": []}


def test_a_huge_space_has_more_than_what_was_counted():
    names = [f"P{i}" for i in range(8)]
    even = Constraint("even", "P0 % 2 == 0", "P0 must be even")
    huge = ParameterSpace(
        [Integer(n, 0, 9) for n in names], constraints=[even], default=dict.fromkeys(names, 0)
    )
    told = ValueControls(huge).count.value
    assert told.startswith("more than ")
    assert 90_000 < int(told.split()[2].replace(",", "")) < 5 * 10**7
    some = {n: [1] for n in names[:3]}
    assert count_text(huge, some) == "0 valid configs"
    some["P0"] = [2, 3, 4]
    assert count_text(huge, some) == "200,000 valid configs"
    assert restrict(huge, some).size == 200_000
    with pytest.raises(SpaceError, match="allow fewer values"):
        restrict(huge, {"P0": [2]})

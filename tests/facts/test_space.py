import json
import pickle

import numpy as np
import pytest

from kt_lab.errors import SpaceError
from kt_lab.parameters import Ordered
from kt_lab.rows import distinct
from kt_lab.space import Choice, Constraint, Flag, Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Config


def _space(**changes):
    arguments = {
        "parameters": [
            PowerOfTwo("BLOCK", 16, 128, role="tile"),
            Choice("EVICTION", ("", "evict_first", "evict_last")),
            Integer("num_stages", 1, 4, role="stages"),
            Flag("SWIZZLE"),
        ],
        "constraints": [
            Constraint("fits", "BLOCK * num_stages <= 256", "tiles in flight must fit"),
            Constraint("swizzled", "not SWIZZLE or BLOCK >= 32", "a swizzle needs 32 columns"),
        ],
        "default": {"BLOCK": 32, "EVICTION": "", "num_stages": 2, "SWIZZLE": False},
        "constants": {"N": 640},
    }
    arguments |= changes
    return ParameterSpace(arguments.pop("parameters"), **arguments)


def test_members_are_exactly_the_configs_that_obey_every_constraint():
    space = _space()
    found = {tuple(c.values()) for c in space.configs(space.enumerate())}
    expected = {
        (block, eviction, stages, swizzle)
        for block in (16, 32, 64, 128)
        for eviction in ("", "evict_first", "evict_last")
        for stages in (1, 2, 3, 4)
        for swizzle in (False, True)
        if block * stages <= 256 and (not swizzle or block >= 32)
    }
    assert found == expected
    assert space.size == len(expected)


def test_membership_is_the_same_before_and_after_enumeration():
    rows = np.indices((4, 3, 4, 2)).reshape(4, -1).T
    lazy, listed = _space(), _space()
    listed.enumerate()
    assert listed._codes is not None
    np.testing.assert_array_equal(lazy.valid(rows), listed.valid(rows))


def test_rows_configs_and_indices_are_inverse():
    space = _space()
    configs = space.configs(space.enumerate())
    np.testing.assert_array_equal(space.rows(configs), space.enumerate())
    assert [space.index(c) for c in configs] == list(range(space.size))


def test_neighbours_differ_in_one_parameter_and_are_valid():
    space = _space()
    for config in space.configs(space.enumerate()):
        around = space.neighbours(config)
        assert len(set(around)) == len(around)
        for other in around:
            assert space.contains(other)
            changed = [n for n in space.names if other[n] != config[n]]
            assert len(changed) == 1
            if changed[0] == "BLOCK":
                assert {other["BLOCK"] / config["BLOCK"]} <= {0.5, 2.0}


def test_an_unordered_choice_reaches_every_value_at_radius_one():
    assert Choice("E", ("a", "b", "c", "d")).neighbours(0, 1) == (1, 2, 3)
    assert Integer("s", 1, 9).neighbours(4, 2) == (2, 3, 5, 6)


def test_encoding_is_log2_numbers_and_one_hot():
    space = _space()
    encoded = space.encode(
        [{"BLOCK": 64, "EVICTION": "evict_last", "num_stages": 3, "SWIZZLE": 1 == 1}]
    )
    np.testing.assert_array_equal(encoded, [[6, 0, 0, 1, 3, 1]])


def test_sampling_is_uniform_over_valid_configs():
    space = _space()
    draws = space.sample_rows(40_000, rng=np.random.default_rng(0))
    counts = np.bincount(space.indices(draws), minlength=space.size)
    expected = 40_000 / space.size
    assert abs(counts - expected).max() < 6 * np.sqrt(expected)


def test_repair_goes_to_the_nearest_valid_row():
    space = _space()
    row = space.row({"BLOCK": 128, "EVICTION": "", "num_stages": 3, "SWIZZLE": False})
    assert not space.valid(row[None, :])[0]
    repaired = space.config(space.repair(row))
    assert space.contains(repaired)
    assert repaired["EVICTION"] == ""
    assert {repaired["BLOCK"], repaired["num_stages"]} in ({64, 3}, {128, 2})


def test_nearest_unseen_exhausts_the_space_and_then_says_so():
    space = _space()
    seen = set()
    while (config := space.nearest_unseen(space.default, seen)) is not None:
        assert space.contains(config)
        assert config not in seen
        seen.add(config)
    assert len(seen) == space.size


def test_fingerprint_follows_values_and_constraints_only():
    assert _space().fingerprint == _space().fingerprint
    other_default = {"BLOCK": 16, "EVICTION": "", "num_stages": 1, "SWIZZLE": False}
    assert _space(default=other_default).fingerprint == _space().fingerprint
    assert _space(constants={"N": 512}).fingerprint != _space().fingerprint
    assert _space(constraints=[]).fingerprint != _space().fingerprint


def test_numbers_of_numpy_come_back_from_a_file_as_numbers():
    made = ParameterSpace(
        [
            Choice("A", tuple(2 ** np.arange(4, 7))),
            PowerOfTwo("B", np.int64(1), np.int64(8)),
            Ordered("C", tuple(np.array([1.5, 2.5]))),
        ],
        default={"A": 16, "B": 1, "C": 1.5},
    )
    text = json.dumps(made.describe())  # which takes no number of numpy
    copy = ParameterSpace.from_description(json.loads(text))
    assert copy.fingerprint == made.fingerprint
    assert [p.values for p in copy.parameters] == [(16, 32, 64), (1, 2, 4, 8), (1.5, 2.5)]
    assert copy.contains({"A": 32, "B": 2, "C": 2.5})


def test_a_space_survives_description_and_pickling():
    space = _space()
    for copy in (
        ParameterSpace.from_description(space.describe()),
        pickle.loads(pickle.dumps(space)),
    ):
        assert copy.fingerprint == space.fingerprint
        assert copy.default == space.default
        np.testing.assert_array_equal(copy.enumerate(), space.enumerate())


def test_a_huge_space_is_used_without_being_enumerated():
    names = [f"p{i}" for i in range(12)]
    space = ParameterSpace(
        [Integer(n, 0, 9) for n in names],
        constraints=[Constraint("half", "p0 + p1 < 9")],
        default=dict.fromkeys(names, 0),
    )
    assert space.cartesian_size == 10**12
    for config in space.sample(50, rng=np.random.default_rng(1)):
        assert space.contains(config)
        assert all(space.contains(n) for n in space.neighbours(config))
    nearest = space.nearest_unseen(space.default, {space.default})
    assert sum(nearest.values()) == 1
    with pytest.raises(SpaceError, match=r"at most 1,000,000 points"):
        space.enumerate()


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"parameters": []}, "at least one parameter"),
        ({"parameters": [Flag("A"), Flag("A")]}, "distinct names"),
        ({"default": {"BLOCK": 48}}, "must assign exactly"),
        (
            {"default": {"BLOCK": 48, "EVICTION": "", "num_stages": 1, "SWIZZLE": False}},
            r"BLOCK must be one of \(16, 32, 64, 128\), got BLOCK=48",
        ),
        (
            {"default": {"BLOCK": 128, "EVICTION": "", "num_stages": 4, "SWIZZLE": False}},
            "tiles in flight must fit .* got BLOCK=128, num_stages=4",
        ),
        ({"constants": {"BLOCK": 4}}, r"a constant must not have a parameter's name, .*BLOCK"),
        ({"constraints": [Constraint("never", "BLOCK > 1000")]}, "leave at least one config"),
        ({"constraints": [Constraint("typo", "BLOK > 16")]}, "parameters and constants only"),
        (
            {"constraints": [Constraint("a", "BLOCK > 1"), Constraint("a", "BLOCK > 2")]},
            "constraints must have distinct names",
        ),
    ],
)
def test_a_bad_space_is_refused_with_its_law(changes, law):
    with pytest.raises(SpaceError, match=law):
        _space(**changes)


@pytest.mark.parametrize(
    ("make", "law"),
    [
        (lambda: Choice("E", ()), "at least one value"),
        (lambda: Choice("E", ("a", "a")), "distinct values"),
        (lambda: Choice("E", ("a", {"b": 1})), "None or tuples of these as values, got .*; let a"),
        (lambda: Choice("E", ((1, 2), (b"2", 1))), "tuples of these as values"),
        (lambda: Choice("E", ("a", b"b")), "tuples of these as values"),
        (lambda: Choice("E", ((1, 2), (True, 2))), "distinct values"),
        (lambda: PowerOfTwo("B", 3, 8), "bounded by powers of two, got low=3"),
        (lambda: PowerOfTwo("B", 16, 64.5), "bounded by powers of two, got low=16, high=64.5"),
        (lambda: PowerOfTwo("B", 0, 8), "bounded by powers of two, got low=0"),
        (lambda: PowerOfTwo("B", 16, "64"), "bounded by powers of two"),
        (lambda: PowerOfTwo("B", 8, 4), "at least one value"),
        (lambda: Integer("a b", 0, 1), "must be an identifier"),
        (lambda: Flag("F", role="speed"), "role must be one of"),
        (lambda: Choice("A", "row"), r"A must list its values in their order, .* got 'row'"),
        (lambda: Choice("A", {"x", "y"}), "A must list its values in their order"),
        (lambda: Choice("A", 3), "A must list its values in their order, .* got 3"),
        (lambda: Choice("A", (1, 1.0)), "distinct values"),
        (lambda: Choice("A", (1, True)), r"got \(1, True\); 1, 1.0 and True are one.*: leave"),
        (lambda: Choice("A", (False, "a", 0)), "distinct values"),
        (lambda: Choice("A", (float("nan"), 1)), "distinct values"),
        (lambda: Ordered("A", "abc"), "A must list its values in their order"),
        (lambda: Ordered("A", (3, "a")), "ascending numbers"),
        (lambda: Integer("A", 1.5, 4), "integer bounds, got low=1.5"),
        (lambda: Integer("A", 1, "4"), "integer bounds, got high='4'"),
    ],
)
def test_a_bad_parameter_is_refused_with_its_law(make, law):
    with pytest.raises(SpaceError, match=law):
        make()


@pytest.mark.parametrize("most", [2, 300, 70_000])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_distinct_rows_are_those_of_numpy_in_its_order(n, most):
    rows = np.random.default_rng(n).integers(most, size=(n, 3))
    rows = np.concatenate([rows, rows[: n // 2], rows % 257])
    np.testing.assert_array_equal(distinct(rows), np.unique(rows, axis=0))


@pytest.mark.parametrize(
    "given", [["BLOCK * 2 <= 64"], "BLOCK * 2 <= 64", [lambda _: True], lambda _: True]
)
def test_a_constraint_that_is_none_is_told_how_it_is_written(given):
    with pytest.raises(SpaceError, match=r"Constraint\(name, expression\), got .*; write \["):
        _space(constraints=given)


def test_a_missing_default_is_told():
    with pytest.raises(SpaceError, match=r"the default must be a valid config.*missing \['BLOCK'"):
        ParameterSpace([PowerOfTwo("BLOCK", 16, 128)])


def test_sampling_says_so_where_hardly_anything_is_valid():
    for law, found in (("a == b and c <= 8", "[1-9]"), ("a == b and b == c and c < 9", "0")):
        space = ParameterSpace(
            [Integer(name, 1, 2000) for name in "abc"],
            constraints=[Constraint("rare", law, "hardly ever")],
            default=dict.fromkeys("abc", 1),
        )
        with pytest.raises(SpaceError, match=f"must find valid configs, got {found} of 4,096 in"):
            space.sample_rows(4096, rng=np.random.default_rng(0))


def test_values_by_name_are_no_parameters():
    with pytest.raises(SpaceError, match=r"parameters must be a list of Parameter, got \{'B'"):
        ParameterSpace({"B": [1, 2]}, default={"B": 1})


def test_laws_of_large_numbers_are_those_of_python():
    space = ParameterSpace(
        [Integer("n", 0, 10**9, 10**9 // 2), Integer("m", 0, 10**10, 10**10)],
        constraints=[
            Constraint("c", "n * m * 2 >= 0 and next_power_of_two(n) >= n >= cdiv(n, 3)")
        ],
        default={"n": 0, "m": 0},
    )
    assert space.size == space.cartesian_size == 6


def test_a_parameter_alone_is_no_list():
    with pytest.raises(SpaceError, match=r"must be a list of Parameter, got PowerOfTwo"):
        ParameterSpace(PowerOfTwo("A", 16, 64), default={"A": 16})


def test_a_flag_is_no_number_that_equals_it():
    choice = Choice("A", (0, 2, True))
    assert [choice.index(value) for value in choice.values] == [0, 1, 2]
    for value in (False, 1):
        with pytest.raises(SpaceError, match=f"got A={value!r}"):
            choice.index(value)


def test_values_of_every_kind_come_back_from_a_file_and_stay_apart():
    values = ("1", "", "None", None, True, 0, 2, 1.5, -1e300, float("inf"), (64, 128), ((1, 2),))
    space = ParameterSpace([Choice("A", values), Flag("B")], default={"A": "", "B": True})
    again = ParameterSpace.from_description(json.loads(json.dumps(space.describe())))
    assert list(map(repr, again.parameters[0].values)) == list(map(repr, values))
    assert again.fingerprint == space.fingerprint
    configs = [again.config(row) for row in again.enumerate()]
    assert len(set(configs)) == again.size == 24
    assert [Config(json.loads(json.dumps(dict(config)))) for config in configs] == configs


def test_constants_of_numpy_are_the_numbers_that_they_are():
    given = {"N": np.int64(640)}  # as np.prod of a shape is
    assert _space(constants=given).fingerprint == _space().fingerprint
    written = json.dumps(_space(constants=given).describe())
    assert ParameterSpace.from_description(json.loads(written)).constants == {"N": 640}


def test_a_sample_of_none_is_empty_also_where_nothing_is_listed():
    names = [f"p{i}" for i in range(8)]
    space = ParameterSpace([Integer(n, 0, 9) for n in names], default=dict.fromkeys(names, 0))
    assert not space.enumerable
    assert space.sample(0, rng=np.random.default_rng(0)) == []


def test_where_hardly_anything_is_valid_fewer_rows_than_asked_for_may_do():
    names = [f"p{i}" for i in range(7)]
    laws = [Constraint("c", "p0 == 0 and p1 == 1 and p2 == 2 and p3 == 3")]  # 1 in 10,000
    default = dict(zip(names, range(7), strict=True))
    space = ParameterSpace([Integer(n, 0, 9) for n in names], constraints=laws, default=default)
    drawn = space.sample_rows(10**4, rng=np.random.default_rng(0), most=10**5)
    assert 1 <= len(drawn) < 100
    assert space.valid(drawn).all()
    one = space.sample_rows(1, rng=np.random.default_rng(0), most=1)
    np.testing.assert_array_equal(one, drawn[:1])  # at least one, and the same draws


def test_the_nearest_of_few_valid_configs_is_looked_for_in_blocks_in_the_same_order(monkeypatch):
    names = [f"p{i}" for i in range(10)]
    law = Constraint("c", "p0 + p1 + p2 == 2 and p4 == p5")
    default = dict.fromkeys(names, 0) | {"p0": 2}
    space = ParameterSpace([Integer(n, 0, 9) for n in names], constraints=[law], default=default)
    calls, obeys = [], ParameterSpace._obeys
    monkeypatch.setattr(
        ParameterSpace, "_obeys", lambda self, rows: calls.append(len(rows)) or obeys(self, rows)
    )
    row = np.asarray([2, 1, 1, 0, 3, 5, 0, 9, 4, 0])
    around = np.asarray(list(space._outward(row, most=2**16)))
    expected = space.configs(around[obeys(space, around)])
    assert space.nearest_unseen(space.config(row), ()) == expected[0]
    assert space.nearest_unseen(space.config(row), set(expected[:40])) == expected[40]
    assert space.nearest_unseen(space.config(row), set(expected)) is None
    assert space.config(space.repair(row)) == expected[0]
    assert len(calls) < 100 < len(around)

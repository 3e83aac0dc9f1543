"""Initial populations: uniform draws, and Helion's shrunk ones."""

import numpy as np
import pytest

from kt_lab.prior import Prior, PriorReading
from kt_lab.search.conformance_cases import huge_space, small_space, tiny_space
from kt_lab.search.starts import Shrink, starts, uniform
from kt_lab.space import Choice, Constraint, Integer, ParameterSpace, PowerOfTwo
from kt_lab.trial import Config


def tiles(**more):
    return ParameterSpace(
        [
            PowerOfTwo("A", 1, 4096, role="tile"),
            PowerOfTwo("B", 16, 4096, role="tile"),
            PowerOfTwo("num_warps", 1, 32, role="warps"),
        ],
        default={"A": 1, "B": 16, "num_warps": 1},
        **more,
    )


class Cap:
    """Stands in for the generator: every row gets the same exponent."""

    def __init__(self, exponent):
        self.exponent = exponent

    def integers(self, low, high, size):
        assert (low, high) == (0, 12)
        return np.full(size, self.exponent)


def test_uniform_yields_every_config_once():
    space = small_space()
    configs = list(uniform(space, rng=np.random.default_rng(0)))
    assert len(configs) == len(set(configs)) == space.size
    assert configs != list(uniform(space, rng=np.random.default_rng(1)))


def test_uniform_is_uniform():
    space = tiny_space(4)
    first = [next(uniform(space, rng=np.random.default_rng(s)))["step"] for s in range(400)]
    assert np.bincount(first).min() > 70  # expected 100


def test_uniform_on_a_huge_space_never_repeats():
    configs = uniform(huge_space(), rng=np.random.default_rng(0))
    found = [next(configs) for _ in range(2000)]
    assert len(set(found)) == 2000


def test_uniform_ends_where_sampling_brings_nothing_new():
    class Sampled:
        """A Space that cannot be listed."""

        inner = tiny_space(30)

        def sample(self, n, *, rng):
            return self.inner.sample(n, rng=rng)

    configs = list(uniform(Sampled(), rng=np.random.default_rng(0)))
    assert len(configs) == len(set(configs)) == 30


@pytest.mark.parametrize(
    ("values", "exponent", "shrunk"),
    [
        ((64, 64, 1), 11, (64, 64)),  # 4096 elements <= 2048 * 32: fits
        ((64, 64, 1), 5, (32, 32)),  # cap 1024: both halved once
        ((64, 64, 4), 5, (64, 64)),  # cap 4096: fits exactly
        ((4096, 16, 1), 0, (2, 16)),  # cap 32: B is at its minimum, A goes on alone
        ((4096, 4096, 32), 11, (1024, 1024)),  # 2**21 per block, but tensors end at 2**20
        ((2048, 1024, 32), 11, (1024, 512)),  # the cap 2**21 would allow it, Triton does not
        ((1, 16, 1), 0, (1, 16)),  # fits
        ((4096, 4096, 1), 0, (2, 16)),  # cap 32
    ],
)
def test_shrink_halves_all_tiles_together_until_they_fit(values, exponent, shrunk):
    space = tiles()
    row = space.row(dict(zip(space.names, values, strict=True)))
    found = space.config(Shrink(space)(row[None, :], Cap(exponent))[0])
    assert (found["A"], found["B"]) == shrunk
    assert found["num_warps"] == values[2]


def test_shrink_stops_where_nothing_can_be_halved():
    space = ParameterSpace(
        [PowerOfTwo("A", 1024, 4096, role="tile"), PowerOfTwo("w", 1, 2, role="warps")],
        default={"A": 1024, "w": 1},
    )
    assert Shrink(space)(np.array([[2, 0]]), Cap(0)).tolist() == [[0, 0]]


def test_shrink_knows_tiles_that_are_no_powers_of_two():
    space = ParameterSpace(
        [Choice("A", (96, 256, 48, 160), role="tile"), PowerOfTwo("w", 1, 2, role="warps")],
        default={"A": 48, "w": 1},
    )
    row = space.row({"A": 256, "w": 1})[None, :]
    assert space.config(Shrink(space)(row, Cap(2))[0])["A"] == 96  # cap 128; 96 <= 128
    assert space.config(Shrink(space)(row, Cap(1))[0])["A"] == 48  # cap 64


def test_shrink_leaves_spaces_without_roles_alone():
    space = huge_space()
    rows = space.sample_rows(5, rng=np.random.default_rng(0))
    assert (Shrink(space)(rows, Cap(0)) == rows).all()


@pytest.mark.parametrize("rule", ["helion", "uniform"])
def test_starts_are_the_default_the_prior_and_random_members(rule):
    space = small_space()
    known = space.configs(space.enumerate()[[7, 90, 7]])
    foreign = Config(elsewhere=1)
    prior = Prior(tuple(PriorReading(c, 1.0, "k/w", "g") for c in [known[0], foreign, *known]))
    found = starts(space, 60, rule=rule, rng=np.random.default_rng(0), prior=prior)
    assert found[:3] == [space.default, known[0], known[1]]
    assert len(found) == len(set(found)) <= 60
    assert len(found) > 40
    assert all(map(space.contains, found))


def test_helion_starts_are_shrunk_and_uniform_starts_are_not():
    space = tiles()
    sizes = {}
    for rule in ("helion", "uniform"):
        found = starts(space, 200, rule=rule, rng=np.random.default_rng(0))
        sizes[rule] = np.median([c["A"] * c["B"] for c in found])
        if rule == "helion":
            assert all(c["A"] * c["B"] <= max(2**16 * c["num_warps"], 16) for c in found)
    assert sizes["helion"] * 2 < sizes["uniform"]


def test_invalid_draws_are_replaced_by_unique_valid_ones():
    space = ParameterSpace(
        [Integer("a", 0, 99), Integer("b", 0, 99)],
        constraints=[Constraint("rare", "a % 10 == 0 or b == 3")],
        default={"a": 0, "b": 0},
    )
    found = starts(space, 80, rule="helion", rng=np.random.default_rng(0))
    assert len(found) >= 78  # of those few that were valid at once, some may coincide
    assert all(map(space.contains, found))


def test_starts_of_a_small_space_are_all_of_it():
    space = tiny_space(6)
    found = starts(space, 100, rule="uniform", rng=np.random.default_rng(0))
    assert len(found) == 6
    assert starts(space, 1, rule="helion", rng=np.random.default_rng(0)) == [space.default]


def test_hardly_any_valid_draw_is_filled_up_with_uniform_ones():
    axes = [Integer(f"p{i}", 0, 9) for i in range(7)]
    space = ParameterSpace(axes, default={p.name: 0 for p in axes})
    rows = np.unique(np.random.default_rng(0).integers(10, size=(300, 7)), axis=0)
    few = space.only(np.vstack([rows, np.zeros((1, 7), dtype=int)]))
    found = starts(few, 100, rule="helion", rng=np.random.default_rng(1))
    assert len(found) == len(set(found)) == 100
    assert found[0] == few.default
    assert all(few.contains(config) for config in found)

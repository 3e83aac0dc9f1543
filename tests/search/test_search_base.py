"""Options, registry and the arguments of every searcher."""

import dataclasses
from dataclasses import dataclass, replace

import numpy as np
import pytest

from kt_lab.errors import UnknownName, UsageError
from kt_lab.prior import Prior, PriorReading
from kt_lab.search import SEARCHERS, get_searcher, make_searcher, searchers
from kt_lab.search.base import Options, Searcher, option, prior_configs
from kt_lab.search.conformance_cases import bowl, drive, small_space, tiny_space
from kt_lab.trial import Config
from kt_lab.ui.controls import OptionControls


@dataclass(frozen=True)
class Knobs(Options):
    count: int = option(5, "How many.", unit="configs", low=1, high=10)
    share: float = option(0.5, "How much.", low=0.0, high=1.0)
    rule: str = option("a", "Which.", choices=("a", "b"))
    joint: bool | None = option(None, "Whether.")


def test_registry_names_are_the_classes_names():
    assert searchers() == tuple(SEARCHERS)
    assert all(get_searcher(name).name == name for name in searchers())


def test_unknown_searcher_lists_the_nearest_names():
    with pytest.raises(UnknownName, match="did you mean 'pattern'"):
        make_searcher("patern", small_space(), seed=0)


def test_unknown_option_lists_the_nearest_names():
    with pytest.raises(UnknownName, match="did you mean 'copies'"):
        make_searcher("pattern", small_space(), seed=0, copys=3)


@pytest.mark.parametrize("name", searchers())
def test_every_option_describes_itself_and_its_default_is_allowed(name):
    kind = get_searcher(name).Options
    kind()
    for field in dataclasses.fields(kind):
        assert field.metadata["doc"].endswith("."), field.name
        assert {"unit", "low", "high", "choices"} <= set(field.metadata), field.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().anything = 1


@pytest.mark.parametrize(
    ("given", "law"),
    [
        ({"count": 0}, r"count must be in \[1, 10\], got count=0"),
        ({"count": 11}, r"count must be in \[1, 10\]"),
        ({"count": 2.5}, "count must be of type int, got count=2.5"),
        ({"count": True}, "count must be of type int"),
        ({"share": float("nan")}, r"share must be in \[0.0, 1.0\]"),
        ({"share": "half"}, "share must be of type float"),
        ({"rule": "c"}, r"rule must be one of \('a', 'b'\), got 'c'"),
        ({"joint": 1}, "joint must be of type bool"),
    ],
)
def test_options_refuse_values_outside_their_law(given, law):
    with pytest.raises(UsageError, match=law):
        Knobs(**given)


def test_options_accept_and_normalise_numbers():
    knobs = Knobs(count=np.int64(3), share=1, joint=True)
    assert (type(knobs.count), type(knobs.share), knobs.joint) == (int, float, True)


@dataclass(frozen=True)
class Written(Knobs):
    """Annotations as `from __future__ import annotations` leaves them, and lists of values."""

    starts: "int" = option(4, "Random configs to begin with.", low=1)  # noqa: RUF009
    polish: "bool | None" = option(None, "Whether to polish.")  # noqa: RUF009
    sizes: tuple[int, ...] = option((1, 2), "Batch sizes.")


def test_annotations_in_quotes_and_of_lists_are_read():
    assert Written(starts=2, polish=True, sizes=(3,)).sizes == (3,)
    for wrong in ({"starts": "20"}, {"polish": "no"}):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))} must be of type"):
            Written(**wrong)
    assert {"starts", "polish"} < set(OptionControls(Written).value)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0", None])
def test_seeds_are_whole_numbers(seed):
    with pytest.raises(UsageError, match="seed must be a whole number"):
        make_searcher("random", small_space(), seed=seed)


@pytest.mark.parametrize("prior", ["x", [], {"BLOCK": 16}])
def test_a_prior_must_be_one(prior):
    with pytest.raises(UsageError, match=r"prior must be a Prior, got .*known_prior makes one"):
        make_searcher("scout", small_space(), seed=0, prior=prior)


@pytest.mark.parametrize("n", [-1, 0.5])
def test_ask_needs_a_count(n):
    with pytest.raises(UsageError, match="n must be a whole number >= 0, got n="):
        make_searcher("random", small_space(), seed=0).ask(n)


@pytest.mark.parametrize("name", ["pattern", "lfbo_pattern", "tpe"])
def test_searchers_of_parameters_refuse_other_spaces(name):
    with pytest.raises(UsageError, match="needs a ParameterSpace, got object"):
        make_searcher(name, object(), seed=0)


def test_random_search_takes_any_space():
    class Wrapped:
        """A Space that is no ParameterSpace: it can only be sampled."""

        def __init__(self):
            self.inner = tiny_space(7)
            self.default = self.inner.default

        def contains(self, config):
            return self.inner.contains(config)

        def sample(self, n, *, rng):
            return self.inner.sample(n, rng=rng)

    searcher = make_searcher("random", Wrapped(), seed=0)
    assert len({p.config for p in searcher.ask(100)}) == 7
    assert searcher.done


def test_base_searcher_numbers_its_proposals():
    searcher = make_searcher("random", small_space(), seed=0)
    assert [searcher.propose(searcher.space.default).id for _ in range(3)] == [0, 1, 2]
    with pytest.raises(TypeError, match="abstract"):
        Searcher(small_space(), seed=0)


def test_prior_configs_are_members_in_order_each_once():
    space = tiny_space(5)
    wanted = [Config(step=3), Config(step=9), Config(other=1), Config(step=1), Config(step=3)]
    prior = Prior(tuple(PriorReading(c, 1.0, "k/w", "gpu") for c in wanted))
    assert prior_configs(space, prior) == [Config(step=3), Config(step=1)]
    assert prior_configs(space, None) == []


def test_the_sources_of_a_prior_take_turns_and_what_failed_there_is_left_out():
    space = tiny_space()
    told = [("a", 0, 1.0), ("a", 1, 2.0), ("a", 2, None), ("b", 3, 9.0), ("b", 0, 9.5)]
    prior = Prior(tuple(PriorReading(Config(step=s), us, f"k/{w}", "g") for w, s, us in told))
    assert [c["step"] for c in prior_configs(space, prior)] == [0, 3, 1]
    apart = {"k/a": 6.0, "k/b": 1.0}
    far = Prior(tuple(replace(r, octaves=apart[r.workload]) for r in prior.readings))
    assert [c["step"] for c in prior_configs(space, far)] == [3, 0, 1]  # the nearer one begins


def test_annealing_measures_some_of_a_prior_and_then_anneals():
    space = small_space()
    configs = space.sample(60, rng=np.random.default_rng(0))
    prior = Prior(tuple(PriorReading(c, float(n), "k/w", "g") for n, c in enumerate(configs)))
    searcher = make_searcher("annealing", space, seed=0, prior=prior)
    origins = [p.origin for p in drive(searcher, bowl(space), trials=50)]
    assert origins.count("start") <= 17
    assert "walk" in origins

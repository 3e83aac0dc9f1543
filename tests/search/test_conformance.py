"""Every registered searcher keeps every promise, and the suite catches searchers that do not."""

import functools
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kt_lab.errors import UsageError
from kt_lab.search import conformance_cases, get_searcher, make_searcher, searchers
from kt_lab.search.conformance import (
    CHECKS,
    check_huge,
    check_pending,
    check_searcher,
    check_table,
)
from kt_lab.search.conformance_cases import drive, flat, huge_space, small_space, tiny_space
from kt_lab.search.random import RandomSearch
from kt_lab.trial import Config, Proposal, Trial

# Small populations take a run of 60 trials past its start and into the generations.
DEEP = {
    "random": {},
    "pattern": {"initial_population": 6, "copies": 2},
    "lfbo_pattern": {
        "initial_population": 8,
        "copies": 2,
        "num_neighbors": 40,
        "n_estimators": 10,
        "max_generations": 4,
        "polish_rounds": 2,
    },
}


@pytest.mark.parametrize("name", searchers())
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_registered_searchers_conform(name, check):
    check(get_searcher(name))
    if DEEP.get(name):
        check(functools.partial(make_searcher, name, **DEEP[name]))


def test_tpe_without_projection_conforms_where_it_does_not_mean_to_repeat():
    make = functools.partial(make_searcher, "tpe", project=False, n_startup_trials=4)
    for check in CHECKS:
        if check.__name__ != "check_pending":  # repeating a pending config is plain TPE
            check(make)


def test_check_searcher_names_what_passed():
    passed = check_searcher(RandomSearch)
    assert len(passed) == len(CHECKS)
    assert all(sentence.endswith(".") for sentence in passed)


def test_a_table_tells_every_check_also_after_one_that_failed():
    table = check_table(RandomSearch)
    assert table.index.tolist() == [c.__name__ for c in CHECKS]
    assert set(table["verdict"]) == {"kept"}
    assert table["promise"].tolist() == check_searcher(RandomSearch)
    told = check_table(Global)["verdict"]
    assert told["check_global_state"] == "a searcher must not draw from global random"
    assert (told.drop("check_global_state") == "kept").all()
    raised = check_table(functools.partial(make_searcher, "pattern"), copies=0)["verdict"]
    assert raised["check_ask"].startswith("it raised UsageError: copies must be in")
    assert raised["check_options"] == "kept"


def test_a_searcher_that_lists_its_space_refuses_one_too_large_for_it():
    assert check_searcher(Listing)
    with pytest.raises(UsageError, match=r"1,000,000 combinations, got 100,000,000; restrict"):
        Listing(huge_space(), seed=0)
    corner = np.indices((2,) * 8).reshape(8, -1).T
    assert Listing(huge_space().only(corner), seed=0).ask(1)
    with pytest.raises(
        AssertionError, match=r"must refuse a space .* 100,000,000, got 'no error'"
    ):
        check_huge(Boastful)


class Listing(RandomSearch):
    needs, enumerates = "ParameterSpace", True


class Boastful(RandomSearch):
    """Says that it lists its space, and takes one that cannot be listed."""

    def __init__(self, space, *, seed, **more):
        super().__init__(space, seed=seed, **more)
        self.enumerates = True


class Alien(RandomSearch):
    def ask(self, n):
        return [self.propose(Config(elsewhere=1))][:n]


class Greedy(RandomSearch):
    def ask(self, n):
        return super().ask(n + 1) if n else []


class Numberless(RandomSearch):
    def ask(self, n):
        return [Proposal(7, p.config) for p in super().ask(n)]


class Unitless(RandomSearch):
    """Predicts, but its class does not say what."""

    def ask(self, n):
        found = super().ask(n)
        return [Proposal(p.id, p.config, generation=0, predicted=0.5) for p in found]


class Timeless(Unitless):
    """Predicts without telling the generation."""

    predicts = "p_good"

    def ask(self, n):
        return [Proposal(p.id, p.config, predicted=0.5) for p in super().ask(n)]


class Forgetful(RandomSearch):
    def ask(self, n):
        return [self.propose(self.space.default) for _ in range(n)]


class Deaf(Forgetful):
    """Ends, but hands out what is pending."""

    def ask(self, n):
        self.done = self._proposed > 30
        return [] if self.done else super().ask(n)


class Seedless(RandomSearch):
    def __init__(self, space, *, seed, **more):
        super().__init__(space, seed=seed, **more)
        self.seed = 0


class Restless(RandomSearch):
    def __init__(self, space, *, seed, **more):
        super().__init__(space, seed=seed, **more)
        self.seed = time.perf_counter_ns()


class Global(RandomSearch):
    def ask(self, n):
        random.random()
        return super().ask(n)


class GlobalNumpy(RandomSearch):
    def ask(self, n):
        np.random.random()  # noqa: NPY002
        return super().ask(n)


class Stuck(RandomSearch):
    """Proposes nothing more after an answer came back to front."""

    _last = -1

    def tell(self, trials):
        for trial in trials:
            self.done |= trial.proposal.id < self._last
            self._last = trial.proposal.id


class Fragile(RandomSearch):
    def tell(self, trials):
        assert all(t.latency_us is not None for t in trials), "a trial failed"


class Unforgiving(RandomSearch):
    def tell(self, trials):
        told = [t.proposal.id for t in trials]
        assert len(set(told)) == len(told), "told twice"


class Xenophobe(RandomSearch):
    def tell(self, trials):
        for trial in trials:
            assert trial.proposal.id < self._proposed, "I did not ask for this"


class Endless(RandomSearch):
    def ask(self, n):
        found = super().ask(n)
        self.done = False
        return found or [self.propose(self.space.default) for _ in range(n)]


class Undone(RandomSearch):
    def ask(self, n):
        found = super().ask(n)
        self.done = False
        return found


class Lister(RandomSearch):
    def ask(self, n):
        self.space.enumerate()
        return super().ask(n)


class Lenient(RandomSearch):
    def __init__(self, space, *, seed, no_such_option=None, **more):  # noqa: ARG002
        super().__init__(space, seed=seed, **more)


class Careless(RandomSearch):
    closed = False

    def close(self):
        assert not self.closed, "closed twice"
        self.closed = True


class Rooted(RandomSearch):
    def __init__(self, space, *, seed, **more):
        super().__init__(space, seed=seed, **more)
        self.draw = lambda: 0


BROKEN = [
    (Alien, "check_ask"),
    (Greedy, "check_ask"),
    (Numberless, "check_ask"),
    (Unitless, "check_ask"),
    (Timeless, "check_ask"),
    (Deaf, "check_pending"),
    (Seedless, "check_determinism"),
    (Restless, "check_determinism"),
    (Global, "check_global_state"),
    (GlobalNumpy, "check_global_state"),
    (Stuck, "check_tell_order"),
    (Fragile, "check_failures"),
    (Unforgiving, "check_repeats"),
    (Xenophobe, "check_foreign"),
    (Endless, "check_one_parameter"),
    (Undone, "check_one_config"),
    (Endless, "check_exhaustion"),
    (Lister, "check_huge"),
    (Lenient, "check_options"),
    (Careless, "check_close"),
    (Rooted, "check_pickle"),
]


@pytest.mark.parametrize(("make", "name"), BROKEN, ids=lambda x: getattr(x, "__name__", x))
def test_the_suite_catches_broken_searchers(make, name):
    check = {c.__name__: c for c in CHECKS}[name]
    with pytest.raises((AssertionError, ValueError)):
        check(make)
    with pytest.raises((AssertionError, ValueError)):
        check_searcher(make)


class Waiting(RandomSearch):
    """Draws until a config is new, also when none is left."""

    def ask(self, n):
        found = []
        while len(found) < n:
            found += super().ask(n - len(found))
        return found


def test_a_loop_without_end_is_told_not_waited_for(monkeypatch):
    monkeypatch.setattr(conformance_cases, "_LONG_S", 0.2)
    assert len(conformance_cases.ask(Waiting(tiny_space(), seed=0), 5)) == 5
    with pytest.raises(AssertionError, match=r"check_pending: ask must end, .* 0\.2 s of CPU"):
        check_searcher(Waiting)
    told = check_table(Waiting)["verdict"]
    assert told["check_one_config"].startswith("ask must end")
    assert told["check_ask"] == "kept"
    with ThreadPoolExecutor(1) as other:  # that hears no signal
        assert other.submit(check_searcher, RandomSearch).result()


@pytest.fixture
def timed():
    """A limit of the user's own on the CPU time of what runs."""
    handler = signal.signal(signal.SIGVTALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000.0)
    yield signal.getsignal(signal.SIGVTALRM)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, handler)


def test_the_limit_on_an_ask_leaves_the_users_own_as_it_was(timed, monkeypatch):
    conformance_cases.ask(RandomSearch(tiny_space(), seed=0), 1)
    assert signal.getsignal(signal.SIGVTALRM) is timed
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == pytest.approx(1000.0, abs=100.0)
    with ThreadPoolExecutor(1) as other:  # that sets no limit, and ends none
        other.submit(conformance_cases.ask, RandomSearch(tiny_space(), seed=0), 1).result()
    assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] == pytest.approx(1000.0, abs=100.0)
    monkeypatch.setattr(conformance_cases, "_LONG_S", 0.1)
    searcher = Waiting(tiny_space(), seed=0)
    conformance_cases.ask(searcher, 5)
    with pytest.raises(AssertionError, match="ask must end"):
        conformance_cases.ask(searcher, 1)
    assert signal.getsignal(signal.SIGVTALRM) is timed


def test_every_check_can_fail():
    uncaught = {c.__name__ for c in CHECKS} - {name for _, name in BROKEN}
    assert uncaught == {"check_constant"}  # proposing nothing at all: below


def test_the_suite_catches_a_searcher_that_gives_up():
    class Silent(RandomSearch):
        def ask(self, n):  # noqa: ARG002
            return []

    for check in CHECKS:
        if check.__name__ == "check_constant":
            with pytest.raises(AssertionError, match="nothing proposed"):
                check(Silent)


def test_searching_needs_neither_torch_nor_triton():
    code = (
        "import sys; from kt_lab.search import searchers, get_searcher\n"
        "from kt_lab.search.conformance_cases import small_space\n"
        "[get_searcher(n)(small_space(), seed=0).ask(1) for n in searchers()]\n"
        "bad = {'torch', 'triton', 'ipywidgets', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["random", "pattern"])
def test_cheap_searchers_sustain_five_thousand_trials_per_second(name):
    space = small_space()
    space.enumerate()
    count, seconds = 0, 0.0
    for seed in range(5):
        searcher = make_searcher(name, space, seed=seed)
        started = time.process_time()
        proposals = drive(searcher, flat, trials=400)
        seconds += time.process_time() - started
        count += len(proposals)
    assert count / seconds > 5000  # the driver's own time is included


def test_random_search_visits_every_config_once_and_ends():
    space = small_space()
    searcher = make_searcher("random", space, seed=0)
    proposals = drive(searcher, flat, trials=10**4)
    assert len(proposals) == len({p.config for p in proposals}) == space.size
    assert searcher.done


def test_random_search_skips_what_others_measured():
    space = small_space()
    configs = space.configs(space.enumerate())
    searcher = make_searcher("random", space, seed=0)
    searcher.tell([Trial(i, Proposal(i, c), flat(c)) for i, c in enumerate(configs[:-1])])
    assert [p.config for p in drive(searcher, flat)] == [configs[-1]]


def test_a_space_that_cannot_be_listed_is_no_fault_of_a_searcher():
    check_pending(RandomSearch, huge_space)

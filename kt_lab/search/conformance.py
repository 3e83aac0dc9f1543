"""The conformance suite: what every searcher promises, checked on any searcher class.

    from kt_lab.search.conformance import check_searcher
    check_searcher(MySearcher)          # AssertionError with a sentence, or the passed checks
    check_table(MySearcher)             # every check, what it promises, and what came of it
    check_searcher(MySearcher, space=lambda: ScheduleSpace(program))    # on a space of yours

`make` is the searcher class, or any callable that takes what the class takes:
`make(space, *, seed, budget=None, prior=None, **options)`. Tiny and huge spaces stay as they are.
"""

import pickle
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UnknownName, UsageError
from kt_lab.search.base import Searcher
from kt_lab.search.conformance_cases import (
    TRIALS,
    ask,
    bowl,
    broken,
    drive,
    flat,
    foreign_trials,
    huge_space,
    small_space,
    tiny_space,
)
from kt_lab.space import Space
from kt_lab.trial import Config, Proposal, Trial

Make = Callable[..., Searcher]
MakeSpace = Callable[[], Space]

_FAST_S = 10.0  # seconds for 50 proposals on a space of 10**8 points; listing it takes minutes


def check_ask(make: Make, members: MakeSpace = small_space) -> None:
    """Proposals are members of the space, at most n at a time, with ids 0, 1, 2..."""
    space = members()
    searcher = make(space, seed=0)
    assert searcher.ask(0) == [], "ask(0) must return nothing"
    proposals = drive(searcher, bowl(space))
    assert proposals, "a searcher must propose something at the first ask"
    ids = [p.id for p in proposals]
    assert ids == list(range(len(ids))), f"ids must count from 0 in order of asking, got {ids[:9]}"


def check_pending(make: Make, members: MakeSpace = small_space) -> None:
    """Asking on without telling never hands out a config twice, and ends."""
    space = members()
    searcher = make(space, seed=0)
    pending: list[Config] = []
    listed = space.enumerable if hasattr(space, "enumerable") else hasattr(space, "size")
    size = space.size if listed else TRIALS  # a space that cannot be listed is asked this far
    while len(pending) < size and (asked := ask(searcher, min(50, size - len(pending)))):
        pending += [p.config for p in asked]
    assert len(set(pending)) == len(pending), "a config that is being measured was proposed again"
    whole = listed and len(pending) >= size
    assert not whole or ask(searcher, 1) == [], "every config is pending, and one more came"


def check_determinism(make: Make, members: MakeSpace = small_space) -> None:
    """The same seed and readings give the same proposals; other seeds others, if seeds matter."""
    space = members()
    first, again = (drive(make(space, seed=s), bowl(space)) for s in (3, 3))
    assert again == first, "the same seed and readings must give the same proposals"
    # The last is only searched where the one before it tells nothing.
    alike = all(drive(make(space, seed=s), bowl(space)) == first for s in (4, 5))
    assert not alike or not make(space, seed=3).seeded, "seeds 3, 4 and 5 gave the same proposals"


def check_global_state(make: Make, members: MakeSpace = small_space) -> None:
    """The global random state is left alone, and does not matter."""
    space = members()
    before = _global_state()
    first = drive(make(space, seed=1), bowl(space))
    after = _global_state()
    for module in before:
        assert before[module] == after[module], f"a searcher must not draw from global {module}"
    state = random.getstate()
    random.seed(12345)
    try:
        second = drive(make(space, seed=1), bowl(space))
    finally:
        random.setstate(state)
    assert first == second, "proposals must not depend on the global random state"


def _global_state() -> dict[str, tuple]:
    _, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {"random": random.getstate(), "numpy.random": (keys.tolist(), *rest)}


def check_tell_order(make: Make, members: MakeSpace = small_space) -> None:
    """Results may be told in any order and one by one."""
    space = members()
    usual = len(drive(make(space, seed=0), bowl(space), batch=16))
    for order in (lambda told: told[::-1], lambda told: told[1:] + told[:1]):
        found = len(drive(make(space, seed=0), bowl(space), batch=16, order=order))
        assert 2 * found >= usual, (
            f"told in another order, only {found} configs were proposed instead of {usual}"
        )
    searcher = make(space, seed=0)
    asked = ask(searcher, 8)
    evaluate = bowl(space)
    for number, proposal in enumerate(reversed(asked)):
        searcher.tell([Trial(number, proposal, evaluate(proposal.config))])
    assert searcher.done or ask(searcher, 1), "all results were told, but nothing was proposed"


def check_failures(make: Make, members: MakeSpace = small_space) -> None:
    """A landscape where everything, or 30 % fails is searched like any other."""
    space = members()
    assert drive(make(space, seed=0), broken, trials=200), "nothing proposed"
    proposals = drive(make(space, seed=0), bowl(space, failing=0.3))
    assert len({p.config for p in proposals}) > 1, "30 % failures must not stop the search"


def check_repeats(make: Make, members: MakeSpace = small_space) -> None:
    """A trial told twice, and a re-measurement that disagrees, are tolerated."""
    space = members()
    searcher = make(space, seed=0)
    drive(searcher, bowl(space), order=lambda told: told * 2)
    assert isinstance(ask(searcher, 1), list), "ask must return a list"


def check_foreign(make: Make, members: MakeSpace = small_space) -> None:
    """Configs never asked for, of this space or of another, are tolerated at any time."""
    space = members()
    searcher = make(space, seed=0)
    searcher.tell(foreign_trials(space, 5))
    drive(searcher, bowl(space), trials=20)
    searcher.tell(foreign_trials(space, 30))
    alien = Config(elsewhere=1)
    searcher.tell([Trial(0, Proposal(0, alien), flat(alien))])
    proposals = drive(searcher, bowl(space), trials=20)
    assert all(p.config != alien for p in proposals), "a config of another space was proposed"


def check_one_parameter(make: Make, _: MakeSpace = small_space) -> None:
    """A space of one parameter is searched and ends."""
    space = tiny_space()
    proposals = drive(make(space, seed=0), bowl(space), trials=500, batch=2)
    assert proposals, "nothing proposed"
    assert len(proposals) < 500, "5 configs were proposed 500 times, and no end"


def check_one_config(make: Make, _: MakeSpace = small_space) -> None:
    """A space of one config is proposed, then the searcher is done."""
    space = tiny_space(1)
    searcher = make(space, seed=0)
    proposals = drive(searcher, flat, trials=100, batch=3)
    assert 1 <= len(proposals) < 100, f"one config was proposed {len(proposals)} times"
    assert searcher.done, "`done` must be True once every config of the space was measured"
    assert ask(searcher, 3) == [], "a searcher that is done must propose nothing"


def check_constant(make: Make, members: MakeSpace = small_space) -> None:
    """A landscape without differences does not break the search."""
    space = members()
    assert drive(make(space, seed=0), flat), "nothing proposed"


def check_exhaustion(make: Make, _: MakeSpace = small_space) -> None:
    """A small space is not proposed from forever."""
    space = tiny_space(12)
    searcher = make(space, seed=0)
    proposals = drive(searcher, bowl(space, failing=0.2), trials=2400)
    assert len(proposals) < 2400, "12 configs were proposed 2400 times, and no end"
    assert ask(searcher, 1) == [], "the search had ended, and went on"


def check_huge(make: Make, _: MakeSpace = small_space) -> None:
    """The first 50 proposals from 10**8 points come fast; one that must list them refuses to."""
    space = huge_space()
    if make(small_space(), seed=0).enumerates:
        message = _refusal(make, space, UsageError)
        size = f"{space.cartesian_size:,}"
        assert size in message, (
            f"a searcher that `enumerates` must refuse a space too large for it with a UsageError "
            f"that tells its size, {size}, got {message or 'no error'!r}"
        )
        return
    started = time.perf_counter()
    searcher = make(space, seed=0)
    proposals = drive(searcher, bowl(space), trials=50)
    seconds = time.perf_counter() - started
    assert len(proposals) == 50 or (proposals and searcher.done), (
        f"50 proposals were asked for, got {len(proposals)}, and the searcher is not done"
    )
    assert seconds < _FAST_S, f"50 proposals must take < {_FAST_S:g} s, took {seconds:.1f} s"


def check_options(make: Make, members: MakeSpace = small_space) -> None:
    """An option that does not exist is refused by name."""
    message = _refusal(make, members(), UnknownName, no_such_option=1)
    assert message, "an unknown option must raise UnknownName, but was accepted"
    assert "no_such_option" in message, f"the message must name the option, got {message}"


def _refusal(make: Make, space: Space, kind: type[Exception], **options: Any) -> str:
    """Returns what a searcher says that is refused; nothing if it is made."""
    try:
        make(space, seed=0, **options)
    except kind as error:
        return str(error)
    return ""


def check_close(make: Make, members: MakeSpace = small_space) -> None:
    """close() may be called at any time, and twice."""
    searcher = make(members(), seed=0)
    searcher.close()
    searcher = make(members(), seed=0)
    drive(searcher, flat, trials=5)
    searcher.close()
    searcher.close()


def check_pickle(make: Make, members: MakeSpace = small_space) -> None:
    """A fresh searcher travels to a worker process and proposes the same there."""
    space = members()
    try:
        copy = pickle.loads(pickle.dumps(make(space, seed=2)))
    except Exception as error:
        raise AssertionError(f"a fresh searcher must pickle, got {error!r}") from error
    same = drive(copy, bowl(space)) == drive(make(space, seed=2), bowl(space))
    assert same, "a pickled copy must propose what the original proposes"


CHECKS: tuple[Callable[[Make, MakeSpace], None], ...] = (
    check_ask,
    check_pending,
    check_determinism,
    check_global_state,
    check_tell_order,
    check_failures,
    check_repeats,
    check_foreign,
    check_one_parameter,
    check_one_config,
    check_constant,
    check_exhaustion,
    check_huge,
    check_options,
    check_close,
    check_pickle,
)


def check_searcher(make: Make, *, space: MakeSpace = small_space, **options: Any) -> list[str]:
    """Runs every check and returns the sentences of those passed.

    Args:
        make: A searcher class, or a callable that takes what it takes.
        space: Returns the space, of any kind, that it is checked on.
        options: Given to every searcher made.

    Raises:
        AssertionError: The first promise that is broken, as a sentence with the name of its check.
    """
    passed = []
    for check in CHECKS:
        try:
            check(partial(make, **options), space)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
        passed.append(check.__doc__.splitlines()[0])
    return passed


def check_table(make: Make, *, space: MakeSpace = small_space, **options: Any) -> pd.DataFrame:
    """Runs every check, also after one that failed.

    Args:
        make: A searcher class, or a callable that takes what it takes.
        space: Returns the space, of any kind, that it is checked on.
        options: Given to every searcher made.

    Returns:
        One row per check, by its name: `promise`, and `verdict`, which is "kept" or a sentence
        that says what was wrong, or which error the searcher raised.
    """
    rows = {}
    for check in CHECKS:
        verdict = "kept"
        try:
            check(partial(make, **options), space)
        except AssertionError as error:
            verdict = str(error)
        except Exception as error:
            verdict = f"it raised {type(error).__name__}: {error}"
        rows[check.__name__] = {"promise": check.__doc__.splitlines()[0], "verdict": verdict}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("check")

"""The loop: searcher x runner x budget -> History."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from kt_lab.budget import Budget, Spent
from kt_lab.errors import UsageError
from kt_lab.runners import Runner
from kt_lab.trial import Config, History, Proposal, Trial

_REPEATS = 1000  # measurements in a row without a new config, after which a search has ended


def tune(
    searcher,
    runner: Runner,
    *,
    budget: Budget,
    on_trial: Callable[[Trial], None] | None = None,
    on_interrupt: Callable[[], None] | None = None,
) -> History:
    """Runs a search until its searcher is done or its budget is spent.

    The searcher is asked for as many proposals as the runner has free lanes. A config's first
    measurement spends a trial, whatever its status, another only seconds; what would end after
    those is left out. Ctrl-C, or 1,000 measurements in a row of known configs, ends and keeps all.

    Args:
        searcher: Anything with ask, tell, done and close; closed here, errors included.
        runner: Measures, for this run alone; closed by its maker, not here.
        budget: When to stop.
        on_trial: Called with every trial, in order.
        on_interrupt: Called when Ctrl-C ended the run.

    Returns:
        The trials in order of completion.

    Raises:
        UsageError: The budget is none, or the runner has work of another run under way.
    """
    _require_kinds(searcher, runner)
    trials, asked, measured = list[Trial](), set[Config](), set[Config]()  # asked: some in flight
    search_s, now, repeats = 0.0, 0.0, 0
    try:
        require_own(budget, runner, searcher)
        while repeats < _REPEATS:
            left = budget.left(Spent(trials=len(asked), seconds=_machine_s(runner, search_s)))
            if runner.free and left.seconds > 0 and not searcher.done:
                search_s += _asked_s(searcher, runner, asked, left.trials)
            if not runner.pending:
                break
            proposal, measurement = runner.next()
            now = max(now, _machine_s(runner, search_s))
            if left.seconds <= 0 or now > (budget.seconds or float("inf")):
                break
            repeats = repeats + 1 if proposal.config in measured else 0
            measured.add(proposal.config)
            trial = Trial(len(trials), proposal, measurement, not repeats, now, search_s)
            trials.append(trial)
            search_s += _timed(searcher.tell, [trial], searcher)[1]
            if on_trial:
                on_trial(trial)
    except KeyboardInterrupt:
        if on_interrupt:
            on_interrupt()
    finally:
        searcher.close()
    return History(trials)


def tune_whole(searcher, runner: Runner, **how: Any) -> History:
    """Runs `tune` where part of a run is worth nothing: Ctrl-C ends what called it, too."""
    return tune(searcher, runner, on_interrupt=_interrupted, **how)


def _interrupted() -> None:
    raise KeyboardInterrupt


def _require_kinds(searcher: Any, runner: Any) -> None:
    """Raises UsageError for a searcher's name or class, and for what to replay, in their place."""
    made = "make_searcher('scout', space, seed=0)", "ReplayRunner(landscape, seed=0)"
    for given, method, maker in ((searcher, "ask", made[0]), (runner, "submit", made[1])):
        if isinstance(given, type) or not hasattr(given, method):
            law = f"tune needs what can {method}, as {maker} makes it"
            raise UsageError(f"{law}, got {given!r:.80}")


def require_budget(budget: Any) -> None:
    """Raises UsageError for what is no budget, such as a number of trials."""
    if not hasattr(budget, "left"):
        raise UsageError(f"budget must be a Budget, got {budget!r}; pass Budget(trials=50)")


def require_own(budget: Any, runner: Runner, searcher: Any = None) -> None:
    """Raises UsageError for no budget, another run's work, and proposals that are not for it."""
    require_budget(budget)
    if runner.pending:
        raise UsageError(
            "a runner must measure for one run at a time, got one with measurements of another "
            f"under way: {runner.pending}; make a runner for each run"
        )
    if hasattr(runner, "require_space"):  # optional: that it can measure what a space holds
        runner.require_space(getattr(searcher, "space", None))


def _asked_s(searcher, runner: Runner, asked: set[Config], left: float) -> float:
    """Fills the free lanes with what trials are left for; returns the CPU seconds of choosing."""
    proposals, seconds = _timed(lambda n: _listed(searcher.ask(n)), runner.free, searcher)
    runner.submit(_affordable(proposals, asked, left))
    return seconds


def _listed(found: Any) -> list[Proposal]:
    """Returns what `ask` returned as a list, if it is one of proposals."""
    proposals = list(found) if isinstance(found, Iterable) else [found]
    if wrong := [p for p in proposals if not isinstance(p, Proposal)]:
        law = "ask must return a list of Proposal, as self.propose(config) makes them"
        raise UsageError(f"{law}, got {wrong[0]!r}")
    return proposals


def _timed(call: Callable, argument: Any, searcher) -> tuple[Any, float]:
    """Returns what a method returns, and the CPU seconds of its threads that it took.

    A peer that owns its loop runs in a thread of its own and counts it in `thread_s`.
    """

    def spent() -> float:
        return time.thread_time() + getattr(searcher, "thread_s", 0.0)

    began = spent()
    return call(argument), spent() - began  # in this order


def _machine_s(runner: Runner, search_s: float) -> float:
    """Returns the seconds of compiling and timing: a wall clock ran while the searcher thought."""
    return max(0.0, runner.now - search_s) if runner.live else runner.now


def _affordable(proposals: list, asked: set[Config], left: float) -> list:
    """Returns the proposals that the budget of trials allows, and notes their configs.

    Measuring a config again is allowed even when no trial is left: it costs seconds.
    """
    kept = []
    for proposal in proposals:
        if proposal.config not in asked:
            if left < 1:
                continue
            left -= 1
            asked.add(proposal.config)
        kept.append(proposal)
    return kept

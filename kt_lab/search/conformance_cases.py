"""Spaces, landscapes and the driving loop of the conformance suite."""

import random
import signal
import threading
from collections.abc import Callable, Iterable

import numpy as np

from kt_lab.search.base import Searcher
from kt_lab.space import Choice, Constraint, Flag, Integer, ParameterSpace, PowerOfTwo, Space
from kt_lab.trial import Config, Measurement, Proposal, Trial

Evaluate = Callable[[Config], Measurement]
TRIALS = 60  # enough for a few batches of most searchers, cheap enough for every check
_LONG_S = 60.0  # of CPU time that one ask may take: a loop without end would hang the suite


def small_space() -> ParameterSpace:
    """Returns every parameter kind and role under one constraint: 492 valid configs of 720."""
    return ParameterSpace(
        [
            PowerOfTwo("BLOCK_M", 16, 128, role="tile"),
            PowerOfTwo("BLOCK_N", 16, 64, role="tile"),
            PowerOfTwo("num_warps", 1, 16, role="warps"),
            Integer("num_stages", 1, 2, role="stages"),
            Choice("order", ("row", "column", "z")),
            Flag("persistent"),
        ],
        constraints=[Constraint("fits", "BLOCK_M * BLOCK_N >= 256 * num_warps")],
        default={
            "BLOCK_M": 32,
            "BLOCK_N": 32,
            "num_warps": 4,
            "num_stages": 1,
            "order": "row",
            "persistent": False,
        },
    )


def tiny_space(n: int = 5) -> ParameterSpace:
    """Returns a space of one parameter and n configs."""
    return ParameterSpace([Integer("step", 0, n - 1)], default={"step": 0})


def huge_space() -> ParameterSpace:
    """Returns 10**8 points, half of them valid."""
    parameters = [Integer(f"p{i}", 0, 9) for i in range(8)]
    return ParameterSpace(
        parameters,
        constraints=[Constraint("half", "p0 + p1 <= 9")],
        default={p.name: 0 for p in parameters},
    )


def bowl(space: Space, *, failing: float = 0.0) -> Evaluate:
    """Returns a smooth landscape whose optimum is in a corner; a share of the configs fails.

    The corner is where the value indices, or the encoding of a space of another kind, are least.
    """

    def evaluate(config: Config) -> Measurement:
        if isinstance(space, ParameterSpace):
            row = space.row(config)
            span = np.asarray([max(1, p.cardinality - 1) for p in space.parameters])
        else:
            row = np.abs(space.encode([config])[0])
            span = 1 + row
        dice = random.Random(",".join(map(str, row.tolist()))).random()
        if dice < failing:
            return Measurement("launch_error", error="fails by construction")
        return Measurement("ok", (100.0 * float(1 + (row / span).sum() + 0.01 * dice),) * 3)

    return evaluate


def flat(_: Config) -> Measurement:
    """Measures the same latency for every config."""
    return Measurement("ok", (100.0,) * 3)


def broken(_: Config) -> Measurement:
    """Fails for every config."""
    return Measurement("compile_error", error="fails by construction")


# -- driving --------------------------------------------------------------------------------------


def drive(
    searcher: Searcher,
    evaluate: Evaluate,
    *,
    trials: int = TRIALS,
    batch: int = 4,
    order: Callable[[list], Iterable] = list,
) -> list[Proposal]:
    """Asks and tells until the searcher stops or `trials` proposals were measured.

    Args:
        searcher: A fresh searcher.
        evaluate: What a config measures.
        trials: Proposals at most, re-measurements included.
        batch: How many proposals are asked for at once.
        order: Rearranges the trials of a batch before they are told.

    Returns:
        The proposals, in order of asking.
    """
    proposals: list[Proposal] = []
    while (left := trials - len(proposals)) > 0 and (asked := ask(searcher, min(batch, left))):
        told = [Trial(i, p, evaluate(p.config)) for i, p in enumerate(asked, len(proposals))]
        searcher.tell(list(order(told)))
        proposals += asked
    return proposals


def ask(searcher: Searcher, n: int) -> list[Proposal]:
    """Returns the searcher's answer after checking what every answer must obey."""
    if heard := threading.current_thread() is threading.main_thread():  # no other hears signals
        handler = signal.signal(signal.SIGVTALRM, _stop)
        timer = signal.setitimer(signal.ITIMER_VIRTUAL, _LONG_S)
    try:
        asked = searcher.ask(n)
    finally:
        if heard:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, handler)
            signal.setitimer(signal.ITIMER_VIRTUAL, *timer)
    assert len(asked) <= n, f"ask(n) must return at most n proposals, got {len(asked)} for n={n}"
    for proposal in asked:
        assert isinstance(proposal, Proposal), f"ask must return Proposals, got {proposal!r}"
        assert searcher.space.contains(proposal.config), (
            f"every proposal must be a member of the space, got {proposal.config!r}"
        )
        assert proposal.predicted is None or (
            searcher.predicts is not None and proposal.generation is not None
        ), "a prediction must come with its generation, and the class tell what it `predicts`"
    return asked


def _stop(*_) -> None:
    law = f"ask must end, got no answer in {_LONG_S:g} s of CPU time"
    raise AssertionError(f"{law}; where no config is left to propose, return fewer, set `done`")


def foreign_trials(space: Space, n: int) -> list[Trial]:
    """Returns trials of members of the space that no searcher asked for."""
    configs = space.sample(n, rng=np.random.default_rng(99))
    evaluate = bowl(space, failing=0.3)
    return [Trial(i, Proposal(10**6 + i, c), evaluate(c)) for i, c in enumerate(configs)]

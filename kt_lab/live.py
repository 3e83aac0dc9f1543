"""Live tuning: search on a real GPU, confirm what was found, store the winner."""

from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kt_lab.budget import Budget
from kt_lab.confirm import Confirmation, Rule, confirm
from kt_lab.decisions import Winner, save_winner
from kt_lab.errors import UsageError, whole
from kt_lab.journals import journaled, live_facts
from kt_lab.landscape import data_directory
from kt_lab.prior import Prior
from kt_lab.provenance import provenance
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.runners.journaled import JournaledRunner
from kt_lab.runners.lent import LentRunner
from kt_lab.runners.several import SeveralRunner
from kt_lab.search import make_searcher
from kt_lab.trial import CENSORED, OK, Config, History, Proposal, Trial
from kt_lab.tune import require_own, tune
from kt_lab.workload import Kernel, Workload

FINALISTS = 8


@dataclass(frozen=True, slots=True)
class LiveResult:
    """What a live run came to.

    Attributes:
        history: All trials, those of earlier parts of the run included.
        confirmation: The race of the finalists and the duel with the kernel's default config;
            None when Ctrl-C came before its end.
        winner: The decision as it is stored: the confirmed config, or the best so far.
        path: The winner's file.
        journal: The run's journal: running the same search again goes on from there.
        interrupted: Whether Ctrl-C ended the search.
        startup_s: Seconds until the GPU had answered.
        search_s: Seconds of the search, start-up included.
        elapsed_s: Seconds of everything: start-up, search and confirmation.
        pipeline: Where the pipeline's seconds went (`kt_lab.runners.gpu.pipeline.Tally`).
        sensors: Clocks, temperature and power at the beginning and at the end.
    """

    history: History
    confirmation: Confirmation | None
    winner: Winner
    path: Path
    journal: Path
    interrupted: bool
    startup_s: float
    search_s: float
    elapsed_s: float
    pipeline: Mapping[str, Any]
    sensors: list[dict[str, Any]]


def tune_live(
    what: GpuRunner | SeveralRunner | Workload | Kernel | str,
    *,
    searcher: str = "scout",
    options: Mapping[str, Any] | None = None,
    budget: Budget,
    seed: int = 0,
    finalists: int = FINALISTS,
    rule: Rule | None = None,
    prior: Prior | None = None,
    directory: Path | str | None = None,
    resume: bool = True,
    on_trial: Callable[[Trial], None] | None = None,
) -> LiveResult:
    """Searches with a live runner, confirms the finalists, and stores run and winner.

    Ctrl-C ends the search; what was found by then is confirmed and stored. A second Ctrl-C skips
    the confirmation and stores the best so far unconfirmed. Running the same search again goes
    on where it ended and measures nothing twice.

    Args:
        what: A workload or its key, or a kernel with one workload; or an open `GpuRunner` or
            `SeveralRunner`, which is left open for the next run. That knows what was compiled and
            timed, so compare searchers by their seconds on runners of their own.
        searcher: Registered name of the searcher.
        options: Its options.
        budget: When to stop; its seconds count the start-up.
        seed: The searcher's seed.
        finalists: How many of the best configs are raced, those with identical launches once.
        rule: When the confirmation decides; None: `Rule()`.
        prior: What is known beforehand (`kt_lab.transfer.known_prior`); its provenance tells
            searches apart.
        directory: Journals go to <directory>/live, winners to <directory>/winners; None: the
            folder of recorded data.
        resume: Whether to go on with the journal of an earlier part; otherwise it is put aside.
        on_trial: Called with every trial, in order.

    Raises:
        UsageError: Nothing has run, the default neither.
    """
    given = {
        "searcher": searcher,
        "options": dict(options or {}),
        "budget": budget,
        "seed": seed,
        "finalists": whole("finalists", finalists, low=1),
        "rule": rule,
        "prior": prior,
        "root": Path(directory) if directory is not None else data_directory(),
        "resume": resume,
        "on_trial": on_trial,
    }
    lent = isinstance(what, GpuRunner | SeveralRunner)
    with nullcontext(what) if lent else _runner_for(what) as runner:
        return _tuned(runner, **given)


def _tuned(
    runner, *, searcher, options, budget, seed, finalists, rule, prior, root, resume, on_trial
) -> LiveResult:
    if not isinstance(searcher, str):
        law = "a live run is known by its searcher's registered name"
        own = "register it, SEARCHERS['mine'] = 'my_module:Mine', or call kt_lab.tune.tune"
        raise UsageError(f"{law}, got {searcher!r}; {own} with an open GpuRunner")
    lent = LentRunner(runner)
    about = {"searcher": searcher, "options": options, "seed": seed}
    about["known"] = prior.fingerprint if prior else ""
    facts = live_facts(runner, **about)
    interrupted: list[bool] = []
    require_own(budget, lent)  # what is refused leaves the journals as they are
    made = make_searcher(searcher, runner.space, seed=seed, budget=budget, prior=prior, **options)
    with closing(made), journaled(lent, **about, directory=root, resume=resume) as kept:
        how = {"on_trial": on_trial, "on_interrupt": lambda: interrupted.append(True)}
        history = tune(made, kept, budget=budget, **how)
        search_s, ended = kept.now, lent.now  # all parts of the run, and this one
        try:
            confirmation, apparent = _confirm(runner, kept, history, finalists, rule)
        except KeyboardInterrupt:
            interrupted.append(True)
            confirmation, apparent = None, _apparent_us(history)
    runner.sense()
    winner = winner_of(runner, facts, history, confirmation, apparent, search_s + lent.now - ended)
    return LiveResult(
        history=history,
        confirmation=confirmation,
        winner=winner,
        path=save_winner(winner, root / "winners"),
        journal=kept.path,
        interrupted=bool(interrupted),
        startup_s=runner.startup_s,
        search_s=search_s,
        elapsed_s=winner.elapsed_s,
        pipeline=asdict(runner.tally),
        sensors=list(runner.sensors),
    )


def _runner_for(what: Workload | Kernel | str) -> GpuRunner:
    if not isinstance(what, Kernel):
        return GpuRunner(what)
    if len(what.workloads) != 1:
        raise UsageError(
            f"a kernel must have one workload to be tuned as it is, got {len(what.workloads)} of "
            f"{what.name}; open GpuRunner(workload, kernel=...) on one of them"
        )
    return GpuRunner(what.workloads[0], kernel=what)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A confirmation, the decision that it led to, and the file of that."""

    confirmation: Confirmation
    winner: Winner
    path: Path


def confirm_found(
    runner: GpuRunner,
    history: History,
    *,
    searcher: str,
    options: Mapping[str, Any],
    seed: int,
    finalists: int = FINALISTS,
    rule: Rule | None = None,
    directory: Path | str | None = None,
    elapsed_s: float = 0.0,
) -> Confirmed:
    """Confirms what a live search found, and stores the winner.

    Args:
        runner: An open runner on the whole space, with nothing in flight.
        history: The search's trials.
        searcher: Told in the winner, as `options` and `seed` are.
        options: Of the searcher.
        seed: Of the searcher.
        finalists: How many of the best configs are raced.
        rule: When the confirmation decides; None: `Rule()`.
        directory: Winners go to <directory>/winners; None: the folder of recorded data.
        elapsed_s: Seconds of the search.
    """
    facts, began = live_facts(runner, searcher=searcher, options=options, seed=seed), runner.now
    # Another process may have measured: what was wrong there must not win, and how long a launch
    # takes says how long a race may.
    runner.recall([(trial.proposal, trial.measurement) for trial in history])
    count = whole("finalists", finalists, low=1)
    confirmation, apparent = _confirm(runner, runner, history, count, rule)
    runner.sense()
    spent_s = elapsed_s + runner.now - began
    winner = winner_of(runner, facts, history, confirmation, apparent, spent_s)
    root = data_directory() if directory is None else Path(directory)
    return Confirmed(confirmation, winner, save_winner(winner, root / "winners"))


def _apparent_us(history: History) -> dict[Config, float]:
    return {config: trial.latency_us for config, trial in history.readings.items()}


def _confirm(
    runner: GpuRunner,
    kept: GpuRunner | JournaledRunner,
    history: History,
    count: int,
    rule: Rule | None,
) -> tuple[Confirmation, dict[Config, float]]:
    """Returns the confirmation, and what the search had read of each config."""
    default = runner.space.default
    if default not in {trial.config for trial in history}:
        kept.submit([Proposal(-1, default, origin="incumbent")])
    rest = {}
    while kept.pending:  # what an interrupt left in flight comes too
        proposal, measurement = kept.next()
        if measurement.status == OK:
            rest[proposal.config] = measurement.latency_us
    apparent = rest | _apparent_us(history)
    raced = {"incumbent": default, "finalists": best_launches(history, count)}
    return confirm(runner, **raced, apparent_us=apparent, rule=rule), apparent


def best_launches(history: History, count: int) -> list[Config]:
    """Returns the configs with the lowest readings, one of those with identical launches.

    One that failed when it was measured last is not among them.
    """
    kept: dict[Any, Config] = {}
    last = {trial.config: trial.status for trial in history}
    right = [t for t in history.readings.values() if last[t.config] in (OK, CENSORED)]
    for trial in sorted(right, key=lambda t: (t.latency_us, t.number)):
        info = trial.measurement.info
        kept.setdefault((info.get("code_hash") or trial.config, info.get("grid")), trial.config)
    return list(kept.values())[:count]


def winner_of(
    runner: GpuRunner,
    facts: Mapping[str, Any],
    history: History,
    confirmation: Confirmation | None,
    apparent: Mapping[Config, float],
    elapsed_s: float,
) -> Winner:
    """Returns the decision that a search and its confirmation led to, as it is stored.

    Args:
        runner: The runner of both, still open.
        facts: From `kt_lab.journals.live_facts`.
        history: Its trials.
        confirmation: None: it was interrupted, and the best so far is the decision.
        apparent: What the search read of configs, microseconds.
        elapsed_s: Seconds of both.

    Raises:
        UsageError: Nothing that was tried has run.
    """
    default = runner.space.default
    best = best_launches(history, FINALISTS)
    chosen = confirmation.winner if confirmation else [*best, default][0]
    if chosen not in {*apparent, *best}:
        first = [f"{t.status}: {t.measurement.error}" for t in history[:1]]
        law = f"a winner of {runner.workload.key} must have run, got none that did"
        raise UsageError(f"{law} of {len(history)} trials {first}; nothing is stored")
    read = {row.config: row.median_us for row in confirmation.table} if confirmation else {}
    seen = apparent.get(chosen), apparent.get(default)
    duel = confirmation if confirmation and confirmation.replaced else None
    return Winner(
        kernel=runner.workload.kernel,
        workload=runner.workload.name,
        kernel_source=facts["kernel_source"],
        extents=dict(runner.workload.extents),
        dtype=runner.workload.dtype,
        gpu=facts["gpu"],
        config=chosen,
        default=default,
        finalists=tuple(best),
        apparent_ratio=seen[0] / seen[1] if all(seen) else None,
        **{name: getattr(duel, name, None) for name in ("ratio", "low", "high")},
        p_best=confirmation.p_best if confirmation else None,
        latency_us=read.get(chosen),
        default_us=read.get(default),
        protocol=facts["protocol"],
        searcher=facts["searcher"],
        seed=facts["seed"],
        trials=history.trials_spent,
        elapsed_s=elapsed_s,
        provenance=provenance() | _gpu_facts(runner),
    )


def _gpu_facts(runner: GpuRunner) -> dict[str, Any]:
    kept = ("gpu", "capability", "torch", "triton", "cuda", "devices")
    return {name: runner.facts[name] for name in kept if name in runner.facts} | {
        "driver": runner.sensors[0].get("driver"),
        "sensors": list(runner.sensors),
    }

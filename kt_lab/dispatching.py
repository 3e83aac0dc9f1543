"""From workloads to stored, guarded decisions, and from these to a table of configs.

`tune_guarded` is the one call: a space, gated where it was published by architecture, a search or
every config of a short list, a guarded pick per workload, confirmed again in another process,
stored.
`stored_dispatch` is the other: the table from key to config of what was decided for this GPU;
a decision of another kernel source, architecture, Triton or driver is refused, as is one that was
never confirmed, and whatever was never decided uses the kernel's own config.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.budget import Budget
from kt_lab.confirm import confirm
from kt_lab.decisions import Winner, load_winner, matches, save_winner, winners
from kt_lab.errors import StoreError, UnknownName, UsageError, require_known, whole
from kt_lab.guarded import Guarded, guarded_pick, spending
from kt_lab.kernels import get_kernel
from kt_lab.kernels.moe_spaces import PUBLISHED, space_for
from kt_lab.keys import Dispatch, Key
from kt_lab.live import winner_of
from kt_lab.many import every_extent, tune_many
from kt_lab.provenance import kernel_source
from kt_lab.runners.gpu.facts import gpu_arch, gpu_name, gpu_slug, read_sensors, triton_version
from kt_lab.runners.gpu.runner import GpuRunner
from kt_lab.search import make_searcher
from kt_lab.space import ParameterSpace
from kt_lab.trial import OK, Config, Measurement, Proposal
from kt_lab.tune import require_budget, tune_whole
from kt_lab.workload import Kernel, Workload

BUDGET = Budget(trials=200)


def gated_space(workload: Workload, *, arch: str, name: str = "wide") -> ParameterSpace:
    """Returns what may be tuned of a registered kernel's workload on an architecture.

    Args:
        workload: Of any registered kernel.
        arch: As its vendor's compiler calls it ("sm_90"); empty: unknown. Where that is so, or a
            kernel's spaces were published for other architectures only, there is nothing to tune:
            the space holds the kernel's own config alone.
        name: A published space of `kt_lab.kernels.moe_spaces`, with the kernel's own config;
            "wide": the kernel's whole space; "original": the kernel's own config.
    """
    every = get_kernel(workload.kernel).space(workload)
    own = every.rows([every.default])
    if workload.kernel in PUBLISHED:
        found = space_for(workload, arch=arch, name=name)
        return every.only(np.vstack([own, found.enumerate()]))
    if name not in ("wide", "original"):
        space_for(workload, arch=arch, name=name)  # says what there is
    return every if arch and name == "wide" else every.only(own)


@dataclass(frozen=True)
class Decided:
    """What a guarded tuning of several workloads came to.

    Attributes:
        arch: The architecture that it was for; empty: unknown.
        dispatch: Config by value of the key. A value whose workloads were not all tuned, or do
            not all use the same, is left to the default.
        winners: The decisions, as they are stored, in the order of the workloads; those with
            nothing to tune have none.
        guarded: The guarded picks by workload key, before they were confirmed again.
    """

    arch: str
    dispatch: Dispatch
    winners: tuple[Winner, ...]
    guarded: Mapping[str, Guarded]


def tune_guarded(
    workloads: Sequence[Workload],
    *,
    arch: str | None = None,
    name: str = "wide",
    k: int | None = None,
    objective: str = "geomean",
    searcher: str = "scout",
    budget: Budget = BUDGET,
    seed: int = 0,
    key: Key | None = None,
    processes: int = 2,
    runner_for: Callable[..., Any] = GpuRunner,
    spaces: Callable[..., ParameterSpace] = gated_space,
    directory: Path | str | None = None,
) -> Decided:
    """Tunes workloads of one kernel, guards every pick, and stores the decisions.

    Where the space of a workload holds one config, nothing is measured, compiled or opened.

    Args:
        workloads: Shapes of one kernel.
        arch: What to tune for; None: this machine's GPU, which is unknown without one.
        name: Of the space, see `gated_space`.
        k: Instead of a tuning per workload, one of at most k configs for all of them
            (`kt_lab.many.tune_many`), guarded on each workload that would use them.
        objective: Of these k: "geomean" or "minimax".
        searcher: Registered name of the searcher, for spaces that the budget cannot exhaust.
        budget: Of each search.
        seed: Its seed.
        key: Of the table; None: the dtype and every extent that all the workloads have.
        processes: In how many processes a pick must beat the incumbent, >= 1.
        runner_for: Called with workload and space=: `GpuRunner`, or `recorded_gpu.replayed`.
        spaces: Called as `gated_space` is; for kernels of one's own.
        directory: Folder of the winners; None: `winners` in the folder of recorded data.
    """
    processes, seed = whole("processes", processes, low=1), whole("seed", seed, low=0)
    require_budget(budget)
    if len(kernels := {w.kernel for w in workloads}) != 1:
        told = ", ".join(sorted(kernels)) or "none"
        raise UsageError(f"a guarded tuning needs workloads of one kernel, got kernels {told}")
    arch = (gpu_arch() or "") if arch is None else arch
    key = key or every_extent([workload.extents for workload in workloads])
    given = {w: s for w in workloads if (s := spaces(w, arch=arch, name=name)).size > 1}
    _ = [key(w, gpu=arch or "unknown") for w in workloads]  # refuses before anything is measured
    how = {"searcher": searcher, "budget": budget, "seed": seed}
    few = {"key": key, "gpu": arch or "unknown", "k": k, "objective": objective}
    given, search, share_s = _portfolio(given, runner_for, **few, **how)
    decided, guarded = [], {}
    for workload, space in given.items():
        guarded[workload.key], winner = _decide(workload, space, runner_for, processes, **how)
        decided.append(replace(winner, **search, elapsed_s=share_s + winner.elapsed_s))
        save_winner(decided[-1], directory)
    rest = [w for w in workloads if w not in given]
    return Decided(arch, Dispatch.of_winners(key, decided, others=rest), tuple(decided), guarded)


def _portfolio(
    given: Mapping[Workload, ParameterSpace], runner_for, **how: Any
) -> tuple[dict[Workload, ParameterSpace], dict[str, Any], float]:
    """Returns the spaces of a default and what would replace it, the search, a shape's seconds.

    Where nothing would, the default is the decision, and that of an earlier tuning no more.
    Without a k the spaces are as they were.
    """
    if how["k"] is None or not given:
        return dict(given), {}, 0.0
    found = tune_many(
        list(given),
        runner_for=lambda w: runner_for(w, space=given[w]),
        space_of=given.__getitem__,
        **how,
    )
    use, gpu = found.dispatch.config, how["gpu"]
    chosen = {w: use(w, s.default, gpu=gpu, space=s) for w, s in given.items()}
    left = {w: s.only(s.rows([s.default, chosen[w]])) for w, s in given.items()}
    trials = sum(history.trials_spent for history in found.histories)  # each on every shape
    return left, {"searcher": how["searcher"], "trials": trials}, found.machine_s / len(given)


def _decide(
    workload: Workload, space: ParameterSpace, runner_for, processes, *, searcher, budget, seed
) -> tuple[Guarded, Winner]:
    """Returns the guarded pick of one workload, and the decision after all processes."""
    listed = space.enumerable and space.size <= (budget.trials or 0)
    searcher, incumbent = "random" if listed else searcher, space.default
    with closing(runner_for(workload, space=space)) as runner:
        found = make_searcher(searcher, space, seed=seed, budget=budget)
        history = tune_whole(found, runner, budget=budget)
        read = {c: t.measurement for c, t in history.readings.items()}
        read |= _measured(runner, [c for c in [incumbent] if c not in read])
        apparent = {c: m.latency_us for c, m in read.items()}
        usual = apparent.get(incumbent) or min(apparent.values(), default=1.0)
        rule, launches = spending(usual, len(history))
        known = {"incumbent": incumbent, "apparent_us": apparent, "rule": rule}
        guarded = guarded_pick(runner, **known, launch=_launches(read).get, launches=launches)
        last, elapsed_s = guarded.confirmation, runner.now
        winner = _winner(runner, history, last, apparent, elapsed_s, searcher, seed)
    for _ in range(1, processes):
        if not last.replaced:
            break
        with closing(runner_for(workload, space=space)) as runner:
            _measured(runner, [incumbent, guarded.config])
            last = confirm(runner, **known, finalists=[guarded.config])
            elapsed_s += runner.now
            winner = _winner(runner, history, last, apparent, elapsed_s, searcher, seed)
    return guarded, winner


def _measured(runner, configs: Sequence[Config]) -> dict[Config, Measurement]:
    """Measures configs, so that they are known to be right, and returns those that ran."""
    while runner.pending:  # what a search left under way when its seconds were over
        runner.next()
    runner.submit([Proposal(-1 - i, c, origin="incumbent") for i, c in enumerate(configs)])
    found = [runner.next() for _ in configs]
    return {p.config: m for p, m in found if m.status == OK}


def _launches(read: Mapping[Config, Measurement]) -> dict[Config, Any]:
    """Returns what the GPU executes for each config that ran."""
    return {c: (m.info.get("code_hash") or c, m.info.get("grid")) for c, m in read.items()}


def _winner(runner, history, confirmation, apparent, elapsed_s, searcher, seed) -> Winner:
    facts = {
        "kernel_source": runner.facts.get("kernel_source") or kernel_source(runner.kernel),
        "gpu": runner.facts["slug"],
        "protocol": runner.protocol.name,
        "searcher": searcher,
        "seed": seed,
    }
    return winner_of(runner, facts, history, confirmation, apparent, elapsed_s)


# -- stored decisions, in use ---------------------------------------------------------------------


def here(kernel: Kernel | str, *, device: int = 0) -> dict[str, str | None]:
    """Returns what decisions are bound to, as it is now; None where it is not known.

    Args:
        kernel: The kernel, or its registered name.
        device: Index of the GPU as CUDA counts them; it is not touched.

    Returns:
        kernel_source, gpu, arch, triton and driver, as `kt_lab.decisions.matches` takes them.
    """
    name = gpu_name(device)
    return {
        "kernel_source": kernel_source(get_kernel(kernel) if isinstance(kernel, str) else kernel),
        "gpu": gpu_slug(name) if name else None,
        "arch": gpu_arch(device),
        "triton": triton_version(),
        "driver": read_sensors(device)["driver"],
    }


def require_current(winner: Winner, **now: str | None) -> Winner:
    """Returns a winner that still is of the kernel, GPU and versions that it is to be used with.

    Args:
        winner: The stored winner.
        **now: As `here` returns them.

    Raises:
        StoreError: Something differs; it is named.
    """
    if changed := matches(winner, **now):
        raise StoreError(
            "a stored winner must be of the kernel, GPU and versions that it is used with, got "
            f"{winner.key} of {winner.gpu}: {'; '.join(changed)}; see whether it still holds with "
            f"kt-lab recheck {winner.key}, or tune again"
        )
    return winner


def stored_dispatch(
    kernel: Kernel | str,
    *,
    key: Key | None = None,
    directory: Path | str | None = None,
    **now: str | None,
) -> Dispatch:
    """Returns the table from key to config of what was decided for a kernel on this GPU.

    Whatever is not in it, another shape or another GPU, uses the default: nothing is tuned here.
    A decision that `kt_lab.tune_live` stored serves as well, once it was confirmed.

    Args:
        kernel: The kernel, or its registered name.
        key: Of the table; None: the dtype and every extent that all decided shapes and all of the
            kernel's have: what differs in an optional one alone and wants another config is left
            to the default.
        directory: Folder of the winners; None: `winners` in the folder of recorded data.
        **now: What is to be taken for true instead of what `here` returns; for a kernel of one's
            own that has no source file, all of it.

    Raises:
        StoreError: A decision is stale, or was stored by a run that ended before its confirmation;
            it is named, with what changed.
        UnknownName: `now` names something that no decision is bound to.
    """
    require_known("fact of a decision", now, _BOUND)
    now = now if len(now) == len(_BOUND) else here(kernel) | now
    name = kernel if isinstance(kernel, str) else kernel.name
    found = [
        require_current(load_winner(at, gpu=gpu, directory=directory), **now)
        for at, gpu, _ in winners(directory)
        if at.partition("/")[0] == name and gpu == now["gpu"]
    ]
    for winner in found:
        if winner.config != winner.default and winner.p_best is None:
            raise StoreError(
                "a config must be confirmed on fresh readings to replace the default, got the "
                f"winner of {winner.key} on {winner.gpu} from a run that ended before that; "
                f"kt-lab tune {winner.key} goes on where the search ended, and confirms"
            )
    with suppress(UnknownName):  # a kernel of one's own need not be registered
        kernel = get_kernel(kernel) if isinstance(kernel, str) else kernel
    known = () if isinstance(kernel, str) else kernel.workloads
    shapes = [each.extents for each in (*found, *known)]
    return Dispatch.of_winners(key or every_extent(shapes), found)


_BOUND = ("kernel_source", "gpu", "arch", "triton", "driver")

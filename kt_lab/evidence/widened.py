"""The flagship where nothing can be listed: its defaults compared on recorded spaces made wide.

Helion's spaces have two dozen parameters, most of which hardly matter, and nobody can record one
whole. Here a recorded landscape is multiplied by further parameters whose effects are drawn: what
a config takes is what its recorded part took, times what every further parameter costs. That is a
model and no measurement. It serves to compare defaults; Helion's own spaces judge them, live
(`kt-lab evidence large`). The kernels are those of `kt-lab evidence ablation`, one workload each.
"""

import argparse
import heapq
import itertools
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache, partial
from typing import Any

import numpy as np

from kt_lab.budget import Budget
from kt_lab.cells import recorded
from kt_lab.evidence import ablation
from kt_lab.evidence.ablation import WHOLE, Variant, changed
from kt_lab.evidence.cold import BUDGETS, judged
from kt_lab.evidence.resuming import Rows, columns, short
from kt_lab.evidence.sizes import add_effort
from kt_lab.evidence.widened_variants import VARIANTS
from kt_lab.experiment import process_pool
from kt_lab.parameters import Choice, Flag, Integer, Parameter, PowerOfTwo
from kt_lab.provenance import provenance
from kt_lab.search import make_searcher
from kt_lab.space import ParameterSpace
from kt_lab.trial import OK, Config, Measurement, Proposal
from kt_lab.tune import tune_whole

KINDS = ("mild", "steep")
"""Further parameters as hints are; and with them three sizes, wrong ones of which cost much."""
PEERS = ("random", "genetic", "helion_lfbo_tree", "pattern")
LONGER = (*BUDGETS, 400, 800, 1200, 1600, 2000)
"""What runs are judged at, as far as their budget reaches."""
_FURTHER: tuple[Parameter, ...] = (
    *(Choice(f"hint_{i}", (0, 1, 2, 3)) for i in range(3)),
    *(Choice(f"mode_{i}", (0, 1, 2)) for i in range(6)),
    *(Flag(f"flag_{i}") for i in range(3)),
    *(Integer(f"depth_{i}", 0, 4) for i in range(3)),
    PowerOfTwo("group", 1, 64),
)
_SIZES = tuple(PowerOfTwo(f"size_{i}", 1, 128) for i in range(3))
_START = (64, 1, 16)  # sizes of the default config
_SCALES, _SHARES = (0.002, 0.02, 0.3), (0.5, 0.3, 0.2)  # of a parameter's costs, and how often
_REFUSED = 0.02  # share of alternatives that no config works with
_PAIRS, _PAIR_COST = 3, 0.05  # further parameters whose cost hangs on a recorded one
_NOISE = 0.005  # of the logarithm of a reading
_REFUSAL_S = 0.3  # seconds that a config costs which the landscape knows nothing of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what is left out, where, and how often."""
    first = {name.partition("/")[0]: name for name in reversed(ablation.WORKLOADS)}
    parser.add_argument("--workloads", nargs="+", default=sorted(first.values()))
    everyone = [*VARIANTS, *PEERS]
    parser.add_argument("--variants", nargs="+", choices=everyone, default=everyone)
    add_effort(parser, seeds=5, trials=100, lanes=14)
    parser.add_argument("--again", action="store_true", help="search what is stored once more")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Searches every widened space with every variant; goes on where it was stopped."""
    facts = {name: getattr(args, name) for name in ("gpu", "seeds", "trials", "lanes", "variants")}
    rows = Rows(args.out, facts, provenance(), again=args.again)
    with process_pool(args.workers) as pool:
        for workload, kind in itertools.product(args.workloads, KINDS):
            key = {"workload": workload, "kind": kind}
            rows.once(key, partial(_row, pool, workload, kind, args))
    rows.result["paired"] = paired(rows.result) if WHOLE in args.variants else []
    return rows.result


def paired(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what `kt_lab.evidence.ablation.paired` does, both kinds of a workload apart."""
    apart = []
    for row in result["rows"]:
        runs = [
            {"judged_us": us, "close_s": None, "search_ms": 0.0}
            for told in row["judged_us"]  # by variant, then by seed
            for us in told
        ]
        name = f"{row['workload']}/{row['kind']}"
        apart.append(row | {"workload": name, "noise_floor": 1.0, "runs": columns(runs)})
    budgets = [budget for budget in LONGER if budget <= result["trials"]]
    table = judged({**result, "rows": apart}, budgets=budgets)
    variants = VARIANTS | {p: Variant("a peer") for p in PEERS}
    return ablation.paired(table, variants=variants, budgets=budgets)


report = ablation.report


def _row(pool: Executor, workload: str, kind: str, args: argparse.Namespace) -> dict[str, Any]:
    jobs = [
        (workload, kind, args.gpu, name, seed, args.trials, args.lanes)
        for name in args.variants
        for seed in range(args.seeds)
    ]
    found = list(pool.map(searched, *zip(*jobs, strict=True)))
    each = [found[at : at + args.seeds] for at in range(0, len(found), args.seeds)]
    world = widened(workload, kind, args.gpu)
    return {
        "kernel": recorded(workload, args.gpu).kernel,
        "optimum_us": short(world.optimum_us, 6),
        "configs": world.size,
        "judged_us": [[us for us, _ in runs] for runs in each],  # in the order of the variants
        "search_ms": [round(1e3 * float(np.median([s for _, s in runs])), 2) for runs in each],
    }


def searched(
    workload: str, kind: str, gpu: str, name: str, seed: int, trials: int, lanes: int
) -> tuple[list[float | None], float]:
    """Searches once, as a variant of the flagship or as a peer.

    Returns:
        What the incumbent takes without noise after each of LONGER that `trials` reach, in
        microseconds, None before the first; and the searcher's own seconds a trial.
    """
    world = widened(workload, kind, gpu)
    variant = VARIANTS.get(name, Variant("a peer"))
    with changed(variant):
        searcher = make_searcher(
            WHOLE if name in VARIANTS else name,
            world.space,
            seed=seed,
            budget=Budget(trials),
            **variant.options,
        )
        runner = WideRunner(world, lanes=lanes, seed=seed)
        history = tune_whole(searcher, runner, budget=Budget(trials))
    best, at = math.inf, []
    for trial in history:
        if trial.latency_us is not None and trial.latency_us < best:
            best, held = trial.latency_us, world.latency_us(trial.config)
        if trial.first:  # another reading of a config spends no trial
            at.append(math.inf)
        at[-1] = held if math.isfinite(best) else math.inf
    told = [at[min(budget, len(at)) - 1] for budget in LONGER if budget <= trials]
    return [short(us, 4) for us in told], max(t.search_s for t in history) / len(history)


@lru_cache(maxsize=4)
def widened(workload: str, kind: str, gpu: str) -> "Widened":
    """Returns the widened space of a recorded workload: the same in every process."""
    return Widened(workload, kind, gpu)


class Widened:
    """A recorded landscape times further parameters.

    Attributes:
        space: The recorded space's parameters and constraints, and the further parameters.
        size: Configs in it, valid or not.
        optimum_us: Of the recorded config that is best, every further parameter at its best:
            nothing is faster, and what parameters cost together may be in the way of it.
    """

    def __init__(self, workload: str, kind: str, gpu: str):
        """Draws the effects; KINDS."""
        self._recorded = recorded(workload, gpu)
        base = self._recorded.space
        rng = np.random.default_rng([KINDS.index(kind), *workload.encode()])
        sizes = _SIZES if kind == "steep" else ()
        further = (*_FURTHER, *sizes)
        default = dict(base.default) | {p.name: p.values[0] for p in _FURTHER}
        default |= {p.name: value for p, value in zip(sizes, _START, strict=False)}
        self.space = ParameterSpace(
            [*base.parameters, *further],
            constraints=list(base.constraints),
            constants=base.constants,
            default=default,
        )
        self.size = float(math.prod(p.cardinality for p in self.space.parameters))
        self.optimum_us = self._recorded.optimum_us
        self._names = [p.name for p in base.parameters]
        self._costs = [_costs(p, rng) for p in _FURTHER]
        best = rng.integers(1, 5, size=len(sizes))
        self._costs += [_size_costs(p, b, rng) for p, b in zip(sizes, best, strict=True)]
        self._most = max(int(rng.integers(11, 14)), int(best.sum())) if sizes else math.inf
        self._pairs = [
            (at, rng.integers(len(self._names)), np.abs(rng.normal(size=(8, 64))) * _PAIR_COST)
            for at in rng.choice(len(_FURTHER), _PAIRS, replace=False)
        ]

    def latency_us(self, config: Config) -> float:
        """Returns what a config takes, without noise; inf where it fails."""
        row = self.space.row(config)
        base, further = row[: len(self._names)], row[len(self._names) :]
        us = self._recorded.latency_us[self._at(config)]
        cost = sum(table[at] for table, at in zip(self._costs, further, strict=True))
        cost += sum(table[further[a], base[b] % 64] for a, b, table in self._pairs if further[a])
        if not np.isfinite(us) or further[len(_FURTHER) :].sum() > self._most:
            return math.inf
        return float(us * math.exp(cost))

    def compile_s(self, config: Config) -> float:
        """Returns what the recorded part took to compile, in seconds."""
        seconds = float(self._recorded.column("compile_s")[self._at(config)])
        return seconds if math.isfinite(seconds) else _REFUSAL_S

    def _at(self, config: Config) -> int:
        return self._recorded.index(Config({name: config[name] for name in self._names}))


def _costs(parameter: Parameter, rng: np.random.Generator) -> np.ndarray:
    """Returns what each alternative costs, a logarithm: the best nothing, few ones everything."""
    found = np.abs(rng.normal(size=parameter.cardinality)) * rng.choice(_SCALES, p=_SHARES)
    found -= found.min()
    refused = (rng.random(len(found)) < _REFUSED) & (found > 0)
    refused[0] = False  # the default works
    return np.where(refused, math.inf, found)


def _size_costs(parameter: Parameter, best: int, rng: np.random.Generator) -> np.ndarray:
    apart = np.abs(np.arange(parameter.cardinality) - best)
    return rng.uniform(0.7, 1.5) * apart * (1 + 0.15 * apart)


class WideRunner:
    """Lanes that compile and time configs of a widened space, on a clock of their own."""

    live = False

    def __init__(self, world: Widened, *, lanes: int, seed: int):
        """Starts with all lanes free."""
        self._world, self._lanes = world, lanes
        self._rng = np.random.default_rng([1, seed])
        self._active: list[tuple[float, int, Proposal]] = []
        self._taken = itertools.count()
        self.now = 0.0

    @property
    def free(self) -> int:
        """Lanes without work."""
        return self._lanes - len(self._active)

    @property
    def pending(self) -> int:
        """Proposals that were not answered yet."""
        return len(self._active)

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Gives every proposal a lane."""
        for proposal in proposals:
            ends = self.now + self._world.compile_s(proposal.config)
            heapq.heappush(self._active, (ends, next(self._taken), proposal))

    def next(self) -> tuple[Proposal, Measurement]:
        """Returns the next to end, with one noisy reading."""
        self.now, _, proposal = heapq.heappop(self._active)
        us = self._world.latency_us(proposal.config)
        if not math.isfinite(us):
            return proposal, Measurement("compile_error", error="an alternative is refused")
        read_us = us * math.exp(_NOISE * self._rng.normal())
        return proposal, Measurement(OK, samples_us=(read_us,))

    def close(self) -> None:
        """Nothing is held."""

"""Replay: a recorded landscape answers instead of the GPU, with its noise, failures and costs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kt_lab.clock import Job
from kt_lab.errors import UsageError
from kt_lab.landscape import Landscape
from kt_lab.runners.simulated import SimulatedRunner
from kt_lab.space import ParameterSpace
from kt_lab.trial import CENSORED, OK, Config, Measurement, Proposal

REPETITIONS = 10  # of a proposal that does not say how many it wants
_PROBES = 3  # timed launches before a cut-off may stop a slow config


class ReplayRunner(SimulatedRunner):
    """Measures by looking up a recorded landscape, on a simulated clock.

    The searcher reads one recorded visit; `judge` answers from the others, which it never sees.
    A reading is a random subset (without replacement) of the recorded samples of the visit, so
    that asking for more repetitions than were recorded, or asking again and again, never averages
    the noise below what was recorded. Seconds are charged as asked.
    """

    def __init__(
        self,
        landscape: Landscape,
        *,
        seed: int,
        space: ParameterSpace | None = None,
        compile_lanes: int = 16,
        overlap: bool = True,
        share_duplicates: bool = True,
        repetitions: int = REPETITIONS,
    ):
        """Sets up the simulated pipeline at time zero.

        Args:
            landscape: What to replay.
            seed: Chooses the visit that is read (seed modulo visits) and the subsets.
            space: The space that the searcher uses; its fingerprint must match the landscape's.
            compile_lanes: Simulated compile processes, >= 1.
            overlap: Whether timing goes on while others compile.
            share_duplicates: Whether a config whose binary is identical to one already timed
                takes over its samples at no cost, as the live pipeline does.
            repetitions: Timed launches of a proposal that does not say.
        """
        if space is not None:
            landscape.require(space)
        if repetitions < 1:
            raise UsageError(f"repetitions must be >= 1, got repetitions={repetitions}")
        self._landscape = landscape
        self._facts = _facts(landscape)
        self._seed = seed
        self.visit = seed % max(1, landscape.visits)
        super().__init__(compile_lanes=compile_lanes, overlap=overlap)
        self._share = share_duplicates
        self._repetitions = repetitions
        self._compiled: set[str] = set()
        self._asked: Counter[int] = Counter()
        self._timed: dict[str, int] = {}  # code hash -> config whose samples stand for it
        self._spent: dict[int, float] = {}  # ticket -> seconds of its compilation
        self._answers: dict[int, Measurement] = {}  # ticket -> what the timing lane found
        self._tickets = 0

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Queues proposals; raises UnrecordedConfig or SpaceError before queueing any."""
        for at, proposal in [(self._landscape.index(p.config), p) for p in proposals]:
            ticket, self._tickets = self._tickets, self._tickets + 1
            job = Job(
                tag=(ticket, at, proposal),
                compile_s=self._compilation(at, ticket),
                timing_s=self._timing(at, ticket, proposal),
            )
            self._clock.submit(job)

    def next(self) -> tuple[Proposal, Measurement]:
        """Advances the clock to the next finished proposal."""
        ticket, at, proposal = self._clock.next()
        found = self._answers.pop(ticket, None) or self._failure(at)
        return proposal, replace(found, compile_s=self._spent.pop(ticket, 0.0))

    def judge(self, config: Config) -> float | None:
        """Returns the config's median latency in the visits that the searcher does not read.

        In microseconds; None when the config failed. With one visit only, that visit judges.
        """
        value = self.judged_us[self._landscape.index(config)]
        return None if np.isnan(value) else float(value)

    @property
    def judged_us(self) -> np.ndarray:
        """What `judge` answers for every config of the space, shape (size,), NaN if failed."""
        return judged_us(self._landscape, visit=self.visit)

    # -- costs and readings ---------------------------------------------------------------------

    def _compilation(self, at: int, ticket: int):
        facts = self._facts
        if facts["specialisation"][at] in self._compiled:
            return None
        if facts["times"][at]:
            self._compiled.add(facts["specialisation"][at])
        slower = facts["slower"]
        alone = facts["compile_s"][at] / slower(facts["compile_workers"][at])

        def seconds(active: int) -> float:
            self._spent[ticket] = spent = alone * slower(active)
            return spent

        return seconds

    def _timing(self, at: int, ticket: int, proposal: Proposal):
        if not self._facts["times"][at]:
            return None

        def seconds() -> float:
            self._answers[ticket] = measurement = self._time(at, proposal)
            return measurement.measure_s

        return seconds

    def _failure(self, at: int) -> Measurement:
        return Measurement(
            self._facts["status"][at],
            measure_s=self._facts["failure_s"][at],
            info={"config": at},
            error=self._facts["error"][at],
        )

    def _time(self, at: int, proposal: Proposal) -> Measurement:
        facts = self._facts
        if facts["status"][at] != OK:
            return self._failure(at)
        twin = at
        if self._share:
            twin = self._timed.setdefault(facts["code_hash"][at], at)
        recorded = self._landscape.samples[self.visit][twin]
        asked = proposal.repetitions or self._repetitions
        samples, launches = self._draw(twin, recorded, asked, proposal.cutoff_us)
        first = self._asked[at] == 0
        self._asked[at] += 1
        check = overhead = 0.0
        if first and twin == at:
            check = facts["check_s"][at]
            overhead = facts["timing_overhead_s"][at]
        shared = first and twin != at  # the identical binary was timed before
        launches_paid = 0 if shared else launches
        one = (float(np.median(recorded)) + facts["flush_us"]) * 1e-6
        return Measurement(
            OK if launches == asked else CENSORED,
            samples_us=samples,
            check_s=check,
            measure_s=check + overhead + launches_paid * one,
            info={"config": at} if twin == at else {"config": at, "twin": twin},
        )

    def _draw(self, at: int, recorded: np.ndarray, asked: int, cutoff_us: float | None):
        """Returns samples and how many launches they stand for."""
        rng = np.random.default_rng((self._seed, at, self._asked[at]))
        picked = rng.permutation(recorded)[: min(asked, len(recorded))]
        if cutoff_us is not None and asked > _PROBES:
            probes = picked[:_PROBES]
            if np.median(probes) > cutoff_us:
                return tuple(probes.tolist()), len(probes)
        return tuple(picked.tolist()), asked


def _facts(landscape: Landscape) -> dict:
    """Returns a landscape's columns as plain arrays, once per landscape and process."""
    cached = landscape.__dict__.get("_replay_facts")
    if cached is not None:
        return cached
    names = ("compile_s", "compile_workers", "check_s", "timing_overhead_s", "failure_s")
    facts: dict = {n: np.nan_to_num(landscape.column(n).astype(float)).tolist() for n in names}
    for n in ("specialisation", "code_hash", "error"):
        facts[n] = landscape.column(n, missing="").tolist()
    facts["status"] = landscape.status.tolist()
    facts["times"] = [  # whether the config got as far as the timing lane
        s == OK or failed > 0
        for s, failed in zip(facts["status"], facts["failure_s"], strict=True)
    ]
    facts["flush_us"] = float(landscape.manifest["flush_us"])
    facts["slower"] = contention_factor(landscape.manifest.get("contention"))
    landscape.__dict__["_replay_facts"] = facts
    return facts


def contention_factor(fit: dict | None):
    """Returns how much slower a compilation is when n run at once, as a function of n >= 1.

    Args:
        fit: `a` and `p` of 1 + a (n - 1)^p from the manifest; None: no contention.
    """
    if not fit:
        return lambda n: 1.0  # noqa: ARG005
    a, p = fit["a"], fit["p"]
    return lambda n: 1.0 + a * max(0.0, n - 1.0) ** p


def judged_us(landscape: Landscape, *, visit: int) -> np.ndarray:
    """Returns each config's median over the visits other than `visit`, microseconds, (size,)."""
    cache = landscape.__dict__.setdefault("_judged", {})
    if visit not in cache:
        others = [v for v in range(landscape.visits) if v != visit] or [visit]
        medians = np.stack([landscape.medians_us(v) for v in others])
        cache[visit] = np.median(medians, axis=0)
    return cache[visit]

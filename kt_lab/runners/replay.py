"""Replay: a recorded landscape answers instead of the GPU, with its noise, failures and costs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kt_lab.clock import Job
from kt_lab.errors import UsageError, whole
from kt_lab.landscape import Landscape, load_landscape
from kt_lab.runners.repetitions import Repetitions
from kt_lab.runners.simulated import SimulatedRunner
from kt_lab.space import ParameterSpace, Space
from kt_lab.trial import CENSORED, OK, Config, Measurement, Proposal


class ReplayRunner(SimulatedRunner):
    """Measures by looking up a recorded landscape, on a simulated clock.

    The searcher reads one recorded visit; `judge` answers from the others, which it never sees.
    A reading is a random subset (without replacement) of the recorded samples of the visit, so
    that asking for more repetitions than were recorded, or asking again and again, never averages
    the noise below what was recorded. Seconds are charged as asked.
    """

    def __init__(
        self,
        landscape: Landscape | str,
        *,
        seed: int,
        space: ParameterSpace | None = None,
        compile_lanes: int = 16,
        overlap: bool = True,
        share_duplicates: bool = True,
        rule: Repetitions | None = None,
        offset: np.ndarray | None = None,
    ):
        """Sets up the simulated pipeline at time zero.

        Args:
            landscape: What to replay, or its key as `load_landscape` takes it.
            seed: Chooses the visit that is read (seed modulo visits) and the subsets.
            space: The space that the searcher uses; its fingerprint must match the landscape's.
            compile_lanes: Simulated compile processes, >= 1.
            overlap: Whether timing goes on while others compile.
            share_duplicates: Whether a config whose binary is identical to one already timed
                takes over its samples at no cost, as the live pipeline does.
            rule: How often a config is launched; None: as the live runner does.
            offset: What another day adds to every reading of a config, as a logarithm, shape
                (space.size,), as `kt_lab.sessions.draw_offset` returns it; `judge` is not moved.
                None: the day of the recording.
        """
        landscape = load_landscape(landscape) if isinstance(landscape, str) else landscape
        self.space = space or landscape.space
        landscape.require(self.space)
        self._landscape = landscape
        self._facts = _facts(landscape)
        self._seed = whole("seed", seed, low=0)
        self.visit = self._seed % max(1, landscape.visits)
        super().__init__(compile_lanes=compile_lanes, overlap=overlap)
        self._share = share_duplicates
        self._day = np.ones(landscape.space.size) if offset is None else np.exp(offset)
        if self._day.shape != (landscape.space.size,):
            raise UsageError(
                f"offset must have one entry per config, shape ({landscape.space.size},), got "
                f"{self._day.shape}; draw it for this landscape"
            )
        self._rule = rule or Repetitions()
        self._best_us: float | None = None
        self._compiled: set[str] = set()
        self._asked: Counter[int] = Counter()
        # binary and grid -> the config that was timed, and its measurement
        self._timed: dict[tuple[str, str], tuple[int, Measurement]] = {}
        self._spent: dict[int, float] = {}  # ticket -> seconds of its compilation
        self._answers: dict[int, Measurement] = {}  # ticket -> what the timing lane found
        self._tickets = 0

    def require_space(self, space: Space) -> None:  # noqa: ARG002 - what it holds is looked up
        """Raises UsageError for a second run: clock and compiled binaries would be the first's."""
        if self.now > 0.0:
            raise UsageError(
                "a ReplayRunner measures for one run, got one whose clock stands at "
                f"{self.now:.3f} s; make ReplayRunner(landscape, seed=...) for each run"
            )

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

    def recall(self, measured: Sequence[tuple[Proposal, Measurement]]) -> None:
        """Takes up the state that an earlier part of the run ended in, given what it measured."""
        for proposal, measurement in measured:
            at = self._landscape.index(proposal.config)
            if self._facts["times"][at]:
                self._compiled.add(self._facts["specialisation"][at])
                self._asked[at] += 1
            if measurement.status == OK and "twin" not in measurement.info:
                self._timed.setdefault(self._facts["launch"][at], (at, measurement))
                latency = measurement.latency_us
                self._best_us = min(latency, self._best_us or latency)

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
        asked, self._asked[at] = self._asked[at], self._asked[at] + 1
        launch = self._facts["launch"][at]
        twin, measured = self._timed.get(launch, (at, None))
        wanted = proposal.repetitions or 0
        if self._share and not asked and twin != at and wanted <= len(measured.samples_us):
            # The identical launch was timed under another name: its samples, at no cost.
            info = {"config": at, "twin": twin}
            return replace(measured, check_s=0.0, measure_s=0.0, info=info)
        found = self._measure(at, proposal, number=asked)
        if found.status == OK:
            self._timed.setdefault(launch, (at, found))
            self._best_us = min(found.latency_us, self._best_us or found.latency_us)
        return found

    def _measure(self, at: int, proposal: Proposal, *, number: int) -> Measurement:
        facts = self._facts
        if facts["status"][at] != OK:
            return self._failure(at)
        recorded = self._landscape.samples[self.visit][at] * self._day[at]
        samples, launches, censored = self._draw(at, recorded, proposal, number)
        first = number == 0
        check = facts["check_s"][at] if first else 0.0
        overhead = facts["timing_overhead_s"][at] if first else 0.0
        one = (float(np.median(recorded)) + facts["flush_us"]) * 1e-6
        return Measurement(
            CENSORED if censored else OK,
            samples_us=samples,
            check_s=check,
            measure_s=check + overhead + launches * one,
            info={"config": at},
        )

    def _draw(
        self, at: int, recorded: np.ndarray, proposal: Proposal, number: int
    ) -> tuple[tuple[float, ...], int, bool]:
        """Returns samples, how many launches they stand for, and whether they were cut off."""
        rng = np.random.default_rng((self._seed, at, number))
        picked = rng.permutation(recorded)
        asked = proposal.repetitions
        launches = self._rule.first(asked)
        rest = self._rule.rest(
            picked[:launches].tolist(),
            asked=asked,
            best_us=self._best_us,
            cutoff_us=proposal.cutoff_us,
        )
        launches += rest or 0
        return tuple(picked[:launches].tolist()), launches, rest is None


def _facts(landscape: Landscape) -> dict:
    """Returns a landscape's columns as plain arrays, once per landscape and process."""
    cached = landscape.__dict__.get("_replay_facts")
    if cached is not None:
        return cached
    names = ("compile_s", "compile_workers", "check_s", "timing_overhead_s", "failure_s")
    facts: dict = {n: np.nan_to_num(landscape.column(n).astype(float)).tolist() for n in names}
    # Compilations that shared their cores with others' are charged by their CPU seconds.
    by_cpu = landscape.manifest.get("compile_clock") == "cpu"
    if by_cpu:
        cpu = landscape.column("compile_cpu_s").astype(float)
        wall = np.asarray(facts["compile_s"])
        facts["compile_s"] = np.where(np.isfinite(cpu), cpu, wall).tolist()
    for n in ("specialisation", "error"):
        facts[n] = landscape.column(n, missing="").tolist()
    facts["launch"] = landscape.launches
    facts["status"] = landscape.status.tolist()
    facts["times"] = [  # whether the config got as far as the timing lane
        s == OK or failed > 0
        for s, failed in zip(facts["status"], facts["failure_s"], strict=True)
    ]
    facts["flush_us"] = float(landscape.manifest["flush_us"])
    fitted = None if by_cpu else landscape.manifest.get("contention")
    facts["slower"] = contention_factor(fitted)
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


def timing_costs_s(landscape: Landscape, *, visit: int) -> np.ndarray:
    """Returns what timing a config costs in seconds: shape (3, size).

    The first time besides its launches, later besides its launches, and per launch. A config that
    fails costs the same every time, whatever was launched.
    """
    facts, once = _facts(landscape), np.ones(landscape.space.size)
    first = np.add(facts["check_s"], facts["timing_overhead_s"])
    launch = (landscape.medians_us(visit) + facts["flush_us"]) * 1e-6
    timed, failed = [first, 0 * once, launch], [*[facts["failure_s"]] * 2, once]
    return np.where(landscape.status == OK, timed, failed)

"""SyntheticRunner: a landscape by formula, with a known optimum, on a simulated clock."""

import hashlib
import math
from collections.abc import Sequence

import numpy as np

from kt_lab.clock import Job
from kt_lab.errors import UsageError
from kt_lab.runners.simulated import SimulatedRunner
from kt_lab.space import ParameterSpace
from kt_lab.trial import CENSORED, OK, Config, Measurement, Proposal

_CHECK_S = 0.01  # seconds of the correctness check of a config's first measurement
_PROBES = 3  # launches before a cut-off may end the timing
_SCALE = 2.0**-64


class SyntheticLandscape:
    """Latencies of every config of a space, computed on demand; nothing is enumerated.

    log(latency / best) is a sum of terms that are all 0 at the optimum and > 0 elsewhere: a
    weighted square of each parameter's distance from its best value (any wrong value of an
    unordered parameter costs the same order), the squared difference of the distances of
    neighbouring parameters (valleys that one-parameter moves do not follow), and a ripple, random
    per config (local optima).

    Attributes:
        optimum: The config with the lowest latency.
        optimum_us: Its latency in microseconds.
    """

    def __init__(
        self,
        space: ParameterSpace,
        *,
        seed: int,
        optimum_us: float = 100.0,
        spread: float = 2.0,
        coupling: float = 1.0,
        ripple: float = 0.05,
        failing: float = 0.0,
    ):
        """Draws the optimum and the weights.

        Args:
            space: Any ParameterSpace; 10**8 points are as cheap as 10.
            seed: Fixes the landscape.
            optimum_us: Latency of the optimum, > 0.
            spread: Mean log-latency cost of being wrong in every parameter, >= 0.
            coupling: Weight of the valleys relative to `spread`, >= 0.
            ripple: Largest log-latency cost that is random per config, >= 0.
            failing: Share of the configs that fail, in [0, 1]; below 1 the optimum and the
                default never do.
        """
        if not 0 <= failing <= 1:
            raise UsageError(f"failing must be a share in [0, 1], got failing={failing}")
        if not (optimum_us > 0 and min(spread, coupling, ripple) >= 0):
            raise UsageError(
                "optimum_us must be > 0 and spread, coupling, ripple >= 0, got "
                f"{optimum_us}, {spread}, {coupling}, {ripple}"
            )
        rng = np.random.default_rng([seed, 1])
        self.space = space
        self.optimum_us = optimum_us
        self._best = space.sample_rows(1, rng=rng)[0]
        self.optimum: Config = space.config(self._best.tolist())
        self._seed = seed
        self._failing = failing
        self._ripple = ripple
        self._ordered = np.asarray([p.ordered for p in space.parameters])
        self._span = np.asarray([max(1, p.cardinality - 1) for p in space.parameters])
        self._weights = spread * rng.dirichlet(np.ones(len(space.parameters)))
        self._coupling = coupling * spread * rng.dirichlet(np.ones(len(space.parameters)))
        self._unordered = [rng.uniform(0.5, 1.0, size=p.cardinality) for p in space.parameters]
        for costs, best in zip(self._unordered, self._best, strict=True):
            costs[best] = 0.0

    def latencies(self, rows: np.ndarray) -> np.ndarray:
        """Returns true latencies in microseconds of rows of shape (n, parameters), failing or not.

        The random ripple is hashed row by row; everything else is vectorised.
        """
        rows = np.asarray(rows)
        apart = (rows - self._best) / self._span  # in [-1, 1]
        for i in np.flatnonzero(~self._ordered):
            apart[:, i] = self._unordered[i][rows[:, i]]
        cost = (apart**2 * 4) @ self._weights
        cost += (apart - np.roll(apart, 1, axis=1)) ** 2 @ self._coupling
        ripple = np.asarray([self._dice(row, 1)[0] for row in rows])
        cost += self._ripple * np.where((rows == self._best).all(axis=1), 0.0, ripple)
        return self.optimum_us * np.exp(cost)

    def latency_us(self, config: Config) -> float:
        """Returns the true latency of one config in microseconds, whether it fails or not."""
        return float(self.latencies(self.space.row(config)[None, :])[0])

    def fails(self, config: Config) -> bool:
        """Whether measuring the config ends in a failure."""
        if self._failing < 1 and config in (self.optimum, self.space.default):
            return False
        return self._dice(self.space.row(config), 2)[0] < self._failing

    def dice(self, config: Config, stream: int) -> tuple[float, float]:
        """Returns two numbers in [0, 1) that depend on seed, config and stream only."""
        return self._dice(self.space.row(config), stream)

    def _dice(self, row: np.ndarray, stream: int) -> tuple[float, float]:
        facts = f"{self._seed}/{stream}/".encode() + np.asarray(row, dtype=np.int64).tobytes()
        digest = hashlib.blake2b(facts, digest_size=16).digest()
        return (
            int.from_bytes(digest[:8], "little") * _SCALE,
            int.from_bytes(digest[8:], "little") * _SCALE,
        )


class SyntheticRunner(SimulatedRunner):
    """Measures configs of a SyntheticLandscape, with noise, failures and compile times.

    Deterministic by seed: the n-th reading of a config is the same whatever was measured around
    it. A config is compiled once and kept.
    """

    def __init__(
        self,
        landscape: SyntheticLandscape,
        *,
        seed: int = 0,
        noise: float = 0.02,
        repetitions: int = 10,
        compile_s: float = 1.0,
        compile_lanes: int = 1,
        overlap: bool = True,
    ):
        """Sets up an idle runner at time zero.

        Args:
            landscape: What is measured.
            seed: Fixes the noise.
            noise: Standard deviation of the log of a sample, >= 0.
            repetitions: Samples of a proposal that leaves the number to the runner, >= 1.
            compile_s: Typical compile time in seconds; configs take 0.5 to 2 times that.
            compile_lanes: Compilations at once, >= 1.
            overlap: Whether timing goes on while other configs compile.
        """
        if repetitions < 1 or noise < 0 or compile_s < 0:
            raise UsageError(
                "SyntheticRunner needs repetitions >= 1, noise >= 0 and compile_s >= 0, got "
                f"repetitions={repetitions}, noise={noise}, compile_s={compile_s}"
            )
        self.landscape = landscape
        self._seed = seed
        self._noise = noise
        self._repetitions = repetitions
        self._compile_s = compile_s
        super().__init__(compile_lanes=compile_lanes, overlap=overlap)
        self._readings: dict[Config, int] = {}

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Takes up proposals; returns at once."""
        for proposal in proposals:
            measurement = self.measure(proposal)
            seconds = measurement.compile_s
            timing = measurement.measure_s
            self._clock.submit(
                Job(
                    (proposal, measurement),
                    (lambda _, s=seconds: s) if seconds else None,
                    (lambda s=timing: s) if timing or not seconds else None,
                )
            )

    def next(self) -> tuple[Proposal, Measurement]:
        """Advances the clock to the next finished measurement."""
        return self._clock.next()

    def recall(self, measured: Sequence[tuple[Proposal, Measurement]]) -> None:
        """Takes up the state that an earlier part of the run ended in, given what it measured."""
        for proposal, _ in measured:
            self._readings[proposal.config] = self._readings.get(proposal.config, 0) + 1

    def measure(self, proposal: Proposal) -> Measurement:
        """Returns the config's next reading; the clock stands still."""
        config = proposal.config
        if not self.landscape.space.contains(config):
            return Measurement("invalid", error="not a valid config of the space")
        before = self._readings.get(config, 0)
        self._readings[config] = before + 1
        speed, luck = self.landscape.dice(config, 3)
        compile_s = self._compile_s * 0.5 * 4**speed if before == 0 else 0.0
        if self.landscape.fails(config):
            status = "compile_error" if luck < 0.5 else "launch_error"
            seconds = 0.0 if status == "compile_error" else _CHECK_S
            return Measurement(
                status, compile_s=compile_s, measure_s=seconds, error="fails by construction"
            )
        samples = self._samples(proposal, before)
        cutoff = proposal.cutoff_us
        slow = cutoff is not None and len(samples) > _PROBES and min(samples[:_PROBES]) > cutoff
        if slow:
            samples = samples[:_PROBES]
        check_s = _CHECK_S if before == 0 else 0.0
        return Measurement(
            CENSORED if slow else OK,
            samples_us=samples,
            compile_s=compile_s,
            check_s=check_s,
            measure_s=check_s + math.fsum(samples) * 1e-6,
        )

    def _samples(self, proposal: Proposal, before: int) -> tuple[float, ...]:
        config = proposal.config
        words = [int(x * 2**32) for x in self.landscape.dice(config, 4)]
        rng = np.random.default_rng([self._seed, before, *words])
        factors = np.exp(
            self._noise * rng.standard_normal(proposal.repetitions or self._repetitions)
        )
        return tuple((self.landscape.latency_us(config) * factors).tolist())

"""Scout: a Gaussian process that looks at the whole space before every proposal.

1. Starts: the default, then configs drawn far from all drawn so far (k-means++: with a probability
   that grows with the squared distance to the nearest of them), until there are `starts` and one
   has worked. In a space of more than `listed` members (there with the distance itself) they
   differ from the default, or from a config of a prior that tells no readings, by up to three
   steps in powers of two (tiles, warps) and in little else (`kt_lab.search.drawing`). Of a prior's
   workloads with many readings those `starts` configs that together serve them best go first, the
   nearest shapes above all; the fastest of the others follow the default. What is under way is
   chosen blindly: so it is a quarter of what has been read, or as many as there are starts. Scarce
   seconds (no prior) ask for up to 16 starts, twice the lanes, and later for what keeps them busy.
2. Values: t = log(latency / best latency), bent above the median m of all readings to
   m(1+log(t/m)), so that neither slow configs nor a reading that was disturbed dominate;
   standardised. A failure tells whether its like work, and nothing of how fast they are.
3. Model: `kt_lab.search.posterior` over the columns of `kt_lab.search.features`. What is under way
   counts at once, so that a batch needs no rule of its own; of more than 512 readings the slower
   half is a sample; the hyper-parameters are fitted anew whenever the readings have grown by 15 %.
   Of a prior's workloads with readings enough, the mean says what is expected before anything is
   read, and each is a column by which that is put right (`kt_lab.search.known`): they are believed
   as far as the readings agree with them. With `effects` (none beside a prior, most in a large
   space) the process stands on a sum of one curve per parameter and quantity, for few readings.
4. Choice: the candidate with the largest expected improvement over the lowest posterior mean of a
   measured config, times the probability that it works at all, which the same process predicts
   from what failed and what did not. Candidates are all members of the space; of more than `pool`
   the half of `pool` that promised most when it last looked at all, whenever the readings have
   grown by a half. Of more than `listed` members they descend from the best of each choice of
   tiles and warps, as `near` says; at first every other choice is of new tiles and warps.
5. Epochs (`kt_lab.search.epochs`), in a space of more than `listed` members: when a share `idle`
   of what was read brought nothing better, single steps lead down from the plainest of the best
   (`kt_lab.search.descent`); then the search begins from nothing. Every third time it goes on from
   the best of all; of the beginnings between, the first avoids a best's tiles and warps.
"""

import math
from collections import deque
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from kt_lab.rows import distinct
from kt_lab.search.base import Searcher, count, prior_configs
from kt_lab.search.drawing import DRAWS, candidates, unlike
from kt_lab.search.epochs import Epochs
from kt_lab.search.features import Features
from kt_lab.search.known import Known, bent, unbent
from kt_lab.search.neighbourhood import Row
from kt_lab.search.posterior import Posterior, Scales, held, log_improvement
from kt_lab.search.scout_options import ScoutOptions
from kt_lab.search.threads import single_thread
from kt_lab.trial import Proposal, Trial, supersedes

_UNLIKELY = 1e-3  # least probability that a config works
_FLAT = 1e-3  # smallest bend of the values
_TRUST = 0.5  # prior variance of the sources' weights, all together
_BELIEF = 10.0  # readings that a prior's scale counts as
_MOST = 256  # readings that the hyper-parameters are fitted to
_HELD = 512  # readings that the model holds: of more, the best and as many drawn ones
_GROWTH, _SIGHT = 1.15, 1.5  # times as many readings: a new fit, a look at all of a listed space
_BROAD = 8  # times the starts: so long every other choice in a large space is of a new shape
_FAR = 1e9  # squared distance of features, more than any
_APART = 0.5  # its power in the chance of a start in a large space: extremes hardly work there
_DIGITS = 6  # of the acquisition, so that the last bits of a machine's arithmetic decide nothing
_TYPICAL = 4096  # members that set the scales of the features of a large space


class ScoutSearch(Searcher):
    """Measures where a Gaussian process over the whole space expects most improvement."""

    name: ClassVar[str] = "scout"
    Options: ClassVar[type] = ScoutOptions
    needs: ClassVar[str] = "ParameterSpace"
    predicts: ClassVar[str | None] = "latency_us"

    def __init__(self, space, *, seed, budget=None, prior=None, **options):
        """Takes a ParameterSpace; see `Searcher`."""
        super().__init__(space, seed=seed, budget=budget, prior=prior, **options)
        self._rng = np.random.default_rng(self.seed)
        self._at: dict[Row, int] = {}  # every row that was asked for or told, in order
        self._values: list[float] = []  # microseconds; NaN: under way, inf: failed
        self._repetitions: list[int | None] = []  # of the reading that stands
        self._features = self._posterior = None  # made when first asked or told
        self._epochs = Epochs(self.options.idle)
        self._costs = np.array([1e-6, 1e-15])  # seconds of compiling, measuring; at first no limit
        self._fits = self._next_fit = self._next_look = 0  # readings from which it does so again

    # -- ask and tell -------------------------------------------------------------------------

    def ask(self, n: int) -> list[Proposal]:
        """Returns up to n unseen configs: none beyond the budget's trials, or not worth it."""
        left = (getattr(self.budget, "trials", None) or math.inf) - self._proposed
        wanted, proposals, self.done = min(count(n), left), [], self.done or left <= 0
        with single_thread():
            self._prepare(lanes=wanted)
            if not self._listed and self._epochs.ended(self._values, left=left):
                self._posterior = None
                self._renew()
            told = len(self._values) - int(np.isnan(self._values).sum())
            busy = self._busy * (1.0 + self._costs[0] / self._costs[1])
            most = told + int(min(busy, max(self._starts, self._ahead * told)))
            while len(proposals) < wanted and len(self._at) < most and not self.done:
                known = np.isfinite(self._values[self._epochs.since :])
                blind = len(known) < self._starts or not known.any() or self._queue
                found = self._start() if blind else self._step() or self._choose()
                if found is None:
                    self.done = not np.isnan(self._values).any()
                    break
                row, predicted, origin = found
                self._note(row)
                said = {"origin": origin, "predicted": predicted}
                said["generation"] = 0 if origin == "start" else self._fits
                proposals.append(self.propose(self.space.config(row), **said))
        return proposals

    def tell(self, trials: Iterable[Trial]) -> None:
        """Takes readings, of a config the one with most repetitions; foreign configs are none."""
        with single_thread():
            self._prepare()
            for trial in trials:
                if self.space.contains(trial.config):
                    self._read(trial)

    def _read(self, trial: Trial) -> None:
        at = self._note(tuple(self.space.row(trial.config).tolist()))
        self._costs += trial.measurement.compile_s, trial.measurement.measure_s
        repetitions = len(trial.measurement.samples_us)
        if not supersedes(old=self._repetitions[at], new=repetitions):
            return
        self._repetitions[at] = repetitions
        self._values[at] = math.inf if trial.latency_us is None else trial.latency_us
        if (bound := trial.measurement.bound_us) is not None:  # slow, and never the best
            self._values[at] = max(bound, min(filter(math.isfinite, self._values), default=bound))

    def _prepare(self, *, lanes: float = math.inf) -> None:
        """Lists or samples the space, once; `lanes` are asked for at once."""
        if self._features is not None:
            return
        space = self.space
        self._listed = space.enumerable and space.size <= self.options.listed
        self._known = Known(space, self.prior)
        scarce = getattr(self.budget, "seconds", None)
        kind = 2 * bool(self._known) + bool(scarce) if self._listed else 4
        self._starts, self._ahead, self._effects, self._busy = self.options.of(kind, lanes)
        how = {"rng": self._rng, "most": DRAWS}
        rows = space.enumerate() if self._listed else space.sample_rows(_TYPICAL, **how)
        self._features = Features(space, rows)
        told = space.rows([] if self._listed else prior_configs(space, self.prior))
        self._x = self._seen_as(rows[:0])
        columns, sources, effects = (part.shape[1] for part in self._parts(rows[:1]))
        self._sources = slice(columns, columns + sources)
        spreads = ((_TRUST, sources), (self._effects, effects))
        weights = [np.full(n, math.sqrt(spread / max(n, 1))) for spread, n in spreads]
        self._scales = Scales.of(self._features.groups, np.concatenate(weights))
        default = tuple(space.rows([space.default])[0].tolist())
        first = self._known.first(np.concatenate([rows, told]), count=self._starts)
        self._queue = deque([*first, default, *self._known.others])
        self._origins = np.asarray([default, *self._known.others])
        self._offer(self._unseen(rows)) if self._listed else self._renew()

    def _note(self, row: Row) -> int:
        """Returns the number of a row, a new one if it is new, which is then no candidate."""
        if row in self._at:
            return self._at[row]
        self._at[row] = at = len(self._at)
        self._values.append(math.nan)
        self._repetitions.append(None)
        self._x = np.vstack([self._x, self._seen_as(np.asarray([row]))])
        self._free[self._places.get(row, [])] = False
        if self._posterior is not None and not self._posterior.full:
            self._posterior.add(self._x[at])
            self._held = np.append(self._held, at - self._epochs.since)
        else:
            self._posterior = None
        return at

    # -- candidates ---------------------------------------------------------------------------

    def _offer(self, rows: np.ndarray) -> None:
        """Makes unseen rows the candidates, in random order: ties are broken by the seed."""
        self._pool = self._rng.permutation(rows)
        self._places = {tuple(row): at for at, row in enumerate(self._pool.tolist())}
        self._free, self._near = np.ones(len(rows), dtype=bool), np.arange(len(rows))
        self._pool_x = self._seen_as(self._pool)
        self._apart, self._passed = np.full(len(rows), _FAR), self._epochs.since

    def _seen_as(self, rows: np.ndarray) -> np.ndarray:
        return np.hstack(self._parts(rows))

    def _parts(self, rows: np.ndarray) -> list[np.ndarray]:
        """Returns what the model sees: features, what every source says, main effects."""
        x = self._features(rows)
        return [x, self._known(rows), self._features.effects(x) if self._effects else x[:, :0]]

    def _expected(self, x: np.ndarray, at: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Returns what the sources make expect, a logarithm, in deviations; 0 without any."""
        said = x[:, self._sources][at]
        return said.sum(axis=1) / max(said.shape[1], 1) * self._known.scale / self._scale

    def _renew(self) -> None:
        """Draws new candidates from a space that is too large to be looked at as a whole."""
        origins = self._origins if self._asked < 2 * self._starts else None  # then uniform
        told = self._epochs, list(self._at), self._values
        rows = self._unseen(candidates(self.space, *told, origins, self.options, rng=self._rng))
        if not len(rows) and self.space.enumerable:
            rows = self._unseen(self.space.enumerate())
        self._offer(rows)

    @property
    def _asked(self) -> int:
        return len(self._at) - self._epochs.since  # in this epoch

    def _unseen(self, rows: np.ndarray) -> np.ndarray:
        rows = distinct(rows)
        return rows[np.asarray([tuple(row) not in self._at for row in rows.tolist()], dtype=bool)]

    # -- choices ------------------------------------------------------------------------------

    def _start(self) -> tuple[Row, None, str] | None:
        """Returns the default, a config of the prior, or one that is far from all before."""
        while self._queue:
            row = self._queue.popleft()
            if row not in self._at:
                return row, None, "start"
        if not self._listed and (self._asked == 2 * self._starts or not self._free.any()):
            self._renew()
        if not self._free.any():
            return None
        for x in self._x[self._passed :]:
            self._apart = np.minimum(self._apart, ((self._pool_x - x) ** 2).sum(axis=1))
        self._passed = len(self._x)
        apart = self._apart if self._listed else self._apart**_APART
        chance = np.where(self._free, apart + 1e-9, 0.0)
        chosen = self._rng.choice(len(self._pool), p=chance / chance.sum())
        return tuple(self._pool[chosen].tolist()), None, "start"

    def _step(self) -> tuple[Row, None, str] | None:
        return self._epochs.step(self.space, self._at, self._values, rng=self._rng)

    def _choose(self) -> tuple[Row, float, str] | None:
        """Returns the candidate that is expected to improve most, and its predicted latency."""
        x, values = (of[self._epochs.since :] for of in (self._x, self._values))
        y = self._targets(x, np.asarray(values))
        told = ~np.isnan(y)
        stale = self._posterior is None or told.sum() >= self._next_fit
        if stale or not self._free[self._near].any():
            self._fit(x, y, told)
        free = self._free[self._near]
        if not free.any():
            return None
        gain, mean = self._gains(self._posterior, self._near, x, y)
        gain = np.where(free, np.round(gain, _DIGITS), -np.inf)
        if not self._listed and self._asked % 2 and self._asked < _BROAD * self._starts:
            new = free & unlike(self.space, self._pool[self._near], list(self._at)[-self._asked :])
            gain = np.where(new, gain, -np.inf) if new.any() else gain
        chosen = int(np.argmax(gain))
        if math.exp(gain[chosen]) * self._scale < self.options.least_gain:
            return None
        t = unbent(self._scale * (self._shift + mean[chosen]), self._bend)
        return tuple(self._pool[self._near[chosen]].tolist()), self._best * math.exp(t), "model"

    def _gains(self, posterior: Posterior, near: np.ndarray, x, y) -> tuple[np.ndarray, ...]:
        """Returns the logarithms of what candidates `near` may gain, and what they may read."""
        y, values = y[self._held], np.asarray(self._values)[self._epochs.since :][self._held]
        told, works = ~np.isnan(values), np.isfinite(values)
        seen, mean = posterior.predict(y)
        seen = seen + self._expected(x, self._held)
        mean = mean + self._expected(self._pool_x, near)
        deviation = posterior.deviation()
        gain = log_improvement((seen[works].min() - mean) / deviation) + np.log(deviation)
        if not works[told].all():
            works = np.where(told, works, np.nan)
            chance = posterior.predict(works, centre=np.nanmean(works))[1]
            gain += np.log(np.clip(chance, _UNLIKELY, 1.0))
        return gain, mean

    def _targets(self, x: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Returns what the model learns, a value per row: NaN if it failed or is under way."""
        ok = np.isfinite(values)
        self._best = values[ok].min()
        t = np.log(np.where(ok, values, np.nan) / self._best)
        self._bend = max(float(np.median(t[ok])), self._known.bend, _FLAT)
        t[ok] = bent(t[ok], self._bend)
        spread = t[ok].var()
        if self._known.scale:
            belief = _BELIEF / (_BELIEF + ok.sum())
            spread += belief * (self._known.scale**2 - spread)
        self._scale = math.sqrt(spread) or 1.0
        t = t / self._scale - self._expected(x)
        self._shift = float(np.nanmean(t))
        return t - self._shift

    def _fit(self, x: np.ndarray, y: np.ndarray, told: np.ndarray) -> None:
        """Fits the model anew, over new candidates where the space is large."""
        at = np.flatnonzero(told)
        if len(at) > _MOST:
            at = self._rng.choice(at, _MOST, replace=False)
        self._scales.fit(x[at], y[at])
        if not self._listed:
            self._renew()
        failed = np.isinf(self._values[self._epochs.since :])
        self._held = held(np.where(failed, np.inf, y), most=_HELD, rng=self._rng)
        self._near = self._promising(x, y, int(told.sum()))
        self._posterior = Posterior(self._scales, x[self._held], self._pool_x[self._near])
        self._fits += 1
        self._next_fit = max(told.sum() + 1, math.ceil(told.sum() * _GROWTH))

    def _promising(self, x: np.ndarray, y: np.ndarray, told: int) -> np.ndarray:
        """Returns the numbers of the candidates to look at until the model is fitted anew."""
        free, most = np.flatnonzero(self._free), self.options.pool
        if len(free) <= most:
            return free
        left = self._near[self._free[self._near]]
        if told < self._next_look and most // 4 < len(left) <= most:
            return left
        self._next_look = _SIGHT * told
        gains = []
        for near in np.array_split(free, math.ceil(len(free) / most)):
            posterior = Posterior(self._scales, x[self._held], self._pool_x[near], room=0)
            gains.append(self._gains(posterior, near, x, y)[0])
        return free[np.argsort(-np.concatenate(gains), kind="stable")[: most // 2]]

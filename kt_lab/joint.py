"""Several workloads measured as one: their joint space, and a runner that reads all of them."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kt_lab.clock import RealClock
from kt_lab.errors import UsageError
from kt_lab.keys import carried
from kt_lab.parameters import Choice, Ordered, Parameter, PowerOfTwo
from kt_lab.runners import Runner
from kt_lab.space import ParameterSpace
from kt_lab.trial import OK, Config, Measurement, Proposal
from kt_lab.workload import Workload

_POWER = 16  # of the power mean that stands for the maximum in a search: it has a slope everywhere
_BATCH = 16


def joint_space(spaces: Sequence[ParameterSpace]) -> ParameterSpace:
    """Returns the space of everything that at least one of several spaces holds.

    Each parameter has the values that it has anywhere, its kind where all agree. What a config
    lacks of the parameters of another space has its default there.

    Args:
        spaces: Of one kernel's workloads, each of which can be listed; the first gives the
            default.
    """
    if not all(space.enumerable for space in spaces):
        raise UsageError(
            "a joint space needs spaces that can be listed, got one that is too large; restrict "
            "it with ParameterSpace.only, or pass the space to search as space="
        )
    default = Config({n: v for s in reversed(spaces) for n, v in s.default.items()})
    kinds: dict[str, list] = {}
    for parameter in (p for s in spaces for p in s.parameters):
        kinds.setdefault(parameter.name, []).append(parameter)
    whole = ParameterSpace([_joined(kinds[name]) for name in default], default=default)
    configs = dict.fromkeys(carried(c, default) for s in spaces for c in s.configs(s.enumerate()))
    return whole.only(whole.rows(list(configs)))


def _joined(found: Sequence[Parameter]) -> Parameter:
    """Returns the parameter that has the values of all."""
    values = tuple(dict.fromkeys(v for p in found for v in p.values))
    widest = max(found, key=lambda p: p.cardinality)
    if len(values) == widest.cardinality:
        return widest
    if all(isinstance(p, PowerOfTwo) for p in found):
        return replace(widest, low=min(values), high=max(values))
    if all(p.ordered for p in found):
        return Ordered(widest.name, tuple(sorted(values)), role=widest.role)
    return Choice(widest.name, values, role=widest.role)


class JointRunner:
    """Measures a proposal on every workload; reads what it adds, on average or at worst.

    A workload's cost is its latency over that of its default, measured first; where a config
    fails, or the workload's space does not hold it, the default is used. The reading is the
    objective over the workloads of the lower of that cost and of `base`, times the geometric
    mean of the defaults in microseconds. A config that improves no workload is read as slower
    than `base` by the smallest factor that it misses one by, so that searchers see a slope there
    too. The worst case is read as the power mean of order 16, for the same reason.

    A GPU times one workload at a time, so proposals wait for one another and the workloads take
    turns. A live runner holds its GPU: it turns to the next workload if it can, as `GpuRunner`
    does, and is closed for the next one's otherwise. Simulated ones stay, and their seconds add
    up.

    Attributes:
        readings: Config -> cost per workload as last measured, shape (workloads,), inf where it
            failed, NaN where it is not held.
        default_us: Latency of each workload's default, shape (workloads,).
        base: What each workload costs already, shape (workloads,); 1 at first.
    """

    def __init__(
        self,
        workloads: Sequence[Workload],
        *,
        spaces: Sequence[ParameterSpace],
        runner_for: Callable[[Workload], Runner],
        objective: str,
    ):
        """Measures every default.

        Raises:
            UsageError: A default does not run.
        """
        self.readings: dict[Config, np.ndarray] = {}
        self.base = np.ones(len(workloads))
        self._workloads, self._spaces, self._make = workloads, spaces, runner_for
        self._order = 1 if objective == "geomean" else _POWER
        self._open: dict[int, Runner] = {}
        self._clock = RealClock()
        self._waiting: list[Proposal] = []
        self._ready: deque[tuple[Proposal, Measurement]] = deque()
        self.live = False
        try:
            firsts = [self._turn(at, [Proposal(-1, s.default)])[-1] for at, s in enumerate(spaces)]
        except BaseException:  # nobody else could free the GPU
            self.close()
            raise
        for workload, first in zip(workloads, firsts, strict=True):
            if first.status != OK:
                raise UsageError(
                    f"the default of every workload must run, got {first.status} on "
                    f"{workload.key}: {first.error}; leave the workload out"
                )
        self.default_us = np.array([first.latency_us for first in firsts])

    @property
    def free(self) -> int:
        """Places in the next batch; none while the last one is being handed out."""
        return 0 if self._ready else _BATCH - len(self._waiting)

    @property
    def pending(self) -> int:
        """Proposals submitted and not yet returned."""
        return len(self._waiting) + len(self._ready)

    @property
    def now(self) -> float:
        """Machine seconds of all workloads, one after the other; of the wall where live."""
        return self._clock.now if self.live else sum(r.now for r in self._open.values())

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Takes up proposals for the next batch."""
        self._waiting += proposals

    def next(self) -> tuple[Proposal, Measurement]:
        """Measures the batch on every workload unless some of the last one is left."""
        if not self._ready:
            batch, self._waiting = self._waiting, []
            every = range(len(self._workloads))  # one that is open goes first: a turn costs time
            turns = {at: self._turn(at, batch) for at in sorted(every, key=self._is_closed)}
            self._ready.extend(
                (p, self._read(p, [turns[at].get(p.id) for at in every])) for p in batch
            )
        return self._ready.popleft()

    def close(self) -> None:
        """Closes what is open; may be called twice."""
        for runner in self._open.values():
            runner.close()
        self._open.clear()

    def _turn(self, at: int, batch: Sequence[Proposal]) -> dict[int, Measurement]:
        """Returns what one workload makes of the proposals that its space holds, by their id."""
        space, found = self._spaces[at], {}
        own = [replace(p, config=carried(p.config, space.default), cutoff_us=None) for p in batch]
        own = [p for p in own if space.contains(p.config)]
        if not own:
            return {}
        runner = self._runner(at)
        while own or runner.pending:
            count = max(runner.free, not runner.pending)
            runner.submit(own[:count])
            own = own[count:]
            proposal, measurement = runner.next()
            found[proposal.id] = measurement
        return found

    def _is_closed(self, at: int) -> bool:
        return at not in self._open

    def _runner(self, at: int) -> Runner:
        """Returns the runner of a workload; a live one starts for seconds, so it is kept."""
        workload, space = self._workloads[at], self._spaces[at]
        if self.live and self._is_closed(at):
            _, last = self._open.popitem()
            if hasattr(last, "turn_to"):
                self._open[at] = last  # to be closed, whatever the turn comes to
                last.turn_to(workload, space=space)
            else:
                last.close()
        if self._is_closed(at):
            self._open[at] = self._make(workload)
            self.live = self._open[at].live
        return self._open[at]

    def _read(self, proposal: Proposal, found: list[Measurement | None]) -> Measurement:
        got = [m for m in found if m is not None]
        failed = [np.nan if m is None else np.inf for m in found]
        us = [
            m.latency_us if m and m.status == OK else f for m, f in zip(found, failed, strict=True)
        ]
        latency = np.array(us)
        self.readings[proposal.config] = costs = latency.astype(float) / self.default_us
        spent = {n: sum(getattr(m, n) for m in got) for n in ("compile_s", "check_s", "measure_s")}
        if not np.isfinite(costs).any():
            status, error = (got[0].status, got[0].error) if got else ("invalid", "held nowhere")
            return Measurement(status, error=error, **spent)
        gap = float(np.nanmin(costs / self.base))
        served = np.log(np.fmin(costs, self.base))
        mean = np.mean(served)
        if self._order > 1:
            mean = np.log(np.mean(np.exp(self._order * (served - mean)))) / self._order + mean
        scale = float(np.exp(np.log(self.default_us).mean()))
        reading = scale * float(np.exp(mean)) * max(1.0, gap)
        info = {"costs": [float(c) if np.isfinite(c) else None for c in costs]}
        return Measurement(OK, (reading,), info=info, **spent)

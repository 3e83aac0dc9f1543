"""Recording what `@triton.autotune` measures: by its listener, or beside it where it has none."""

import datetime
import math
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.capture.listening import by_listener, by_wrapping
from kt_lab.errors import UsageError, install
from kt_lab.landscape import Landscape
from kt_lab.runners.gpu.facts import gpu_slug
from kt_lab.space import Choice, Flag, Integer, Parameter, ParameterSpace, PowerOfTwo
from kt_lab.trial import OK, Config

PROTOCOL = {
    "name": "triton-autotune/p20-p50-p80",
    "rules": (
        "Three numbers for each config, as Triton's autotuner kept them of its own benchmark: the "
        "20 %, 50 % and 80 % quantiles of the timed launches, in this order, or one number if the "
        "benchmark gave one. They are no raw samples: their median is the median, their spread is "
        "narrower than that of single launches. What was restored or reset before each launch is "
        "in them. The seconds that tuning took are shared out equally among the configs."
    ),
}
_FAILED = "Triton's autotuner gave it up: out of resources, compile-time assertion or ptxas error"
_OPTIONS = {"num_warps": True, "num_stages": True, "num_ctas": False, "maxnreg": False}  # always?


@dataclass(frozen=True, slots=True)
class Timing:
    """What the autotuner found out about one config.

    Attributes:
        config: Its keyword arguments and launch options.
        p20_us: Quantile of the timed launches, microseconds; infinite if the config failed.
        p50_us: Their median, by which the autotuner ranks.
        p80_us: Quantile.
        status: "ok" or "compile_error"; Triton does not say which kind of failure it was.
    """

    config: Config
    p20_us: float
    p50_us: float
    p80_us: float
    status: str


@dataclass(frozen=True)
class Recording:
    """One kernel tuned for one key.

    Attributes:
        kernel: Name of the jitted function.
        key: Values of the key arguments, then the dtypes of all tensors, as the autotuner has it.
        timings: One for every config that was not pruned, in the order of the list.
        best: The config that the autotuner chose.
        duration_s: Seconds that tuning took; None if the timings came from Triton's disk cache.
        cache_hit: Whether they did.
        facts: Where it ran: gpu, versions, time.
    """

    kernel: str
    key: tuple
    timings: tuple[Timing, ...]
    best: Config
    duration_s: float | None
    cache_hit: bool
    facts: Mapping[str, Any]

    @property
    def space(self) -> ParameterSpace:
        """The configs that were timed, as a space: the first of them is its default.

        Its axes are the distinct values of every parameter, its members the timed configs only.
        """
        axes = {name: dict.fromkeys(t.config[name] for t in self.timings) for name in self.best}
        parameters = [_axis(name, list(values)) for name, values in axes.items()]
        whole = ParameterSpace(parameters, default=self.timings[0].config)
        return whole.only(whole.rows([t.config for t in self.timings]))

    def landscape(
        self,
        *,
        name: str | None = None,
        gpu: str | None = None,
        extents: Mapping[str, int] | None = None,
        dtype: str | None = None,
        source: str = "",
    ) -> Landscape:
        """Returns the recording as a landscape, which replays, saves and loads like any other.

        Args:
            name: Of the workload; None: the extents, else the integers of the key, joined by x.
            gpu: Short name of the GPU; None: of the one that torch saw.
            extents: Named integers of the shape, which a key does not name; None: none.
            dtype: Of the workload's elements; None: the first dtype in the key.
            source: Who runs this shape.
        """
        space = self.space
        dtypes = [k.removeprefix("torch.") for k in self.key if str(k).startswith("torch.")]
        numbers = [*(extents or {}).values()] or [k for k in self.key if type(k) is int]
        name = re.sub(r"[^\w.-]", "-", name or "x".join(map(str, numbers or dtypes[:1])) or "one")
        manifest = {
            "kernel": self.kernel,
            "workload": f"{self.kernel}/{name}",
            "gpu": gpu or gpu_slug(self.facts["gpu"] or "unknown"),
            "extents": dict(extents or {}),
            "dtype": dtype or (dtypes or ["unknown"])[0],
            "source": source,
            "space": space.describe(),
            "fingerprint": space.fingerprint,
            "protocol": PROTOCOL,
            "visits": 1,
            "flush_us": 0.0,
            "contention": None,
            "autotune": {
                "key": [str(k) for k in self.key],
                "best": dict(self.best),
                "duration_s": self.duration_s,
                "cache_hit": self.cache_hit,
            },
            "facts": [dict(self.facts)],
            "provenance": dict(self.facts),
        }
        return Landscape(pd.DataFrame([self._row(t, space) for t in self.timings]), manifest)

    def _row(self, timing: Timing, space: ParameterSpace) -> dict[str, Any]:
        values = zip(space.names, space.row(timing.config).tolist(), strict=True)
        good = timing.status == OK
        samples = [timing.p20_us, timing.p50_us, timing.p80_us] if good else []
        share_s = (self.duration_s or 0.0) / len(self.timings)
        # Its own name for each: nobody looked which binaries are the same.
        identity = f"{self.kernel}-{space.index(timing.config)}"
        return {f"p_{name}": at for name, at in values} | {
            "status": timing.status,
            "error": "" if good else _FAILED,
            "samples_us": samples,
            "visit": [0] * len(samples),
            "specialisation": identity,
            "code_hash": identity,
            "grid": "",
            "compile_s": 0.0,
            "compile_cpu_s": 0.0,
            "compile_workers": 1,
            "check_s": 0.0,
            "timing_overhead_s": share_s if good else None,
            "failure_s": None if good else share_s,
            "registers": None,
            "spills": None,
            "shared_bytes": None,
        }


@dataclass
class AutotuneRecorder:
    """What the autotuner said while it was listened to.

    Attributes:
        recordings: One for every key that was tuned, in order.
    """

    recordings: list[Recording] = field(default_factory=list)

    def take(
        self,
        *,
        fn: Any,
        key: tuple,
        best_config: Any,
        configs_timings: Mapping[Any, Any],
        duration: float | None,
        cache_hit: bool,
        **_: Any,
    ) -> None:
        """Takes up what Triton tells its listener; for its arguments see Triton."""
        values = {c: _values(c) for c in (*configs_timings, best_config)}
        kept = [n for v in values.values() for n in v if n not in _OPTIONS]
        for option, always in _OPTIONS.items():
            if always or len({v[option] for v in values.values()}) > 1:
                kept.append(option)
        names = dict.fromkeys(kept)
        configs = {c: Config({n: v.get(n) for n in names}) for c, v in values.items()}
        timings = tuple(_timing(configs[c], found) for c, found in configs_timings.items())
        if len({t.config for t in timings}) < len(timings):
            raise UsageError(
                f"the configs of an autotuned kernel must differ in what they set to be recorded, "
                f"got equal ones for {fn.__name__} (hooks and ir_override do not count)"
            )
        facts = _facts()
        best = configs[best_config]
        told = (fn.__name__, tuple(key), timings, best, duration, bool(cache_hit), facts)
        self.recordings.append(Recording(*told))


@contextmanager
def record_autotune() -> Iterator[AutotuneRecorder]:
    """Listens to every `@triton.autotune` kernel that is tuned in the block, unchanged.

        with record_autotune() as recorder:
            my_kernel[grid](x, out, n)
        landscape = recorder.recordings[0].landscape()

    A kernel is recorded when it is tuned: record its first launch. Other listeners hear the same.

    Raises:
        UsageError: There is no Triton, or no GPU that it can use.
    """
    try:
        import triton
    except ImportError:
        raise UsageError(f"recording needs Triton, got none; {install('gpu')}") from None
    recorder = AutotuneRecorder()
    knobs = getattr(getattr(triton, "knobs", None), "autotuning", None)
    listening = by_listener if hasattr(knobs, "listener") else by_wrapping
    try:
        with listening(triton, recorder.take):
            yield recorder
    except RuntimeError as error:
        # Not when the block is entered: a kernel with a benchmark of its own needs no driver.
        if not re.search("active drivers|is not active", str(error)):
            raise
        law = "recording needs a GPU that Triton can use, got"
        raise UsageError(f"{law} {str(error).rstrip('.')}; see kt-lab doctor") from None


def _values(config: Any) -> dict[str, Any]:
    """Returns what a triton.Config sets, as plain values that a space can list."""
    found = dict(config.kwargs) | {name: getattr(config, name, None) for name in _OPTIONS}
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)  # of a tl.constexpr
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


def _timing(config: Config, found: Any) -> Timing:
    """Reads a benchmark's answer in milliseconds: (p50, p20, p80), or whatever else it gave."""
    times = [1e3 * float(ms) for ms in (found if isinstance(found, list | tuple) else [found])]
    p50, p20, p80 = times if len(times) == 3 else [times[0]] * 3
    good = all(math.isfinite(us) and us > 0 for us in times)
    return Timing(config, p20, p50, p80, OK if good else "compile_error")


def _axis(name: str, values: list) -> Parameter:
    """Returns the narrowest kind of parameter that has exactly these values."""
    role = {"num_warps": "warps", "num_stages": "stages"}.get(name)
    if all(type(v) is int for v in values):
        values = sorted(values)
        low, high, step = values[0], values[-1], max(1, values[-1] - values[-2:][0])
        doubling = low & (low - 1) == 0 < low and values == [low << i for i in range(len(values))]
        if doubling and role != "stages":
            tile = "tile" if "BLOCK" in name.upper() else None
            return PowerOfTwo(name, low, high, role=role or tile)
        if values == list(range(low, high + 1, step)):
            return Integer(name, low, high, step, role=role)
    flag = sorted(map(repr, values)) == ["False", "True"]  # by repr: 0.0 == False
    return Flag(name) if flag else Choice(name, tuple(values))


def _facts() -> dict[str, Any]:
    """Returns where this process tunes; unknown facts are None."""
    torch, gpu = sys.modules.get("torch"), None
    if torch is not None and torch.cuda.is_available():
        gpu = torch.cuda.get_device_name()
    return {
        "gpu": gpu,
        "utc": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": getattr(torch, "__version__", None),
        "triton": getattr(sys.modules.get("triton"), "__version__", None),
    }

"""The timing process: the only one that touches the GPU, one launch at a time."""

import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kt_lab.kernels import device_module
from kt_lab.kernels.device import Launch
from kt_lab.runners.gpu.compiling import one_line
from kt_lab.runners.gpu.facts import ceilings, cuda_device, gpu_slug, read_sensors
from kt_lab.runners.gpu.protocols import EVENTS_L2, FLUSH_BYTES, get_protocol
from kt_lab.runners.workers import WorkerLost
from kt_lab.trial import Config
from kt_lab.workload import Subject

_INPUT_SEED = 20240229  # any fixed number: every config sees the same inputs
_KEPT_LAUNCHERS = 64
_LONG_S = 0.1  # a launch of this length needs neither warming up nor three probes
_FIRST_S = 2.0  # of launches, of a long one while no reading is known that allows more time
_WARMING, _WARMING_US = 100, 1e6  # launches of the vendor's path before the first config
_PROOFS = 3  # right results in a row before a config is believed that was wrong once


@dataclass
class _Loaded:
    """Inputs and reference of one workload, kept on the GPU between configs."""

    inputs: dict[str, Any]
    outputs: Any  # checking.Outputs
    reference: Any
    baseline: Callable[[], Any]
    baseline_name: str


class TimingService:
    """Measures configs on one GPU; lives in a worker process."""

    def __init__(self, *, device: int):
        """Takes up the GPU and allocates the buffer that flushes its L2."""
        import torch

        self._torch, self._device = torch, cuda_device(device)
        self._properties = torch.cuda.get_device_properties(device)
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=self._device)
        self._loaded: dict[Subject, _Loaded] = {}
        self._launchers: OrderedDict[tuple[Subject, Config], Launch] = OrderedDict()

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """Answers one task; its `do` names the method. A poisoned context costs the process."""
        try:
            return getattr(self, "do_" + task["do"])(task)
        except WorkerLost:
            raise
        except Exception as error:
            self._torch_must_live(error)
            raise

    def do_identify(self, task: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Returns what the GPU is."""
        import triton

        properties = self._properties
        return {
            "gpu": properties.name,
            "slug": gpu_slug(properties.name),
            "uuid": str(getattr(properties, "uuid", "")) or None,
            "capability": f"{properties.major}.{properties.minor}",
            "sms": properties.multi_processor_count,
            "l2_bytes": getattr(properties, "L2_cache_size", None),
            "memory_bytes": properties.total_memory,
            "torch": self._torch.__version__,
            "triton": triton.__version__,
            "cuda": self._torch.version.cuda,
        }

    def do_facts(self, task: dict[str, Any]) -> dict[str, Any]:
        """Returns what the GPU is and what it can do at most, measured here.

        Args:
            task: `protocol` by its short name; "events" if absent.
        """
        protocol = get_protocol(task.get("protocol", "events"))
        identity = self.do_identify({})
        identity.pop("uuid")  # names one card of somebody's; nothing that is stored needs it
        return identity | ceilings(self._device, self._flush, protocol)

    def do_load(self, task: dict[str, Any]) -> dict[str, Any]:
        """Makes the inputs and the reference of `subject`; returns the seconds it took.

        Args:
            task: `subject`; `alone` if true: those of all others make room.
        """
        from kt_lab.runners.gpu.first_launch import first_launch

        started = time.perf_counter()
        if task.get("alone"):
            self._forget([other for other in self._loaded if other != task["subject"]])
            self._torch.cuda.empty_cache()
        loaded = self._load(task["subject"])
        first_launch(self._flush)
        self._poison(task["subject"])
        self._difference(task["subject"])  # wrong, of course: it loads what checking runs
        # A fresh process reads a little high at first; what it warms up on is not a config.
        take = partial(EVENTS_L2.time, loaded.baseline, flush=self._flush)
        more = int(_WARMING_US / max(take(repetitions=1, warm_up=1)[0], 1.0))
        take(repetitions=max(1, min(_WARMING, more)), warm_up=0)
        return {"seconds": time.perf_counter() - started}

    def do_measure(self, task: dict[str, Any]) -> dict[str, Any]:
        """Loads, checks and times one config.

        Args:
            task: `subject`, `config`, `protocol` (short name), `rule` (a Repetitions), `asked`
                (repetitions; None: by the rule), `best_us`, `cutoff_us`, `check` (the results).

        Returns:
            status, error, and seconds in the timing lane: load_s (the binary and its first
            launch), check_s, timing_s; samples_us, registers, spills, shared_bytes.
        """
        self._load(task["subject"])
        started = time.perf_counter()
        answer: dict[str, Any] = {"status": "ok", "error": ""}
        answer |= dict.fromkeys(("load_s", "check_s", "timing_s"), 0.0)
        try:
            self._measure(task, answer)
        except Exception as error:
            self._torch_must_live(error)
            answer |= {"status": "launch_error", "error": one_line(error)}
        return answer | {"seconds": time.perf_counter() - started}

    def _measure(self, task: dict[str, Any], answer: dict[str, Any]) -> None:
        subject = task["subject"]
        started = time.perf_counter()
        launch = self._launcher(subject, task["config"])
        if task["check"]:
            self._poison(subject)
        kernel = self._launch_once(launch)
        answer |= {
            "registers": getattr(kernel, "n_regs", None),
            "spills": getattr(kernel, "n_spills", None),
            "shared_bytes": int(kernel.metadata.shared) if hasattr(kernel, "metadata") else None,
            "load_s": (first_s := time.perf_counter() - started),
        }
        if task["check"]:
            wrong = self._timed(answer, lambda: self._wrong(subject, task["config"]))
            if wrong:
                answer |= {"status": "wrong_result", "error": wrong}
                return
            launch = self._launcher(subject, task["config"])  # anew if the inputs are
        started = time.perf_counter()
        samples, censored = self._time(launch, task, long=first_s > _LONG_S)
        answer |= {"samples_us": samples, "timing_s": time.perf_counter() - started}
        if censored:
            answer["status"] = "censored"
        # The timed launches overwrote the output: the last one must be right too.
        if task["check"] and (wrong := self._timed(answer, lambda: self._difference(subject))):
            error = f"launches on the same inputs differ: {wrong}"
            answer |= {"status": "wrong_result", "error": error, "samples_us": []}

    def _timed(self, answer: dict[str, Any], check: Callable[[], str]) -> str:
        started = time.perf_counter()
        found = check()
        answer["check_s"] += time.perf_counter() - started
        return found

    def _launch_once(self, launch: Launch) -> Any:
        if launch.prepare:
            launch.prepare()
        kernel = launch()
        self._torch.cuda.synchronize()
        return kernel

    def _launcher(self, subject: Subject, config: Mapping[str, Any]) -> Launch:
        """Returns what enqueues one launch of a config."""
        key = subject, Config(config)
        if key not in self._launchers:
            plan, sms = device_module(subject.device).plan, self._properties.multi_processor_count
            inputs = self._load(subject).inputs
            self._launchers[key] = plan(inputs, subject.workload, key[1], sms=sms)
            if len(self._launchers) > _KEPT_LAUNCHERS:
                self._launchers.popitem(last=False)
        return self._launchers[key]

    def _time(
        self, launch: Launch, task: dict[str, Any], *, long: bool
    ) -> tuple[list[float], bool]:
        """Returns the samples, and whether timing stopped at the cut-off."""
        rule, asked = task["rule"], task["asked"]
        take = partial(self._take, task["protocol"], launch)
        # A first launch may have waited for something else: only a second one shows it is long.
        samples = take(repetitions=1, warm_up=0) if long else [0.0]
        if not (long := samples[0] >= _LONG_S * 1e6):
            samples = take(repetitions=rule.first(asked), warm_up=2)
        rest = rule.rest(
            samples, asked=asked, best_us=task["best_us"], cutoff_us=task["cutoff_us"]
        )
        if rest and long and asked is None and task["best_us"] is None:
            rest = min(rest, int(_FIRST_S * 1e6 / samples[0]))
        if rest:
            samples += take(repetitions=rest, warm_up=0)
        return samples, rest is None

    def _take(self, protocol: str, launch: Callable[[], Any], **wishes: Any) -> list[float]:
        prepare = getattr(launch, "prepare", None)
        time_samples = get_protocol(protocol).time
        return time_samples(launch, flush=self._flush, prepare=prepare, **wishes)

    # -- right or wrong -------------------------------------------------------------------------

    def _load(self, subject: Subject) -> _Loaded:
        if subject not in self._loaded:
            from kt_lab.runners.gpu.checking import Outputs

            device, workload = device_module(subject.device), subject.workload
            inputs = device.make_inputs(workload, device=self._device, seed=_INPUT_SEED)
            reference = device.reference(inputs, workload)
            outputs = Outputs(inputs, device.output(inputs))
            baseline, name = device.baseline(inputs, workload)
            self._loaded[subject] = _Loaded(inputs, outputs, reference, baseline, name)
        return self._loaded[subject]

    def _poison(self, subject: Subject) -> None:
        from kt_lab.runners.gpu.checking import poison

        poison(device_module(subject.device).output(self._loaded[subject].inputs))

    def _difference(self, subject: Subject) -> str:
        from kt_lab.runners.gpu.checking import difference

        loaded = self._loaded[subject]
        output = device_module(subject.device).output(loaded.inputs)
        return loaded.outputs.touched() or difference(output, loaded.reference, law=subject)

    def _wrong(self, subject: Subject, config: Mapping[str, Any]) -> str:
        """Returns why the output of the launch just made is wrong, or an empty string.

        A wrong result may be an earlier kernel's doing, which wrote over the inputs, the reference
        or a counter. So everything is made afresh, and the config must then be right several
        times in a row to be believed.
        """
        if not (wrong := self._difference(subject)):
            return ""
        self._reload(subject)
        again = self._launcher(subject, config)
        for _ in range(_PROOFS):
            self._poison(subject)
            self._launch_once(again)
            if self._difference(subject):
                self._forget([subject])  # nothing is left for the next config
                return wrong
        return ""

    def _reload(self, subject: Subject) -> None:
        self._forget([subject])
        self._load(subject)

    def _forget(self, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            self._loaded.pop(subject, None)
            for key in [key for key in self._launchers if key[0] == subject]:
                del self._launchers[key]

    def _torch_must_live(self, error: Exception) -> None:
        """Gives the process up if its GPU context is poisoned: no later result counts."""
        try:
            self._torch.cuda.synchronize()
            self._flush[:1].zero_()
            self._torch.cuda.synchronize()
        except Exception:
            raise WorkerLost(one_line(error)) from error
        if isinstance(error, self._torch.OutOfMemoryError | MemoryError):
            self._torch.cuda.empty_cache()

    # -- side by side ---------------------------------------------------------------------------

    def do_race(self, task: dict[str, Any]) -> dict[str, Any]:
        """Times several configs in alternation.

        Args:
            task: `subject`, `configs`, `rounds`, `repetitions` per block, `protocol`, `first`
                (number of the first round: odd rounds run backwards).

        Returns:
            `blocks_us`: [round][config], the median of the block in microseconds.
        """
        launches = [self._launcher(task["subject"], config) for config in task["configs"]]
        for launch in launches:
            self._launch_once(launch)
        blocks = []
        for number in range(task["first"], task["first"] + task["rounds"]):
            row = [0.0] * len(launches)
            order = range(len(launches))
            for at in reversed(order) if number % 2 else order:
                samples = self._take(
                    task["protocol"], launches[at], repetitions=task["repetitions"], warm_up=1
                )
                row[at] = statistics.median(samples)
            blocks.append(row)
        return {"blocks_us": blocks}

    def do_compare(self, task: dict[str, Any]) -> dict[str, Any]:
        """Times one config and the vendor path in alternation; returns both lists of samples."""
        loaded = self._load(task["subject"])
        paths = (self._launcher(task["subject"], task["config"]), loaded.baseline)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(task["rounds"]):
            for path, taken in zip(paths, (ours, theirs), strict=True):
                taken += self._take(task.get("protocol", "events"), path, repetitions=10)
        told = {"samples_us": ours, "baseline_us": theirs, "baseline": loaded.baseline_name}
        return told | {"sensors": read_sensors(self._device.index)}


def timing_service(*, device: int = 0) -> TimingService:
    """Starts the timing worker of one GPU."""
    return TimingService(device=device)

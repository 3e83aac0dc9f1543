"""What a panel offers: kernels, workloads, runners, searchers, and what is known of them."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kt_lab.cells import recorded
from kt_lab.errors import KtLabError, UnknownName, UsageError
from kt_lab.journals import journaled
from kt_lab.landscape import data_directory, landscapes
from kt_lab.manifests import read_manifest
from kt_lab.prior import Prior
from kt_lab.runners import Runner
from kt_lab.runners.gpu.facts import gpu_name, gpu_slug, gpu_uuid, read_sensors
from kt_lab.runners.gpu.lock import holder
from kt_lab.runners.replay import ReplayRunner
from kt_lab.search import searchers
from kt_lab.search.peers import PEERS
from kt_lab.space import ParameterSpace
from kt_lab.study import levels
from kt_lab.transfer import prior_named
from kt_lab.workload import Kernel, Workload

_USUAL = "softmax/4096x640"


@dataclass(frozen=True, slots=True)
class RunnerChoice:
    """Where a workload may be measured.

    Attributes:
        label: "replay of NVIDIA H200", or the name of this machine's GPU.
        gpu: Short name of the GPU ("h200").
        uuid: Identity of this machine's GPU; None: a replay.
        device: Its index, as CUDA counts them.
    """

    label: str
    gpu: str
    uuid: str | None = None
    device: int = 0

    @property
    def live(self) -> bool:
        """Whether a GPU of this machine measures."""
        return self.uuid is not None

    def badge(self) -> str:
        """Returns the label and, of a GPU, its clock, its temperature and who holds it."""
        if not self.live:
            return self.label
        read = read_sensors(self.device)
        units = (("sm_mhz", "MHz"), ("temperature_c", "°C"))
        said = ", ".join([self.label, *(f"{read[k]:,.0f} {u}" for k, u in units if read[k])])
        held = holder(self.uuid)
        if held is None:
            return f"{said} (free)"
        who = f"process {held.get('pid', 'unknown')} on {held.get('host', 'this host')}"
        return f"{said} (held by {who} for {held.get('what', 'an unnamed run')})"


@dataclass(frozen=True, slots=True)
class Known:
    """What a search is held against; None: unknown.

    Attributes:
        optimum_us: Judged latency of the best recorded config, microseconds.
        noise_floor: The best of one noisy reading of every config, relative to the optimum.
        bytes_floor_us: Time to move each byte once at the GPU's measured copy speed.
    """

    optimum_us: float | None = None
    noise_floor: float | None = None
    bytes_floor_us: float | None = None


def runner_choices(workload: Workload) -> list[RunnerChoice]:
    """Returns where a workload may be measured: this machine's GPUs first, then replays."""
    recordings = [entry.gpu for entry in landscapes() if entry.workload == workload.key]
    replays = [RunnerChoice(f"replay of {_sold_as(gpu)}", gpu) for gpu in recordings]
    return [*_gpus(), *replays]


def _gpus() -> list[RunnerChoice]:
    """Returns this machine's GPUs; where there are several, their index is in the label."""
    uuids: list[str] = []
    while (uuid := gpu_uuid(len(uuids))) and uuid not in uuids:
        uuids.append(uuid)
    found = []
    for device, uuid in enumerate(uuids):
        name = gpu_name(device) or "this machine's GPU"
        label = f"{name}, GPU {device}" if len(uuids) > 1 else name
        found.append(RunnerChoice(label, gpu_slug(name), uuid, device))
    return found


def usual_workload() -> str:
    """Returns what a panel shows that is given no workload: a softmax, or the first recorded."""
    keys = [entry.workload for entry in landscapes()]
    return keys[0] if keys and _USUAL not in keys else _USUAL


def require_listed(workload: str) -> None:
    """Raises UsageError for the file of a landscape: panels offer those in the folder of data."""
    if str(workload).endswith(".parquet"):
        raise UsageError(
            "a panel takes the key of a workload whose landscape lies in "
            f"{data_directory() / 'landscapes'}, got the file {workload}; copy it and its .json "
            "to a folder <kernel>/<gpu> there"
        )


def chosen(choices: Sequence[RunnerChoice], wanted: str) -> RunnerChoice:
    """Returns the choice with that label, a live one, or the replay of a recorded GPU.

    Args:
        choices: From `runner_choices`.
        wanted: A label, "live" (the first GPU), "live:1" (the second...), or the short name of a
            recorded GPU.

    Raises:
        UsageError: It is a live one, and this machine has no GPU; or nothing is recorded.
        UnknownName: None fits.
    """
    for choice in choices:
        device = f"live:{choice.device}"
        if wanted in (choice.label, *([device] if choice.live else [choice.gpu])):
            return choice
        if wanted == "live" and choice.live:
            return choice
    if wanted.startswith("live") and not any(choice.live for choice in choices):
        replays = ", ".join(sorted({choice.gpu for choice in choices})) or "none"
        raise UsageError(
            f"a live search needs a GPU, got {wanted!r} but this machine has no GPU "
            f"(see kt-lab doctor); replays: {replays}"
        )
    if not choices:
        raise UsageError(
            f"a replay needs a recorded workload, got {wanted!r} for one that nobody recorded; "
            "kt-lab list landscapes tells those that are"
        )
    raise UnknownName("runner", wanted, [choice.label for choice in choices])


def searcher_names() -> list[str]:
    """Returns the registered searchers, then the peers whose package is installed."""
    packages = {name: path.partition(":")[0].rpartition(".")[2] for name, path in PEERS.items()}
    installed = {p for p in set(packages.values()) if importlib.util.find_spec(p)}
    return [*searchers(), *(name for name in PEERS if packages[name] in installed)]


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked of a search, beside where it is measured.

    Attributes:
        name: Registered name of the searcher.
        options: Its options.
        seed: Of the searcher and of a replay.
        lanes: Compile lanes, simulated ones in a replay.
        known: What it starts from, of `kt_lab.transfer.KNOWLEDGE`.
        afresh: Whether a live run puts the journal of an earlier part aside.
        directory: Of journals and winners; None: the folder of recorded data.
    """

    name: str
    options: Mapping[str, Any]
    seed: int
    lanes: int
    known: str = "nothing"
    afresh: bool = False
    directory: Path | str | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What a live run is known by."""
        named = {"searcher": self.name, "options": self.options, "seed": self.seed}
        return named | {"directory": self.directory}


def make_runner(
    choice: RunnerChoice,
    workload: Workload,
    kernel: Kernel,
    *,
    space: ParameterSpace,
    search: Search,
    tell: Callable[[Known], object],
) -> Runner:
    """Returns an open runner, a live one with its journal; it may take seconds to start.

    Args:
        choice: Where to measure.
        workload: What to measure.
        kernel: Its kernel.
        space: The configs that may be measured.
        search: What the runner is for.
        tell: Called with what searches of the workload are held against, before it returns.
    """
    with suppress(KtLabError):  # a landscape of one visit has no noise floor: tell nothing
        tell(known(choice, workload, kernel))
    if choice.live:
        runner = open_gpu(choice, workload, kernel, space=space, lanes=search.lanes)
        try:
            prior = prior_known(search.known, workload, choice.gpu)
            told = prior.fingerprint if prior else ""
            return journaled(runner, **search.about, known=told, resume=not search.afresh)
        except BaseException:
            runner.close()
            raise
    landscape = recorded(workload.key, choice.gpu)
    return ReplayRunner(landscape, seed=search.seed, space=space, compile_lanes=search.lanes)


@lru_cache(maxsize=2)
def prior_known(name: str, workload: Workload, gpu: str) -> Prior | None:
    """Returns `kt_lab.transfer.prior_named`, read once for a searcher and its journal."""
    return prior_named(name, workload, gpu=gpu)


def open_gpu(
    choice: RunnerChoice, workload: Workload, kernel: Kernel, *, lanes: int, space: Any = None
) -> Any:
    """Returns an open `GpuRunner` on the chosen GPU; `space` None: all of the kernel's."""
    from kt_lab.runners.gpu.runner import GpuRunner

    return GpuRunner(
        workload, kernel=kernel, space=space, device=choice.device, compile_workers=lanes
    )


def known(choice: RunnerChoice, workload: Workload, kernel: Kernel) -> Known:
    """Returns what the workload's searches are held against; reads a landscape."""
    if choice.live:
        speed = _copy_bytes_per_s(choice.gpu)
        floor = kernel.bytes_moved(workload) / speed * 1e6 if speed else None
        return Known(bytes_floor_us=floor)
    landscape = recorded(workload.key, choice.gpu)
    return Known(**levels(landscape), bytes_floor_us=landscape.manifest.get("bytes_floor_us"))


@lru_cache(maxsize=64)
def _facts(gpu: str) -> dict:
    """Returns what a recorded GPU told of itself, from any of its landscapes that does."""
    paths = (entry.path.with_suffix(".json") for entry in landscapes() if entry.gpu == gpu)
    told = (read_manifest(path).get("facts") for path in paths)  # none in another tuner's
    return next((facts[0] for facts in told if facts), {})


def _sold_as(gpu: str) -> str:
    return _facts(gpu).get("gpu", gpu)


def _copy_bytes_per_s(gpu: str) -> float | None:
    return _facts(gpu).get("copy_bytes_per_s")

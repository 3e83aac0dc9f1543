"""Stored winners: the decision that a search and its confirmation led to, and whether it holds."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kt_lab.confirm import Confirmation, Rule, confirm
from kt_lab.errors import StoreError, UsageError, require_path_part
from kt_lab.landscape import data_directory
from kt_lab.runners.racing import Racer
from kt_lab.runners.readings import config_from_json, config_to_json, require_json
from kt_lab.store.files import replacing
from kt_lab.trial import Config

SCHEMA = 1
# What Triton takes beside the kernel's own arguments.
_OF_TRITON = ("num_warps", "num_stages", "num_ctas", "maxnreg")

HOLDS = "holds"
LOST = "lost to the default"
BEATEN = "another finalist is better"


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The config to use for one workload on one GPU, and what it rests on.

    Attributes:
        kernel: The kernel's name.
        workload: The workload's name within the kernel ("4096x640").
        kernel_source: Hash of the kernel's source files.
        extents: Named extents of the shape.
        dtype: Element type of the main operand.
        gpu: Short name of the GPU ("h200").
        config: The config to use.
        default: The config in use before, the incumbent of the confirmation.
        finalists: The configs that were raced, best first, to be raced again.
        apparent_ratio: Latency config / default as the search read it, < 1 is better; None:
            unknown. It is low by luck as much as by merit.
        ratio: The same as confirmed by fresh paired readings; None: there was no duel.
        low: Lower end of the interval of `ratio`.
        high: Upper end.
        p_best: Probability that `config` is the fastest of all that were raced.
        latency_us: Median of the config's confirming readings, microseconds.
        default_us: The same of the default.
        protocol: Name of the timing protocol.
        searcher: Registered name of the searcher.
        seed: The searcher's seed.
        trials: Trials spent by the search.
        elapsed_s: Seconds of search and confirmation.
        provenance: Versions, driver, GPU, time, as JSON data (`kt_lab.provenance`).
        schema: Version of the stored form.
    """

    kernel: str
    workload: str
    kernel_source: str
    extents: Mapping[str, int]
    dtype: str
    gpu: str
    config: Config
    default: Config
    finalists: tuple[Config, ...]
    apparent_ratio: float | None
    ratio: float | None
    low: float | None
    high: float | None
    p_best: float | None
    latency_us: float | None
    default_us: float | None
    protocol: str
    searcher: str
    seed: int
    trials: int
    elapsed_s: float
    provenance: Mapping[str, Any]
    schema: int = SCHEMA

    def __post_init__(self):
        """Checks that the names can be a path and that everything can be stored as it is."""
        for part in (self.kernel, self.gpu, self.workload):
            require_path_part("each of kernel, workload and gpu of a winner", part)
        for name, kind in (("config", Config), ("default", Config), ("extents", dict)):
            object.__setattr__(self, name, kind(getattr(self, name)))
        object.__setattr__(self, "finalists", tuple(map(Config, self.finalists)))
        for config in (self.config, self.default, *self.finalists):
            config_to_json(config)
        for name in (f.name for f in fields(self) if f.name not in _CONFIGS):
            require_json(getattr(self, name), what=name)
        wrong = [n for n, kind in _KINDS.items() if not isinstance(getattr(self, n), kind)]
        if wrong or not isinstance(self.provenance.get("packages") or {}, dict):
            wrong = ", ".join(wrong) or "other packages"
            raise UsageError(f"a winner has numbers, a dtype and packages by name, got {wrong}")

    @property
    def key(self) -> str:
        """The workload's key: `kernel/name`."""
        return f"{self.kernel}/{self.workload}"

    def as_triton(self) -> Any:
        """Returns the config as a `triton.Config`, for `triton.autotune` or a heuristic."""
        import triton

        launch = {name: self.config[name] for name in _OF_TRITON if name in self.config}
        return triton.Config({k: v for k, v in self.config.items() if k not in launch}, **launch)


def triton_text(config: Mapping[str, Any]) -> str:
    """Returns the expression that makes a config a `triton.Config`, to be pasted into a script."""
    kept = {k: v for k, v in config.items() if k not in _OF_TRITON}
    launch = [f", {k}={config[k]!r}" for k in _OF_TRITON if k in config]
    return f"triton.Config({kept!r}{''.join(launch)})"


_CONFIGS = ("config", "default", "finalists")
_NUMBERS = ("apparent_ratio", "ratio", "low", "high", "p_best", "latency_us", "default_us", "seed")
_KINDS = dict.fromkeys([*_NUMBERS, "trials", "elapsed_s"], int | float | None) | {"dtype": str}


# -- files ----------------------------------------------------------------------------------------


def save_winner(winner: Winner, directory: Path | str | None = None) -> Path:
    """Writes a winner to <directory>/<kernel>/<gpu>/<workload>.json, in place of an earlier one.

    The file is whole and on disk when this returns; a crash leaves the earlier one.

    Args:
        winner: What to store.
        directory: Default: `winners` in the folder of recorded data.
    """
    data = {f.name: getattr(winner, f.name) for f in fields(winner)}
    data |= {name: config_to_json(data[name]) for name in ("config", "default")}
    data["finalists"] = [config_to_json(config) for config in winner.finalists]
    path = _root(directory) / winner.kernel / winner.gpu / f"{winner.workload}.json"
    with replacing(path) as partial:
        partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return path


def load_winner(
    workload: str, *, gpu: str | None = None, directory: Path | str | None = None
) -> Winner:
    """Loads a stored winner by workload key ("softmax/4096x640") and, if need be, GPU.

    Raises:
        StoreError: There is none, several GPUs have one and `gpu` is not given, or the file is
            damaged or of another schema.
    """
    stored = list(winners(directory))
    found = [path for key, where, path in stored if key == workload and gpu in (None, where)]
    if len(found) != 1:
        known = ", ".join(f"{key} ({where})" for key, where, _ in stored) or "none"
        problem = "several; name one with gpu=" if found else "none; tune it first"
        raise StoreError(
            f"workload {workload!r} on gpu {gpu!r} must name one stored winner, got {problem}; "
            f"stored: {known}"
        )
    winner, place = _read(found[0]), found[0].parts
    if (winner.key, winner.gpu) != (workload, place[-2]):
        raise StoreError(
            f"a stored winner must be of what its place tells, got {winner.key} ({winner.gpu}) in "
            f"{'/'.join(place[-3:])}; move it to its own, or tune again to replace it"
        )
    return winner


def winners(directory: Path | str | None = None) -> Iterator[tuple[str, str, Path]]:
    """Yields (workload key, gpu, path) of every stored winner, sorted; files are not read."""
    for path in sorted(_root(directory).glob("*/*/*.json")):
        yield f"{path.parts[-3]}/{path.stem}", path.parts[-2], path


def _root(directory: Path | str | None) -> Path:
    """Returns the folder of winners: one that holds it, as searches are told, will do."""
    root = Path(directory or data_directory())
    return root / "winners" if directory is None or (root / "winners").is_dir() else root


def _read(path: Path) -> Winner:
    shown = "/".join(path.parts[-3:])
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise TypeError(f"a {type(data).__name__} instead of an object")
        if data.get("schema") != SCHEMA:
            raise StoreError(
                f"a stored winner must have schema {SCHEMA}, got {data.get('schema')!r} in "
                f"{shown}; read it with the kt_lab that wrote it, or tune again to replace it"
            )
        for name in ("config", "default"):
            data[name] = config_from_json(data[name])
        data["finalists"] = tuple(config_from_json(config) for config in data["finalists"])
        return Winner(**data)
    except StoreError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"a stored winner must be a whole JSON file with all its fields, got {shown}: "
            f"{type(error).__name__}: {error}; restore it, or delete it and tune again"
        ) from None


# -- does it still hold ---------------------------------------------------------------------------


def matches(
    winner: Winner,
    *,
    kernel_source: str | None,
    gpu: str | None,
    triton: str | None,
    driver: str | None,
    arch: str | None = None,
) -> list[str]:
    """Says what differs from when the winner was found, one sentence each; empty: nothing known.

    Args:
        winner: The stored winner.
        kernel_source: Hash of the kernel's source files now; None, here and below: unknown.
        gpu: Short name of the GPU now.
        triton: Triton's version now.
        driver: The driver's version now.
        arch: The GPU's architecture now ("sm_90", "gfx942").
    """
    then = winner.provenance
    packages = then.get("packages") or {}
    pairs = (
        ("the kernel's source", winner.kernel_source, kernel_source),
        ("the GPU", winner.gpu, gpu),
        ("the architecture", architecture(then), arch),
        ("Triton", then.get("triton") or packages.get("triton"), triton),
        ("the driver", then.get("driver"), driver),
    )
    return [
        f"{what} is {now}, and was {before} when this winner was found"
        for what, before, now in pairs
        if None not in (before, now) and before != now
    ]


def architecture(facts: Mapping[str, Any]) -> str | None:
    """Returns what a GPU's vendor calls its architecture ("sm_90"), from facts about the GPU."""
    capability = facts.get("capability")
    return facts.get("arch") or (capability and f"sm_{str(capability).replace('.', '')}")


@dataclass(frozen=True, slots=True)
class Recheck:
    """What a recheck of a stored winner came to.

    Attributes:
        verdict: "holds": it was shown again to be faster than the default, and no other finalist
            to be faster than it. "lost to the default": it was not shown to be faster again, so
            the default is to be used. "another finalist is better": one was shown to be faster
            than what the recheck would have left in use otherwise.
        config: The config to use from now on.
        confirmations: The winner against the default (unless it is the default), then the other
            finalists (if any) against the better of these.
        changed: What changed since, from `matches`.
    """

    verdict: str
    config: Config
    confirmations: tuple[Confirmation, ...]
    changed: tuple[str, ...] = ()

    def describe(self) -> str:
        """Returns a few sentences for people."""
        before = [False, *(c.replaced for c in self.confirmations)]  # the first is the default's
        names = ["the stored winner" if replaced else "the default" for replaced in before]
        told = " ".join(c.describe(n) for c, n in zip(self.confirmations, names, strict=False))
        since = f" Since then: {'; '.join(self.changed)}." if self.changed else ""
        return f"Stored winner: {self.verdict}. {told}{since}"


def recheck(
    winner: Winner, racer: Racer, *, rule: Rule | None = None, changed: Sequence[str] = ()
) -> Recheck:
    """Races a stored winner and its finalists against the default again.

    Two confirmations, so that each verdict rests on a pair that was compared: being first in a
    race among equals says nothing.

    Args:
        winner: The stored winner.
        racer: Takes the fresh readings.
        rule: When to decide; None: Rule().
        changed: What changed since, from `matches`.
    """
    done = []
    kept = winner.default
    if winner.config != winner.default:
        finalists = [winner.config]
        done.append(confirm(racer, incumbent=kept, finalists=finalists, apparent_us={}, rule=rule))
        kept = done[0].winner
    verdict = HOLDS if kept == winner.config else LOST
    others = [c for c in winner.finalists if c not in (winner.config, winner.default)]
    if others:
        done.append(confirm(racer, incumbent=kept, finalists=others, apparent_us={}, rule=rule))
        verdict = BEATEN if done[-1].replaced else verdict
        kept = done[-1].winner
    return Recheck(verdict, kept, tuple(done), tuple(changed))

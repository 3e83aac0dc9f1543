"""Landscapes: every config of one workload on one GPU, with raw timings, costs and failures."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from kt_lab.errors import LandscapeError, UnrecordedConfig, did_you_mean
from kt_lab.manifests import (
    check_columns,
    is_manifest,
    read_manifest,
    recorded_rows,
    require_free,
    unreadable,
)
from kt_lab.space import ParameterSpace
from kt_lab.store.files import replacing
from kt_lab.ticks import of_each, read_table, write_table
from kt_lab.trial import OK, Config

SCHEMA = 2
REFERENCE_GPU = "h200"
"""The GPU that is meant where none is named and several have been recorded."""
COMPILED = "triton_cache"
"""The folder of what a recording compiled, among the landscapes."""
_FACTS = {  # column -> dtype of what is stored once per config beside its samples
    "compile_s": "float32",
    "compile_cpu_s": "float32",
    "compile_workers": "int16",
    "check_s": "float32",
    "timing_overhead_s": "float32",
    "failure_s": "float32",
    "registers": "Int32",
    "spills": "Int32",
    "shared_bytes": "Int32",
}
_TEXTS = ("status", "error", "specialisation", "code_hash", "grid")


class Landscape:
    """The recorded table of one workload on one GPU.

    Row i of every array is config i of `space.enumerate()`; configs that were not recorded have
    an empty status. Samples are in microseconds, in the order they were taken.
    """

    def __init__(self, table: pd.DataFrame, manifest: Mapping[str, Any]):
        """Takes a table with one row per recorded config, as `record` and `load` make it.

        Args:
            table: Columns p_<parameter> (value indices), status, error, samples_us (list), visit
                (list, one entry per sample) and the columns of costs and facts.
            manifest: Space, fingerprint, provenance, protocol; see data/README.md.
        """
        self.manifest = dict(manifest)
        self.space = ParameterSpace.from_description(manifest["space"])
        if self.space.fingerprint != manifest["fingerprint"]:
            raise LandscapeError(
                "a landscape's fingerprint must match its space, got "
                f"{manifest['fingerprint']} in the manifest and {self.space.fingerprint} from its "
                "space; the manifest was edited or comes from another version"
            )
        rows, good = recorded_rows(table, self.space)
        if not good.all():
            raise LandscapeError(
                f"every recorded row must be a member of the space, got "
                f"{int((~good).sum())} of {len(rows)} outside it"
            )
        self.table = table.set_index(pd.Index(self.space.indices(rows), name="config"))
        if self.table.index.has_duplicates:
            raise LandscapeError("a landscape must hold each config once, got duplicates")
        self.table = self.table.sort_index()
        for name in _TEXTS:
            self.table[name] = self.table[name].astype(object)

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.manifest["kernel"]

    @property
    def workload(self) -> str:
        """The workload's key, kernel/name."""
        return self.manifest["workload"]

    @property
    def gpu(self) -> str:
        """The GPU's short name, as in the folder."""
        return self.manifest["gpu"]

    def require(self, space: ParameterSpace) -> None:
        """Raises LandscapeError unless the landscape was recorded in this space or a wider one.

        A space that `ParameterSpace.only` restricted to some of its members is narrower.
        """
        if space.fingerprint != self.space.fingerprint and not self._covers(space):
            raise LandscapeError(
                f"a landscape must be replayed in the space it was recorded in: {self.workload} "
                f"on {self.gpu} has fingerprint {self.space.fingerprint}, the space given has "
                f"{space.fingerprint}; record it again with kt-lab record {self.workload}"
            )

    def _covers(self, space: ParameterSpace) -> bool:
        mine, other = self.space.describe(), space.describe()
        same = all(mine[k] == other[k] for k in ("parameters", "constraints", "constants"))
        rows = space.enumerate() if same and space.enumerable else np.empty((0, 0), dtype=int)
        return len(rows) > 0 and bool(self.space.valid(rows).all())

    def index(self, config: Config) -> int:
        """Returns a recorded config's position; raises UnrecordedConfig or SpaceError."""
        found = self._positions.get(config)
        if found is None:
            self.space.check(config)
            raise UnrecordedConfig(
                f"replay needs a recorded config, got {config!r}; {self.workload} on {self.gpu} "
                f"holds {len(self.table):,} of {self.space.size:,} configs; record the rest with "
                f"kt-lab record {self.workload}"
            )
        return found

    @cached_property
    def _positions(self) -> dict[Config, int]:
        at = self.table.index.to_numpy()
        return dict(zip(self.space.configs(self.space.enumerate()[at]), at.tolist(), strict=True))

    # -- arrays over space.enumerate() ----------------------------------------------------------

    def column(self, name: str, *, missing: Any = np.nan) -> np.ndarray:
        """Returns one column over all configs of the space, shape (space.size,)."""
        return self.table[name].reindex(range(self.space.size), fill_value=missing).to_numpy()

    @cached_property
    def status(self) -> np.ndarray:
        """Status of each config; an empty string where nothing was recorded."""
        return self.column("status", missing="").astype(object)

    @cached_property
    def visits(self) -> int:
        """How many separate visits the contenders were timed in."""
        return 1 + int(np.concatenate([[-1], *self.table["visit"]]).max())

    @cached_property
    def launches(self) -> list[tuple[str, str]]:
        """What the GPU executes for each config: the hash of its binary, and its grid.

        Configs with the same launch are one program under several names. A binary alone does not
        say it: a persistent kernel has one for every number of programs.
        """
        columns = [self.column(name, missing="").tolist() for name in ("code_hash", "grid")]
        return list(zip(*columns, strict=True))

    @cached_property
    def samples(self) -> list[list[np.ndarray]]:
        """samples[visit][config]: raw timings in microseconds, possibly empty."""
        size, lists = self.space.size, self.table["samples_us"]
        visit, samples = (np.concatenate([[], *self.table[n]]) for n in ("visit", "samples_us"))
        cell = visit.astype(int) * size + np.repeat(self.table.index, lists.map(len))
        samples = samples[np.argsort(cell, kind="stable")].astype(np.float32)
        ends = np.bincount(cell, minlength=self.visits * size).cumsum().tolist()
        cells = [samples[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return [cells[v * size : (v + 1) * size] for v in range(self.visits)]

    def medians_us(self, visit: int | None = None) -> np.ndarray:
        """Returns median latency in microseconds per config, shape (size,); NaN unless ok.

        Args:
            visit: One visit's median; None for the median of all samples pooled.
        """
        known = self.__dict__.setdefault("_medians", {})
        if visit in known:
            return known[visit].copy()
        out, ok = np.full(self.space.size, np.nan), np.flatnonzero(self.status == OK)
        kept = self.samples if visit is None else [self.samples[visit]]
        out[ok] = of_each(np.median, [np.concatenate([s[at] for s in kept]) for at in ok])
        known[visit] = out.copy()
        return out

    @cached_property
    def latency_us(self) -> np.ndarray:
        """Median of all samples per config, shape (size,); NaN unless ok."""
        return self.medians_us()

    @property
    def best(self) -> Config:
        """The config with the lowest pooled median latency."""
        return self.space.config(self.space.enumerate()[int(np.nanargmin(self.latency_us))])

    @property
    def optimum_us(self) -> float:
        """The lowest pooled median latency, in microseconds."""
        return float(np.nanmin(self.latency_us))

    def save(self, path: Path) -> Path:
        """Writes <path>.parquet, returned, and <path>.json; replaces no file but a landscape's."""
        target = table_path(path)
        require_free(target.with_suffix(".json"))
        frame = self.table.reset_index(drop=True)
        arrays = {f"p_{n}": pa.array(frame[f"p_{n}"], pa.int16()) for n in self.space.names}
        arrays |= {n: pa.array(frame[n].astype(str)).dictionary_encode() for n in _TEXTS}
        if "device" in frame:  # of several GPUs
            arrays["device"] = pa.array(frame["device"].astype(object)).dictionary_encode()
        arrays |= {n: pa.array(frame[n].astype(d), from_pandas=True) for n, d in _FACTS.items()}
        arrays["samples_us"] = pa.array(frame["samples_us"].map(list), pa.list_(pa.float32()))
        arrays["visit"] = pa.array(frame["visit"].map(list), pa.list_(pa.int8()))
        with replacing(target.with_suffix(".json")) as about, replacing(target) as partial:
            write_table(arrays, partial)
            digest = hashlib.sha256(partial.read_bytes()).hexdigest()
            manifest = self.manifest | {"schema": SCHEMA, "sha256": digest, "configs": len(frame)}
            facts = [f"{json.dumps(k)}: {json.dumps(v, default=str)}" for k, v in manifest.items()]
            about.write_text("{\n" + ",\n".join(facts) + "\n}\n")
        return target

    @classmethod
    def load(cls, path: Path | str) -> "Landscape":
        """Reads <path>.parquet with its manifest <path>.json.

        Raises:
            LandscapeError: A file is missing, truncated, foreign or of another schema.
        """
        path = table_path(path)
        try:
            manifest = read_manifest(path.with_suffix(".json"))
            raw = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from None
        if manifest.get("schema") != SCHEMA:
            told = f"got {manifest.get('schema')} in {path.name}"
            raise LandscapeError(f"a landscape manifest must have schema {SCHEMA}, {told}")
        if hashlib.sha256(raw).hexdigest() != manifest.get("sha256"):
            raise LandscapeError(
                f"a landscape must match the sha256 of its manifest, got another in {path.name}; "
                "the file was changed after it was recorded"
            )
        try:
            table = read_table(raw).to_pandas()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable(path, error) from None
        check_columns(table, manifest, {"samples_us", "visit", *_TEXTS, *_FACTS}, path.name)
        return cls(table, manifest)


def table_path(path: Path | str) -> Path:
    """Returns <path>.parquet; a final .parquet, .json or .json.gz is the only suffix."""
    path = Path(path)
    stem = re.sub(r"(?<=.)\.(parquet|json|json\.gz)$", "", path.name)
    return path.with_name(f"{stem}.parquet")


@dataclass(frozen=True, slots=True)
class LandscapeEntry:
    """One landscape on disk, known without reading its table."""

    kernel: str
    gpu: str
    workload: str
    path: Path
    configs: int


def data_directory() -> Path:
    """Returns the folder of recorded data: $KT_LAB_DATA, or `data` beside the package."""
    return Path(os.environ.get("KT_LAB_DATA") or Path(__file__).resolve().parent.parent / "data")


def landscapes(root: Path | None = None) -> list[LandscapeEntry]:
    """Lists the shipped landscapes by kernel, workload and GPU, REFERENCE_GPU first.

    The JSON files in COMPILED are nobody's manifests, nor are those without a table.
    """
    root = root or data_directory() / "landscapes"
    manifests = [path for path in sorted(root.glob("*/*/*.json")) if path.parts[-3] != COMPILED]
    files = [(path, path.stat()) for path in manifests if is_manifest(path)]
    found = [_entry(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino)) for path, stat in files]
    return sorted(found, key=lambda e: (e.kernel, e.workload, e.gpu != REFERENCE_GPU, e.gpu))


@lru_cache(maxsize=1024)
def _entry(path: Path, _version: tuple[int, ...]) -> LandscapeEntry:
    """Reads a manifest once per version of its file: every load of a landscape lists them all."""
    facts = read_manifest(path)
    named = [facts[name] for name in ("kernel", "gpu", "workload")]
    return LandscapeEntry(*named, table_path(path), facts.get("configs", 0))


def load_landscape(workload: str | os.PathLike, *, gpu: str | None = None) -> Landscape:
    """Loads a shipped landscape by workload key ("softmax/4096x640") and, if need be, GPU.

    A workload that ends in .parquet is the file of a landscape anywhere. Without `gpu` it is the
    landscape of REFERENCE_GPU, or the only one there is.

    Raises:
        LandscapeError: There is none, or several GPUs have one, none of them REFERENCE_GPU.
    """
    workload = os.fspath(workload)  # as `Landscape.save` returns it
    if workload.endswith(".parquet"):
        return Landscape.load(workload)
    entries = landscapes()
    found = [e for e in entries if e.workload == workload and gpu in (None, e.gpu)]
    if len(found) > 1:
        found = [e for e in found if e.gpu == REFERENCE_GPU] or found
    if len(found) != 1:
        gpus = ", ".join(e.gpu for e in entries if e.workload == workload)
        none = f"{data_directory() / 'landscapes'} holds none at all: does KT_LAB_DATA fit? "
        near = did_you_mean(workload, {e.workload for e in entries}) if entries else none
        hint = f"name one with gpu=: {gpus}; " if gpus else near
        raise LandscapeError(
            f"workload {workload!r}{f' on gpu {gpu!r}' if gpu else ''} must name one landscape, "
            f"got {'several' if found else 'none'}; {hint}kt-lab list landscapes tells all"
        )
    return Landscape.load(found[0].path)

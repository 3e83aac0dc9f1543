"""What an inspection found: one row per config, what to drop, and what to keep."""

import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.inspect.targets import Target
from kt_lab.space import ParameterSpace
from kt_lab.trial import OK

_SPILLED_BYTES = 4  # of one spilled register


@dataclass(frozen=True, slots=True, eq=False)
class Inspection:
    """Every config of a space, compiled for one target.

    Attributes:
        target: What was compiled for.
        space: What was compiled: the space, or its restriction to the rows that were asked for.
        table: One row per config, in the order of `space.enumerate()`, with the index `config`:
            the parameters' values, under p_NAME where NAME is one of the following columns;
            specialisation, grid; status ("ok", "compile_error", "launch_error" for more shared
            memory or threads than the target has or where no launch can be planned, "timeout",
            "crashed"), error; compile_s (seconds of its specialisation); code_hash; registers,
            spills (32-bit words) and stack_bytes of a thread; shared_bytes and threads of a
            program; agprs, sgprs and sgpr_spills (AMD only); duplicate_of (the first config with
            the same code_hash and grid; null for that one itself). Missing is null.
        elapsed_s: Wall-clock seconds that it took.
    """

    target: Target
    space: ParameterSpace
    table: pd.DataFrame
    elapsed_s: float

    @property
    def ok(self) -> np.ndarray:
        """Which configs compile and can be launched, shape (configs,)."""
        return (self.table["status"] == OK).to_numpy()

    @property
    def duplicates(self) -> dict[str, int]:
        """How many configs can be launched, with how many distinct binaries and launches."""
        good = self.table[self.ok]
        return {
            "ok": len(good),
            "binaries": good["code_hash"].nunique(),
            "launches": int(good["duplicate_of"].isna().sum()),
        }

    def hopeless(self, *, max_spill_bytes: int | None = None) -> np.ndarray:
        """Which configs are not worth a GPU's time, shape (configs,).

        Those that do not compile, those that the target cannot launch, and those that spill too
        much. Spilling is slow, but a config that spills a little can still be the best.

        Args:
            max_spill_bytes: The most that a thread may spill; None: as much as it likes.
        """
        hopeless = ~self.ok
        if max_spill_bytes is not None:
            spilled = self.table["spills"].fillna(0).to_numpy(dtype=np.int64)
            hopeless |= spilled * _SPILLED_BYTES > max_spill_bytes
        return hopeless

    def keep(self, *, max_spill_bytes: int | None = None) -> np.ndarray:
        """Returns the rows worth measuring, shape (n, parameters); see ParameterSpace.only.

        One config stands for each launch: the space's default for its own, else the first.
        """
        chosen = self.table["duplicate_of"].isna().to_numpy(copy=True)
        default = self.space.index(self.space.default)
        first = self.table["duplicate_of"].iloc[default]
        if not pd.isna(first):
            chosen[[first, default]] = False, True
        return self.space.enumerate()[chosen & ~self.hopeless(max_spill_bytes=max_spill_bytes)]

    @property
    def failures(self) -> dict[str, int]:
        """How many configs fail for each reason, numbers left out of it; most frequent first."""
        bad = self.table[~self.ok]
        reasons = [
            f"{status}: " + re.sub(r"\b\d[\d,]*\b", "N", error)
            for status, error in zip(bad["status"], bad["error"], strict=True)
        ]
        return dict(Counter(reasons).most_common())

    def summary(self, *, max_spill_bytes: int | None = None) -> dict[str, Any]:
        """Returns the inspection in one row of counts and seconds, JSON-ready."""
        good = self.table[self.ok]
        compiled = self.table.drop_duplicates("specialisation")["compile_s"]
        return {
            "target": self.target.name,
            "configs": len(self.table),
            **self.duplicates,
            "registers_median": _number(good["registers"].median()),
            "registers_max": _number(good["registers"].max()),
            "spilling": int((good["spills"] > 0).sum()),
            "hopeless": int(self.hopeless(max_spill_bytes=max_spill_bytes).sum()),
            "specialisations": self.table["specialisation"].nunique(),
            "compile_s": round(float(compiled.sum()), 3),
            "elapsed_s": round(self.elapsed_s, 3),
        }


def columns_of(config: Mapping[str, Any], *, beside: Container[str]) -> dict[str, Any]:
    """Returns a config's values by column: p_NAME where NAME is a column that stands beside."""
    return {f"p_{name}" if name in beside else name: value for name, value in config.items()}


def _number(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)

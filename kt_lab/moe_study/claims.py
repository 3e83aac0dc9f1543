"""What was published beside what was measured here: other GPUs, other timers, the same code.

Published are pull requests of pytorch/ao by number, and inferences about them. A verdict is a
rule, told with each claim, so that a later recording may change it. Where a size is published, the
same direction alone agrees in part: the size must be in the published range, or if that is one
number, not smaller by more than a factor.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.evidence.repeated import LOSS
from kt_lab.landscape import Landscape
from kt_lab.moe_study import fences, layouts, same_launch, sharing, speedups, tunings
from kt_lab.moe_study.picks import judged_draws, picks
from kt_lab.moe_study.recorded import (
    CAST,
    COLUMNS,
    COLWISE,
    JAGGED,
    REDUCTION,
    ROWWISE,
    SCALES,
    WEIGHTS,
    WIDE,
    by_kernel,
    expanded,
    joined,
    positions,
)

AGREES, PARTLY, DIFFERS, OPEN = "agrees", "in part", "differs", "not recorded"
HALF = ", half of the pair recorded"
_ALIKE = 0.03  # difference of log speedups up to which they count as the same, or half of the
# published one: 1.14 is not 1.05, but 1.99 is about 2.14
_FACTOR = 1.5  # between two ratios of other kinds that count as alike
_PROGRAMS = {8: 4, 16: 8, 24: 12, 45: 15}  # configs -> programs, as counted by cross-compilation
# Lists of as many configs that come to other numbers.
_OTHERWISE = {(REDUCTION, 36): 12, (ROWWISE, 36): 18, (COLWISE, 36): 18, (COLUMNS, 8): 8}
_WITHOUT_ORIGINAL = "pr3972"
_Told = tuple[str, str]


@dataclass(frozen=True)
class _Study:
    """The tables that claims are held against, each computed once."""

    found: Sequence[Landscape]
    result: Mapping[str, Any]

    @cached_property
    def pull(self) -> pd.DataFrame:
        return speedups.pull_request_table(self.found)

    @cached_property
    def lists(self) -> pd.DataFrame:
        return tunings.per_list(self.result)

    @cached_property
    def routes(self) -> pd.DataFrame:
        return layouts.routes(self.found)

    def regrets(self, kernels: Iterable[str], name: str, extents: Sequence[str]) -> pd.DataFrame:
        """Returns regrets between shapes of some kernels; name "": their expanded lists."""
        groups = {k: g for k, g in by_kernel(self.found).items() if k in kernels}
        parts = [
            sharing.regrets(group, name or expanded(kernel), extents=extents)
            for kernel, group in groups.items()
        ]
        table = joined(parts, of="shapes of one kernel to share configs")
        return table[(table["tuned"] != table["workload"]) & table["regret"].notna()]


def claims(found: Sequence[Landscape], result: Mapping[str, Any]) -> pd.DataFrame:
    """Returns published claims beside what the recordings say.

    Args:
        found: Landscapes of the study.
        result: From `kt_lab.moe_study.tunings.tunings`.

    Returns:
        source, published, measured, verdict: "agrees", "in part", "differs" or "not recorded".
    """
    study = _Study(found, result)
    rows = []
    for source, published, measure in _CLAIMS:
        try:
            measured, verdict = measure(study)
        except UsageError as missing:
            measured, verdict = str(missing), OPEN
        rows.append({"source": source, "published": published} | {
            "measured": measured, "verdict": verdict})  # fmt: skip
    return pd.DataFrame(rows)


def _sized(direction: bool, size: bool) -> str:
    """Returns the verdict on a claim of a size, by whether direction and size are as published."""
    return DIFFERS if not direction else AGREES if size else PARTLY


def _beside(kernel: str) -> Callable[[_Study], _Told]:
    """Returns what compares each published speedup of a kernel."""

    def measure(study: _Study) -> _Told:
        rows = study.pull[study.pull["kernel"] == kernel].dropna(subset="published_speedup")
        if rows.empty:
            return f"no published shape of {kernel} is recorded", OPEN
        told = ", ".join(
            f"{r.workload}: {r.speedup:.2f} ({r.published_speedup:.2f} published)"
            for r in rows.itertuples()
        )
        published = np.log(rows["published_speedup"])
        off = np.abs(np.log(rows["speedup"]) - published)
        alike = off <= np.maximum(_ALIKE, published.abs() / 2)
        return told, AGREES if alike.all() else PARTLY if alike.any() else DIFFERS

    return measure


def _of_pair(study: _Study, family: str) -> tuple[pd.DataFrame, str]:
    """Returns rows of the pair, or of its scales where the cast is not recorded, and which."""
    rows = study.pull[study.pull["family"].str.contains(family)]
    pair = rows[rows["kernel"] == speedups.PAIR]
    return (pair, "pair") if len(pair) else (rows[rows["kernel"] == SCALES], "scales launch alone")


def _changes(rows: pd.DataFrame) -> str:
    told = ", ".join(f"{r.workload} {1 / r.speedup - 1:+.1%}" for r in rows.itertuples())
    return told or "not recorded"


def _deepseek(study: _Study) -> _Told:
    rows, which = _of_pair(study, "DeepSeek")
    reduction = study.pull[(study.pull["kernel"] == REDUCTION)
                           & study.pull["family"].str.contains("DeepSeek")]  # fmt: skip
    every = pd.concat([rows, reduction])
    told = f"time with the expanded space, {which}: {_changes(rows)}; reduction: "
    slower = every["high"] < 1 / (1 + LOSS)
    alike = 1 / every["speedup"] - 1 >= 0.15 / _FACTOR
    verdict = _sized(slower.any(), (slower & alike).any())
    return told + _changes(reduction), _halved(study, every, verdict)


def _halved(study: _Study, rows: pd.DataFrame, verdict: str) -> str:
    """Returns a verdict on the pair by some rows, with what is missing; without rows, none."""
    if rows.empty:
        return OPEN
    return verdict if (study.pull["kernel"] == speedups.PAIR).any() else verdict + HALF


def _sixteen_b(study: _Study) -> _Told:
    rows, which = _of_pair(study, "16B")
    faster, less = (rows["low"] > 1).all(), 1 - 1 / rows["speedup"]
    verdict = _sized(faster, less.between(0.056, 0.115).all())
    return f"{which}: {_changes(rows)}", _halved(study, rows, verdict)


def _eight_configs(study: _Study) -> _Told:
    rows = study.lists[study.lists["list"].eq("pr3952_first")]
    rows = rows[rows["kernel"].isin([SCALES, CAST])]
    if rows.empty:
        return "no such list was tuned", OPEN
    worst, gain = rows["naive_worst"].max(), rows["naive_true_gain"].max()
    told = f"{len(rows)} launches, each by itself: worst loss {worst:.1%}, largest gain {gain:.1%}"
    return told, _halved(study, rows, _sized(worst > LOSS, worst >= 0.18 / _FACTOR))


def _groups(study: _Study) -> _Told:
    table = study.regrets(JAGGED, "pr3952", ("GROUPS", "SKEW"))
    groups = [table[side].str.split("x").str[2].astype(int) for side in ("tuned", "workload")]
    table = table[(groups[0] == 1) & (groups[1] == 64)]
    if table.empty:
        return "no shape is recorded with 1 and 64 groups", OPEN
    told = ", ".join(f"{r.kernel} {r.workload} {r.regret:+.1%}" for r in table.itertuples())
    worst = table["regret"].max()
    return told, _sized((table["regret"] > LOSS).all(), worst >= 0.19 / _FACTOR)


def _experts(study: _Study) -> _Told:
    shared = {}
    for name in ("", WIDE):
        # The cast's key names no argument: what it shares says nothing of the experts.
        table = study.regrets([k for k in WEIGHTS if k != CAST], name, ())
        table = table[table["shares_original"]]
        experts = [table[at].str.split("x").str[0].astype(int) for at in ("tuned", "workload")]
        shared[name] = table[(experts[0] == 1) & (experts[1] > 1)]
    if not len(shared[""]):
        return "no two shapes share torchao's key", OPEN
    worst = {name: table["regret"].max() for name, table in shared.items()}
    told = f"published lists: at most {worst['']:+.1%}; wide spaces: up to {worst[WIDE]:+.0%}"
    seen = [value > LOSS for value in worst.values()]
    return told, AGREES if all(seen) else PARTLY if any(seen) else DIFFERS


def _tile(study: _Study) -> _Told:
    gains = fences.tile_gains(study.found)
    if gains.empty:
        return "no scales of atomics are recorded", OPEN
    ends = gains.groupby("semantics")["gain"].agg(["min", "max"])
    told = "; ".join(
        f"{name}: {end['min']:+.1%} to {end['max']:+.1%}" for name, end in ends.iterrows()
    )
    gained = (gains["low"] > 0).groupby([gains["semantics"], gains["workload"]]).first()
    fenced, relaxed = gained["acq_rel"], gained["relaxed"]
    if not relaxed.any():
        return told, AGREES if fenced.any() else DIFFERS
    return told, DIFFERS if (relaxed >= fenced).all() else PARTLY


def _duplicates(study: _Study) -> _Told:
    counts = same_launch.distinct_counts(study.found)
    counts = counts[counts["configs"] > 3].drop_duplicates(["kernel", "configs"])
    if counts.empty:
        return "no list of so many configs is recorded", OPEN
    wanted = [
        _OTHERWISE.get((r.kernel, r.configs), _PROGRAMS.get(r.configs))
        for r in counts.itertuples()
    ]
    pairs = sorted(set(zip(counts["configs"], counts["launches"], strict=True)))
    told = ", ".join(f"{a} to {b}" for a, b in pairs)
    same = counts["launches"].to_numpy() == np.array(wanted, dtype=object)
    return told, AGREES if same.all() else PARTLY if same.any() else DIFFERS


def _large_tiles(study: _Study) -> _Told:
    ratios = []
    for x in (x for x in study.found if x.kernel in JAGGED):
        large, best = (judged_draws(x, picks(x, positions(x, n)), resamples=1)[0]
                       for n in (_WITHOUT_ORIGINAL, WIDE))  # fmt: skip
        ratios.append(large / best)
    if not ratios:
        return "no jagged kernel is recorded", OPEN
    told = f"{min(ratios):.2f} to {max(ratios):.2f} times on {len(ratios)} shapes"
    inside = [1.9 / _FACTOR <= r <= 2.9 * _FACTOR for r in ratios]
    return told, AGREES if all(inside) else PARTLY if any(inside) else DIFFERS


def _route(study: _Study) -> _Told:
    tuned = study.routes[study.routes["list"] == WIDE]
    tuned = tuned[tuned["route"] == "copy, then scale"]
    if tuned.empty:
        return "no shape is recorded in both layouts", OPEN
    told = ", ".join(f"{r.shape}: {1 / r.ratio:.2f} times as fast" for r in tuned.itertuples())
    gained = (1 / tuned["ratio"]).between(1.06, 1.19).all()
    return f"both tuned, {told}", _sized((tuned["high"] < 1).all(), gained)


def _cold(study: _Study) -> _Told:
    table = tunings.cold_seconds(study.result)
    rows = table[(table["list"] == "pr3952") & table["kernel"].isin(WEIGHTS)]
    if rows.empty:
        return "no such list was tuned", OPEN
    total = (rows["compile_s"] + rows["naive_s"]).mean()
    told = (
        f"{total:.1f} s against {rows['single_s'].mean():.2f} s for one config, a launch's own "
        f"compiling and timing only; guarded "
        f"{(rows['guarded_compile_s'] + rows['guarded_s']).mean():.1f} s"
    )
    ratio = total / rows["single_s"].mean()
    alike = 1 / _FACTOR <= ratio / (4.4 / 1.9) <= _FACTOR
    return told, AGREES if alike else PARTLY if ratio > 1 else DIFFERS


def _curse(study: _Study) -> _Told:
    rows = study.lists[~study.lists["list"].str.contains(f"{WIDE}|{_WITHOUT_ORIGINAL}")]
    rows = rows.dropna(subset="naive_apparent_gain")
    if rows.empty:
        return "nothing was tuned", OPEN
    illusory = (1 + rows["naive_apparent_gain"]) / (1 + rows["naive_true_gain"]) - 1
    lost = int(rows["naive_regressions"].sum())
    told = (
        f"{len(rows)} lists that hold the original config: apparent gains exceed true ones by "
        f"{illusory.median():.2%} in the median, {illusory.max():.1%} at most; true regressions "
        f"in {lost} of {len(rows) * int(study.result['repeats']):,} tunings, judged by another "
        f"visit {int(rows['other_naive_regressions'].sum())}"
    )
    return told, AGREES if lost == 0 else DIFFERS


_CLAIMS: tuple[tuple[str, str, Callable[[_Study], _Told]], ...] = (
    ("#3952, MI300X", "atomic pair 1.50 to 1.59 times as fast with 24 configs",
     _beside(speedups.PAIR)),
    ("#3952, MI300X", "reduction 2.1 to 2.2 times as fast at E = 1, 1.04 to 1.21 beyond",
     _beside(REDUCTION)),
    ("#3952, MI300X", "jagged rowwise 1.00 to 1.05 times as fast with 16 configs",
     _beside(ROWWISE)),
    ("#3952, MI300X", "jagged colwise 1.18 to 1.20 times as fast with 16 configs",
     _beside(COLWISE)),
    ("#3952", "without groups in the key, 64 groups are 19 % slower", _groups),
    ("#3952, H100", "the first 8 configs make the atomic pair 18 % slower", _eight_configs),
    ("#3952, MI300X", "the copy to tokens first and colwise are 1.06 to 1.19 times as fast as "
     "rowwise at once", _route),
    ("#4024, text", "about 15 % slower on DeepSeek shapes", _deepseek),
    ("#4024, table", "5.6 to 11.5 % less time on DeepSeek-MoE-16B shapes", _sixteen_b),
    ("#4024", "a cold start takes 4.4 s instead of 1.9 s", _cold),
    ("#4069, MI300X", "the tiles of #3972 take 1.9 to 2.9 times as long as the best",
     _large_tiles),
    ("inference", "the 256-wide tile wins for fenced atomics only", _tile),
    ("inference", "E missing from the key makes the pick of E = 1 regress at larger E", _experts),
    ("inference", "noise alone gives illusory gains, not losses of 15 %", _curse),
    ("counted", "8 to 4, 16 to 8, 24 to 12, 36 to 12 or 18, 45 to 15 programs", _duplicates),
)  # fmt: skip

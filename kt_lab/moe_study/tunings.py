"""E4, E5 and E9: the default tuner and the guarded one, many times over, and what they cost.

The tunings themselves are those of `kt_lab.evidence.tuners`; stored results are used where they
exist, so that the notebook and the command tell the same numbers.
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from kt_lab.errors import UsageError
from kt_lab.evidence import tuners
from kt_lab.evidence.tuners import STORED, read_table
from kt_lab.landscape import REFERENCE_GPU, data_directory

_TOLD = ("tunings", "agreement", "regressions", "regressing", "regressing_high", "worst", "kept")
_READ = ("apparent_gain", "confirmed_gain", "true_gain", "entropy_bits")


def tunings(
    *,
    shapes: Sequence[str] | None = None,
    gpu: str = REFERENCE_GPU,
    repeats: int = 20,
    seed: int = 0,
    workers: int | None = None,
    stored: bool = True,
) -> dict[str, Any]:
    """Returns the result of `kt-lab evidence repeated`, stored or computed now.

    Args:
        shapes: Keys of the workloads that are tuned where they are computed; None: all that are
            recorded, which takes minutes.
        gpu: Short name of the GPU.
        repeats: Tunings per list and tuner, where they are computed.
        seed: Fixes every draw.
        workers: Processes; None: one per core.
        stored: Whether the stored result is used, where there is one; it has every shape.

    Returns:
        As `kt_lab.evidence.tuners.run`, with `stored`: whether it was read from the file.

    Raises:
        UsageError: What is stored is of another GPU.
    """
    path = data_directory() / "evidence" / STORED
    if stored and path.exists():
        result = json.loads(path.read_text()) | {"stored": True}
        if others := set(per_list(result)["gpu"]) - {gpu}:
            raise UsageError(
                f"the stored tunings must be of the GPU that is asked for, got gpu={gpu!r} and "
                f"stored ones of {', '.join(sorted(others))}; compute them: stored=False"
            )
        return result
    asked = argparse.Namespace(
        kernels=None,
        workloads=None if shapes is None else list(shapes),
        gpu=gpu,
        repeats=repeats,
        seed=seed,
        workers=workers,
    )
    return tuners.run(asked) | {"stored": False}


def per_list(result: dict[str, Any]) -> pd.DataFrame:
    """Returns one row per shape and list.

    Columns: kernel, workload, gpu, list, configs, programs, seconds of compiling, and of each
    tuner, as `kt_lab.evidence.repeated.compare_tuners` names them, naive_* and guarded_*; other_*
    is judged by a visit that no tuning read.
    """
    table = read_table(result["table"])
    kernel = table["workload"].str.partition("/")
    return table.assign(kernel=kernel[0], workload=kernel[2])


def totals(result: dict[str, Any]) -> pd.DataFrame:
    """Returns the tunings of lists together, one row per group of lists and tuner.

    Returns:
        lists ("as published", "wide", "with the incumbent", then sizes: "8", "8, distinct",
        "24, fenced"), tuned (lists in it), tuner, judged_by ("same visits": truth over what was
        read; "another visit"),
        tunings, agreement, entropy_bits, apparent_gain, confirmed_gain, true_gain, kept,
        regressions, regressing (share of lists with one), regressing_high (its 95 % limit over
        lists: repeats share a recording), worst (largest true loss), timing_ratio
        (guarded / naive, geometric mean).
    """
    rows = []
    for total in result["totals"]:
        about = {"lists": total["lists"], "tuned": total["tuned"]}
        ratio = total["timing_ratio"]["geomean"]
        for prefix, judged_by in (("", "same visits"), ("other_", "another visit")):
            for tuner in (tuners.NAIVE, tuners.GUARDED):
                told = total.get(f"{prefix}{tuner}", {})
                if told:
                    known = {name: told.get(name) for name in (*_TOLD, *_READ)}
                    row = {"tuner": tuner, "judged_by": judged_by, **known}
                    rows.append({**about, **row, "timing_ratio": ratio})
    return pd.DataFrame(rows).astype(dict.fromkeys(_READ, float))


def by_size(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the totals of the published lists by their size, from `totals`.

    Adds size (configs, as published), fenced and distinct (without duplicates).
    """
    sizes = table[table["lists"].str.match(r"\d")]
    size = sizes["lists"].str.extract(r"^(\d+)")[0].astype(int)
    fenced = sizes["lists"].str.contains("fenced")
    distinct = sizes["lists"].str.endswith(tuners.DISTINCT)
    sizes = sizes.assign(size=size, fenced=fenced, distinct=distinct)
    return sizes.sort_values(["fenced", "size", "distinct"], kind="stable").reset_index(drop=True)


def cold_seconds(result: dict[str, Any]) -> pd.DataFrame:
    """Returns what a tuning costs in a fresh process, per shape and list, and for one config.

    Returns:
        kernel, workload, gpu, list, configs, programs, single_s (compiling the one original
        config), compile_s (the list, one after the other, as `triton.autotune` does it), naive_s
        (its timing), guarded_compile_s (the list on 16 lanes), guarded_s (the guarded tuner's
        timing), naive_ratio and guarded_ratio (all seconds over single_s).
    """
    table = per_list(result)
    about = ["kernel", "workload", "gpu", "list", "configs", "programs"]
    told = table[about].assign(
        single_s=table["single_compile_s"],
        compile_s=table["compile_s"],
        naive_s=table["naive_timing_s"],
        guarded_compile_s=table["lanes_compile_s"],
        guarded_s=table["guarded_timing_s"],
    )
    naive, guarded = told["compile_s"] + told["naive_s"], told["guarded_compile_s"]
    guarded = guarded + told["guarded_s"]
    return told.assign(
        naive_ratio=naive / told["single_s"], guarded_ratio=guarded / told["single_s"]
    )


def families(result: dict[str, Any]) -> pd.DataFrame:
    """Returns what a family's config costs on other families, with and without a duel there.

    Returns:
        As `kt_lab.evidence.families.crossed_families`, only where tuned and ran differ.
    """
    if len(result["families"]) < 2:
        return pd.DataFrame(columns=["kernel", "gpu", "list", "tuned", "ran"])
    table = read_table(result["families"])
    return table[table["tuned"] != table["ran"]].reset_index(drop=True)


def regressed(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of `families` in which anything regressed, and below them all together.

    The last row sums the cases and regressions of all rows, also of those that are left out, and
    has the mean of `accepted` over cases and the worst of the worst.
    """
    if table.empty:
        return table
    some = table[(table["loss_regressions"] > 0) | (table["guarded_regressions"] > 0)]
    sums = table[["cases", "loss_regressions", "guarded_regressions"]].sum()
    total = dict.fromkeys(("gpu", "list", "tuned", "ran"), "") | {
        "kernel": f"all {len(table)} rows",
        **sums,
        "accepted": (table["accepted"] * table["cases"]).sum() / sums["cases"],
        **table[["loss_worst", "guarded_worst"]].max(),
    }
    return pd.concat([some, pd.DataFrame([total])], ignore_index=True)


def cold_by_list(result: dict[str, Any]) -> pd.DataFrame:
    """Returns the means of `cold_seconds` over shapes, one row per list, small lists first.

    Lists without their duplicates and those with fenced atomics are left out: they are variants
    of lists that are there.
    """
    table = cold_seconds(result)
    kept = ~table["list"].str.endswith((tuners.DISTINCT, tuners.FENCED))
    means = table[kept].groupby("list").mean(numeric_only=True).reset_index()
    return means.sort_values("configs", kind="stable").reset_index(drop=True)

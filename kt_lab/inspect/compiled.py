"""Cross-compiling a whole space in worker processes, each specialisation once."""

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kt_lab.errors import UsageError, install
from kt_lab.inspect.inspection import Inspection, columns_of
from kt_lab.inspect.targets import THREADS, Target, get_target
from kt_lab.runners.gpu.compiling import ENVIRONMENT, one_line
from kt_lab.runners.gpu.planning import Plan, planner
from kt_lab.runners.workers import Outcome, Workers, usable_cores
from kt_lab.space import ParameterSpace
from kt_lab.trial import OK
from kt_lab.workload import Subject

TIMEOUT_S = 300.0  # of one compilation; the slowest known takes seconds
_SERVICE = "kt_lab.runners.gpu.compiling:compile_service"
_TEXTS = ("specialisation", "grid", "status", "error", "code_hash")
_COUNTS = ("registers", "spills", "stack_bytes", "shared_bytes", "threads")
_COUNTS += ("agprs", "sgprs", "sgpr_spills")  # of AMD's
_OWN = ("config", *_TEXTS, "compile_s", *_COUNTS, "duplicate_of")  # of the table, index first


def inspect_space(
    subject: Subject,
    space: ParameterSpace,
    *,
    target: Target | str = "sm_90",
    rows: np.ndarray | None = None,
    sms: int | None = None,
    workers: int | None = None,
    cache: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Inspection:
    """Compiles every config of a space for one target; needs Triton, but no GPU.

    A config that cannot be planned, does not compile, hangs the compiler or ends its process is
    a status. On AMD a kernel that holds PTX does not compile, num_stages means another pipeline,
    and tensors are taken to be under 2 GiB, as Triton then addresses them.

    Args:
        subject: The workload and its device code, `kt_lab.kernels.subject(...)`.
        space: Its search space.
        target: A Target or the name of one in TARGETS.
        rows: Value indices of the configs to compile, shape (n, parameters); None: all.
        sms: Multiprocessors that grids are made for; None: those of the target's GPU.
        workers: Compile processes; None: one for every core that this process may use.
        cache: Folder of Triton's cache; None: $TRITON_CACHE_DIR or Triton's own.
        on_progress: Called with (specialisations done, in all).

    Raises:
        SpaceError: A row is no member, or the space is too large to be listed.
        UsageError: The target is unknown, or Triton is not installed.
    """
    target = get_target(target)
    space = space if rows is None else space.only(rows)
    began = time.perf_counter()
    with compilers(target, workers=workers, cache=cache) as compiling:
        sms = sms or target.sms
        plan = planner(subject, space, sms=sms)
        configs = space.configs(space.enumerate())
        planned = [_planned(plan, config) for config in configs]
        keys = [told.get("specialisation") for told in planned]
        todo = {key: config for key, config in zip(keys, configs, strict=True) if key}
        for key, config in todo.items():
            task = {"subject": subject, "config": dict(config), "sms": sms}
            compiling.submit(key, task, timeout_s=TIMEOUT_S)
        found: dict[str, dict[str, Any]] = {}
        while compiling.pending:
            key, outcome = compiling.next()
            found[key] = judged(outcome, target)
            if on_progress:
                on_progress(len(found), len(todo))
    records = [
        {**told, **found.get(key, {}), **columns_of(config, beside=_OWN)}
        for config, key, told in zip(configs, keys, planned, strict=True)
    ]
    return Inspection(target, space, _table(records, space), time.perf_counter() - began)


@contextmanager
def compilers(target: Target, *, workers: int | None, cache: Path | None) -> Iterator[Workers]:
    """Starts compile processes for a target; ends them afterwards.

    Args:
        target: What to compile for.
        workers: How many; None: one for every core that this process may use.
        cache: Folder of Triton's cache; None: as the environment says.
    """
    if missing := [m for m in ("torch", "triton") if importlib.util.find_spec(m) is None]:
        raise UsageError(
            f"inspection needs torch and triton, got no {' and no '.join(missing)}; "
            f"{install('gpu')}"
        )
    env = ENVIRONMENT | {"OMP_NUM_THREADS": "1"}
    if cache is not None:
        env["TRITON_CACHE_DIR"] = str(Path(cache).resolve())
    count = usable_cores() if workers is None else workers
    with Workers(count, service=_SERVICE, settings=target.compiler, env=env) as compiling:
        yield compiling


def judged(outcome: Outcome, target: Target) -> dict[str, Any]:
    """Returns the facts of one compilation, with what the target cannot launch as a failure."""
    facts: Mapping[str, Any] = outcome.value or {
        "status": "compile_error" if outcome.kind == "error" else outcome.kind,
        "error": outcome.error,
        "wall_s": outcome.seconds,
    }
    problem = ""
    if facts["status"] == OK:
        for name, unit, most in (
            ("shared_bytes", "bytes of shared memory", target.shared_bytes),
            ("threads", "threads", THREADS),
        ):
            if facts[name] > most:
                problem = f"needs {facts[name]:,} {unit}, {target.name} allows {most:,}"
    verdict = {"status": "launch_error", "error": problem} if problem else {}
    return {**facts, **verdict, "compile_s": facts["wall_s"]}


def _planned(plan: Callable[[Mapping[str, Any]], Plan], config: Mapping) -> dict[str, str]:
    """Returns the specialisation and grid of a config, or why it has none."""
    try:
        found = plan(config)
        return {"specialisation": found.specialisation, "grid": found.grid}
    except Exception as error:  # the kernel's own code: whatever it raises
        return {"status": "launch_error", "error": f"could not be planned: {one_line(error)}"}


def _table(records: list[dict[str, Any]], space: ParameterSpace) -> pd.DataFrame:
    seen: dict[tuple[str, str], int] = {}
    for at, record in enumerate(records):
        if record["status"] == OK:
            first = seen.setdefault((record["code_hash"], record["grid"]), at)
            record["duplicate_of"] = None if first == at else first
    columns = [*columns_of(space.default, beside=_OWN), *_OWN[1:]]
    table = pd.DataFrame(records).reindex(columns=columns).rename_axis("config")
    whole = dict.fromkeys((*_COUNTS, "duplicate_of"), "Int64")
    return table.astype(whole | dict.fromkeys(_TEXTS, object))

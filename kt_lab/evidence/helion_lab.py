"""An operation in Helion's own space, held by this process: bound, with workers, and its race."""

import hashlib
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from kt_lab.evidence.beside_helion import OPERATIONS, execute
from kt_lab.prior import Prior, PriorReading
from kt_lab.runners.workers import usable_cores
from kt_lab.trial import OK, Trial

_FINALISTS = 16  # of a run of ours, timed again
_SHORT_US = 50.0  # see `kt_lab.runners.gpu.protocols.GRAPH_L2`


class HelionLab(ExitStack):
    """One operation bound on the GPU, its space and its workers.

    Attributes:
        op: A name in OPERATIONS.
        bound: Helion's bound kernel.
        inputs: Its arguments.
        space: A `helion_space.HelionSpace`.
        pool: A `helion_pool.Pool`.
        startup_s: Seconds until every worker had started and compiled something.
    """

    def __init__(self, op: str, *, lanes: int | None, purpose: str, share_code: bool = True):
        """Locks the GPU and starts the workers.

        Args:
            op: A name in OPERATIONS.
            lanes: Compile workers; None: usable cores but two.
            purpose: What others who wait for the GPU are told.
            share_code: See `helion_pool.Pool`.
        """
        super().__init__()
        from kt_lab.evidence.helion_kernels import arguments, bound
        from kt_lab.evidence.helion_pool import Pool
        from kt_lab.evidence.helion_space import HelionSpace
        from kt_lab.evidence.side_by_side import Bench, locked

        self.enter_context(locked({"do": purpose, "workload": OPERATIONS[op]}))
        self.op = op
        bench = Bench(OPERATIONS[op])
        kernel = bench.workload.kernel
        self.inputs = arguments(kernel, bench.inputs)
        self.bound = bound(kernel, bench.inputs)
        self.space = HelionSpace(self.bound)
        folder = self.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        lanes = lanes or max(1, usable_cores() - 2)
        how = {"folder": Path(folder), "lanes": lanes, "share_code": share_code}
        self.pool = self.enter_context(Pool(bench.workload.key, **how))
        began = time.perf_counter()
        default = self.space.helion(self.space.space.default)
        for lane in range(lanes):  # until all have started and compiled something
            self.pool.submit(lane, default)
        while self.pool.pending:
            self.pool.next()
        self.startup_s = time.perf_counter() - began

    def facts(self) -> dict[str, Any]:
        """Returns what every run's row tells: startup_s, lanes, size of the space, machine."""
        return {
            "machine": machine(),
            "startup_s": round(self.startup_s, 2),
            "lanes": self.pool.lanes,
            "size": float(math.prod(p.cardinality for p in self.space.space.parameters)),
        }

    def prior(self) -> Prior:
        """Returns what Helion's compiler would try first, for a searcher of ours."""
        key = OPERATIONS[self.op]
        known = [PriorReading(config, None, key, "helion") for config in self.space.seeds]
        return Prior(tuple(known))

    def told(self, trial: Trial) -> tuple:
        """Returns (seconds, status, microseconds, Helion's config, number) of a trial of ours."""
        config = self.space.helion(trial.config) if trial.status == OK else None
        return trial.elapsed_s, trial.status, trial.latency_us, config, trial.proposal.id

    def chosen(self, told: Sequence[tuple]) -> Any:
        """Returns the fastest of a run's best when they are timed again, as Helion's search ends.

        The least of many noisy readings is often a lucky one. Two events around a launch hardly
        tell short kernels apart: those are timed in graphs, where these can be captured.

        Args:
            told: Of trials; see `told`.
        """
        read = sorted((t for t in told if t[1] == OK), key=lambda t: t[2])
        apart = {self.pool.code(config): config for *_, config, _ in reversed(read)}
        best = [config for *_, config, _ in read if apart.get(self.pool.code(config)) is config]
        best = best[:_FINALISTS]
        short = bool(read) and read[0][2] < _SHORT_US
        found = self.pool.fastest(best, timer="graph") if short else None
        return self.pool.fastest(best) if found is None else found


def machine() -> str:
    """Returns what tells one start of a machine with one GPU from another, as a hash.

    Seconds of runs that share it were spent on the same cores; hosts of one kind differ.
    """
    import torch

    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    gpu = torch.cuda.get_device_properties(0).uuid if torch.cuda.is_available() else "none"
    return hashlib.sha256(f"{boot} {gpu}".encode()).hexdigest()[:8]


def race(
    op: str, contenders: Sequence[Mapping[str, Any]], *, rounds: int, left_s: float
) -> dict[str, Any]:
    """Times what runs ended with in alternation in a process of its own.

    Args:
        op: A name in OPERATIONS.
        contenders: name, side and config of each; see `side_by_side.race`.
        rounds: Of blocks, >= 1.
        left_s: Seconds for all of it.

    Returns:
        names; medians_us by timer, one for each name; wrong: why, by name; rounds. Or `error`.
    """
    task = {"do": "race", "workload": OPERATIONS[op], "rounds": rounds, "seed": 0}
    task |= {"contenders": list(contenders), "effort": "quick"}
    answer = execute(task, limit_s=left_s)
    if "error" in answer:
        sys.stderr.write(f"{op}: {answer['error']}\n")
        return {"error": answer["error"]}
    medians = {
        timer: np.median(np.asarray(blocks, dtype=float), axis=0).round(4).tolist()
        for timer, blocks in answer["blocks_us"].items()
        if not isinstance(blocks, str)
    }
    wrong = {c["name"]: c["wrong"] for c in answer["contenders"] if c["wrong"]}
    return {"names": answer["names"], "medians_us": medians, "wrong": wrong, "rounds": rounds}

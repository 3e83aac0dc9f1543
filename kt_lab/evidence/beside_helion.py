"""Helion and kt_lab side by side on one GPU: seconds to a tuned kernel, and how fast it is.

Both tune the same operations, each with its own kernel, space, search and measurements, in
fresh processes with empty caches; wall-clock counts from the start of the process. Crossed runs
exchange search and kernel. In the end all winners of an operation are timed in alternation in one
process on the same inputs: that table decides. Every step has a time limit, and a failure is part
of the result. What was done is stored after each step, and `--resume` goes on from it. The GPU is
the first that CUDA_VISIBLE_DEVICES names: a process each may compare on several.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kt_lab.evidence.helion_tables import flaw, report
from kt_lab.evidence.resuming import as_text
from kt_lab.provenance import provenance

__all__ = ["add_arguments", "report", "run"]

OPERATIONS = {
    "softmax": "softmax/4096x640",
    "int4_gemm": "int4_gemm/1x1x7168x8192",
    "rms_norm": "rms_norm/4096x7168",
    "layer_norm": "layer_norm/8192x5120",
    "swiglu": "swiglu/4096x11008",
    "matmul": "matmul/4096x4096x4096",
    "row_sum": "row_sum/16384x4096",
    "rope": "rope/4x4096x32x8x128",
    "fp8_gemm": "fp8_gemm/4096x4096x4096",
    "bmm": "bmm/64x512x2048x1024",
}
STEPS = ("helion", "ours", "helion_on_ours", "ours_on_helion")
_DEFAULT_OPS = ("softmax", "int4_gemm")  # what the default deadline has room for
_JOBS = "kt_lab.evidence.helion_jobs"
_TRIALS = 100  # where Helion's own run did not say how many configs it tried
# seconds: a step that would get fewer is not begun; none may take more
_LEAST = {"helion": 120, "full": 150, "ours": 40, "helion_on_ours": 40, "ours_on_helion": 90}
_MOST = {"helion": 300, "full": 240, "ours": 240, "helion_on_ours": 240, "ours_on_helion": 300}
_RACE_S = 75
_LOG_BYTES = 4000  # kept of what a step that failed had printed
_ROOT = Path(__file__).resolve().parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to compare, how often, and how long it may take."""
    parser.add_argument("--ops", nargs="+", choices=OPERATIONS, default=list(_DEFAULT_OPS))
    parser.add_argument(
        "--steps", nargs="+", choices=STEPS, default=list(STEPS), help="only these"
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs at quick effort")
    parser.add_argument("--crossed", type=int, default=1, help="seeds of the crossed runs")
    parser.add_argument("--skip-full", action="store_true", help="no run at full effort")
    parser.add_argument("--full-budget-s", type=int, default=90, help="Helion's own time limit")
    parser.add_argument("--searcher", default="lfbo_pattern", help="of kt_lab's part")
    parser.add_argument("--options", type=json.loads, default={}, help="of the searcher, as JSON")
    parser.add_argument("--trials", type=int, help="of kt_lab's part; default: Helion's configs")
    parser.add_argument("--rounds", type=int, default=40, help="of the final race")
    parser.add_argument("--deadline-s", type=float, default=540, help="for the whole command")
    parser.add_argument("--resume", type=Path, help="an earlier result, if there is one")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Runs all steps that fit the deadline; returns them with their winners' races."""
    story = _Story(args)
    for number, op in enumerate(args.ops):
        reserve_s = _RACE_S * (len(args.ops) - number)
        for seed in range(args.seeds):
            _quick(story, args, op, seed=seed, reserve_s=reserve_s)
        if not args.skip_full:
            seconds = {"seconds": args.full_budget_s}
            searching = {"searcher": args.searcher, "options": args.options, **seconds}
            for do, more in (("helion", seconds), ("ours", searching)):
                if do in args.steps:
                    story.step(op, do, seed=0, effort="full", reserve_s=reserve_s, **more)
        story.race(op, rounds=args.rounds)
    story.say("done")
    return story.result


def _quick(
    story: "_Story", args: argparse.Namespace, op: str, *, seed: int, reserve_s: float
) -> None:
    """Does the chosen steps of one seed at quick effort; Helion's comes first."""
    trials = args.trials
    for do in STEPS:
        if do not in args.steps or ("_on_" in do and seed >= args.crossed):
            continue
        ours = {"searcher": args.searcher, "options": args.options, "trials": trials or _TRIALS}
        more = {"helion": {}, "helion_on_ours": {"trials": trials or _TRIALS}}.get(do, ours)
        answer = story.step(op, do, seed=seed, reserve_s=reserve_s, **more)
        if do == "helion":
            trials = trials or answer.get("configs")


class _Story:
    """The steps done so far, stored after each."""

    def __init__(self, args: argparse.Namespace):
        self._began = time.monotonic()
        self._args = args
        resumed = args.resume is not None and args.resume.exists()
        earlier = json.loads(args.resume.read_text()) if resumed else {}
        self.result: dict[str, Any] = {
            "steps": [s for s in earlier.get("steps", []) if s["ok"]],
            "races": earlier.get("races", {}),
            "arguments": {k: v for k, v in vars(args).items() if k not in ("out", "resume")},
            "provenance": provenance(),
        }
        if earlier:  # where and when the steps were done that are not done again
            before = earlier.get("resumed", [])
            self.result["resumed"] = [*before, earlier["provenance"]]

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self._args.deadline_s - (time.monotonic() - self._began)

    def say(self, what: str) -> None:
        """Tells whoever waits how far the run is."""
        sys.stderr.write(f"[{time.monotonic() - self._began:6.1f} s] {what}\n")
        sys.stderr.flush()

    def step(
        self, op: str, do: str, *, seed: int, reserve_s: float, effort: str = "quick", **more: Any
    ) -> dict[str, Any]:
        """Does one step in a process of its own, unless it was done; returns its answer."""
        key = f"{op}/{do}/{effort}/seed{seed}"
        done = next((s for s in self.result["steps"] if s["key"] == key), None)
        if done:
            return done["answer"]
        limit = "full" if do == "helion" and effort == "full" else do
        seconds = min(_MOST[limit], self.left_s - reserve_s)
        if seconds < _LEAST[limit]:
            answer = {"error": f"not begun: {max(0, seconds):.0f} s were left for it"}
        else:
            self.say(f"{key} ...")
            task = {"do": do, "workload": OPERATIONS[op], "seed": seed, "effort": effort} | more
            answer = execute(task, limit_s=seconds)
        self.say(f"{key}: {_told(answer)}")
        facts = {"key": key, "op": op, "do": do, "effort": effort, "seed": seed}
        self.result["steps"].append(facts | {"ok": "error" not in answer, "answer": answer})
        self._store()
        return answer

    def race(self, op: str, *, rounds: int) -> None:
        """Times the winners of an operation's steps in alternation."""
        contenders = [{"name": "torch", "side": "torch", "config": {}}]
        for step in self.result["steps"]:
            if step["op"] == op and step["ok"] and not step["answer"].get("wrong"):
                side = "helion" if step["do"] in ("helion", "ours_on_helion") else "ours"
                name = f"{step['do']}/{step['effort']}/seed{step['seed']}"
                contenders.append({"name": name, "side": side, "config": step["answer"]["config"]})
        if len(contenders) == 1 or self.left_s < 20:
            self.say(f"{op}: no race, {len(contenders) - 1} winners, {self.left_s:.0f} s left")
            return
        task = {"do": "race", "workload": OPERATIONS[op], "rounds": rounds}
        task |= {"contenders": contenders, "seed": 0, "effort": "quick"}
        answer = execute(task, limit_s=max(20.0, self.left_s))
        self.say(f"{op} race: {_told(answer)}")
        self.result["races"][op] = answer
        self._store()

    def _store(self) -> None:
        if out := getattr(self._args, "out", None):
            partial = Path(out).with_name(Path(out).name + ".partial")
            partial.write_text(as_text(self.result))
            partial.replace(out)


def _told(answer: Mapping[str, Any]) -> str:
    if "error" in answer:
        return answer["error"]
    if "names" in answer:
        return f"{len(answer['names'])} contenders timed"
    return f"{answer['wall_s']:.1f} s, {answer['configs']} configs{flaw(answer)}"


# -- one step -------------------------------------------------------------------------------------


def execute(task: dict[str, Any], *, limit_s: float) -> dict[str, Any]:
    """Runs one job in a fresh process with empty caches; returns its answer, or its error.

    Args:
        task: What `helion_jobs` is to do; `seed`, `effort` and `seconds` set Helion's options.
        limit_s: After that many seconds the process and all its children are killed.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        answer, log = Path(folder) / "answer.json", Path(folder) / "log.txt"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", _JOBS, json.dumps(task | {"began": time.time()}), answer],
                env=_environment(task, Path(folder)),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
            try:
                process.wait(timeout=limit_s)
                ended = f"the process ended with exit code {process.returncode}"
            except subprocess.TimeoutExpired:
                ended = f"killed after {limit_s:.0f} s"
            finally:
                _end(process)
        found = json.loads(answer.read_text()) if answer.exists() else {"error": ended}
        if "error" in found:  # what it printed, without where this machine keeps its files
            found["log"] = log.read_text(errors="replace")[-_LOG_BYTES:]
            for name in found.keys() & {"log", "traceback"}:
                found[name] = found[name].replace(folder, "").replace(f"{_ROOT}/", "")
        return found


def _end(process: subprocess.Popen) -> None:
    """Kills what is left of a step's session: workers of a process that died live on otherwise."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            if entry.name.isdigit() and int(after_name[3]) == process.pid:
                os.kill(int(entry.name), signal.SIGKILL)
    process.kill()
    process.wait(timeout=30)


def _environment(task: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Returns the environment of a step: nothing cached, and Helion's settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HELION_")}
    env = kept | {
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)]),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "HELION_CACHE_DIR": str(folder / "helion"),
        "HELION_SKIP_CACHE": "1",
        "HELION_AUTOTUNE_RANDOM_SEED": str(task["seed"]),
        "HELION_AUTOTUNE_EFFORT": task["effort"],
        "HELION_AUTOTUNE_PROGRESS_BAR": "0",
        "HELION_AUTOTUNE_LOG": str(folder / "helion_log"),
    }
    if task["effort"] == "full" and task.get("seconds"):
        env["HELION_AUTOTUNE_BUDGET_SECONDS"] = str(task["seconds"])
    return env

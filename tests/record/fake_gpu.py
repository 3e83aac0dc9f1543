"""Stand-ins for the compile and timing services: they need neither Triton nor a GPU."""

import hashlib
import os
import signal
import time
from pathlib import Path

LATE = 1.5
SLOWER = {"GPU-b": 1.25}  # a card that is not like the others


def compile_service(**settings):  # noqa: ARG001
    return _compile


def _compile(task):
    text = repr(sorted(task["config"].items()))
    digest = int(hashlib.sha256(text.encode()).hexdigest(), 16)
    if digest % 10 == 0:
        return {"status": "compile_error", "error": "E: no", "wall_s": 0.01, "cpu_s": 0.01}
    if digest % 97 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return {
        "status": "ok",
        "error": "",
        "code_hash": f"{digest % 10**6}",
        "shared_bytes": 0,
        "wall_s": 0.01,
        "cpu_s": 0.01,
    }


def cached_service(**settings):  # noqa: ARG001
    """As `compile_service`, where another recording has left all binaries in the cache."""
    return lambda task: _compile(task) | {"wall_s": 0.5 if task.get("fresh") else 0.001}


def failing_service(**settings):  # noqa: ARG001
    return os.kill  # which no task suits


def no_compiler(**settings):  # noqa: ARG001
    raise OSError("no compiler here")


def no_gpu(*, device):
    raise OSError(f"no GPU {device} here")


def lost_gpu(*, device):
    """As `timing_service`, until the tenth reading takes the GPU with it, for good."""
    gone, readings = Path(os.environ["TRITON_CACHE_DIR"]).parent / "gone", []
    if gone.read_text():
        raise OSError(f"GPU {device} is lost")

    def handle(task):
        readings.extend([task] if task["do"] == "measure" else [])
        if len(readings) == 10:
            gone.write_text("since the tenth reading")
            os.kill(os.getpid(), signal.SIGKILL)
        return _time(task)

    return handle


def cold_service(*, device):  # noqa: ARG001
    """As `timing_service`, but it tells of configs that come before their workload is loaded."""
    loaded = set()

    def handle(task):
        if task["do"] == "load":
            loaded.add(task["subject"])
        elif task["do"] == "measure" and task["subject"] not in loaded:
            return {"status": "launch_error", "error": "cold", "seconds": 0.01}
        return _time(task)

    return handle


def timing_service(*, device):  # noqa: ARG001
    return _time


def no_vendor(*, device):  # noqa: ARG001
    """As `timing_service`, but that the vendor's path cannot be timed."""

    def handle(task):
        if task["do"] == "compare":
            raise RuntimeError("operation not permitted when stream is capturing")
        return _time(task)

    return handle


def _time(task):
    if task["do"] == "facts":
        return {
            "gpu": "NVIDIA Test",
            "slug": "other" if os.environ.get("CUDA_VISIBLE_DEVICES") == "GPU-c" else "test",
            "capability": "9.0",
            "sms": 132,
            "copy_bytes_per_s": 4e12,
            "timer_floor_us": 2.0,
            "flush_us": 80.0,
        }
    if task["do"] == "load":
        return {"seconds": 0.0}
    text = repr(sorted(task["config"].items()))
    digest = int(hashlib.sha256(text.encode()).hexdigest(), 16)
    if digest % 53 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if digest % 41 == 0:
        return {"status": "wrong_result", "error": "off", "seconds": 0.01}
    latency = (5.0 + digest % 100) * SLOWER.get(os.environ.get("CUDA_VISIBLE_DEVICES"), 1.0)
    if digest % 7 == 3 and task.get("check"):  # the launches of a first visit are late
        latency *= LATE
    if task["do"] == "compare":
        return {
            "samples_us": [latency] * 5,
            "baseline_us": [9.100000381469727] * 5,
            "baseline": "torch",
        }
    rule, first = task["rule"], task["rule"].first(task["asked"])
    count = first + rule.rest(
        [latency] * first, asked=task["asked"], best_us=task["best_us"], cutoff_us=None
    )
    time.sleep(0.0005)
    return {
        "status": "ok",
        "error": "",
        "samples_us": [latency + 0.01 * i for i in range(count)],
        "registers": 32,
        "spills": 0,
        "shared_bytes": 0,
        "load_s": 0.001,
        "check_s": 0.002,
        "timing_s": 0.003,
    }

"""PyTorch's ways to compute the dojo's operators, timed as its programs are; a process of its own.

    python -m kt_lab.evidence.torch_paths < job.json > answer.json

Eager code writes into preallocated outputs where there is an `out=`; where there is none, or both
exist, the faster one counts. torch.compile gets a function that returns new outputs and one that
writes into given ones, and again the faster counts. A call includes what Python takes to make it,
as it does for whoever uses it.
"""

import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Call = Callable[[], Any]
EPS = 1e-5
_LEAST = 5  # batches that no limit takes away
# Environment of the process: threads that wait do not spin, nothing compiles beside the timing,
# and memory that is freed stays, for what is timed are kernels and not page faults.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",
    "OMP_PROC_BIND": "true",  # as our own programs are timed
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "-1",
}


def _expressions(t) -> dict[str, Callable]:
    """Returns what every operator is in torch: inputs in the program's order to its outputs."""
    f = t.nn.functional

    def attention(x, mask):
        return t.softmax(t.add(mask, x, alpha=0.125), -1)

    def training(x, g, b):
        z, mean, rstd = t.native_batch_norm(x, g, b, None, None, True, 0.1, EPS)
        return mean, rstd, z

    return {
        "multiply": t.mul,
        "add_relu": lambda x, y: t.relu(x + y),
        "bias_gelu": lambda x, b: f.gelu(x + b),
        "row_sum": lambda x: x.sum(1),
        "softmax": lambda x: t.softmax(x, 1),
        "attention_scores": attention,
        "layer_norm": lambda x, g, b: f.layer_norm(x, (x.shape[1],), g, b, EPS),
        "rms_norm": lambda x, g: f.rms_norm(x, (x.shape[1],), g, EPS),
        "batch_norm": lambda x, mean, var, g, b: f.batch_norm(x, mean, var, g, b, False, 0, EPS),
        "batch_norm_training": training,
        "matmul": t.mm,
        "linear_relu": lambda x, w, b: t.relu(f.linear(x, w, b)),
        "conv2d": lambda x, w: f.conv2d(x, w, padding=1),
        "depthwise_conv2d": lambda x, w: f.conv2d(x, w[:, None], padding=1, groups=len(w)),
    }


def _preallocated(t) -> dict[str, Callable]:
    """Returns eager code that writes into outputs: (inputs, outputs) to a call."""
    gelu, norm = t.ops.aten.gelu.out, t.ops.aten.native_batch_norm.out

    def rms_norm(x, g, z):
        t.mul(x, x, out=z)
        r = z.mean(1, keepdim=True).add_(EPS).rsqrt_()
        t.mul(x, r, out=z).mul_(g)

    def batch_norm(x, mean, var, g, b, z):
        kept = x.new_empty(0), x.new_empty(0)
        norm(x, g, b, mean, var, False, 0.0, EPS, out=z, save_mean=kept[0], save_invstd=kept[1])

    def training(x, g, b, mean, rstd, z):
        norm(x, g, b, None, None, True, 0.1, EPS, out=z, save_mean=mean, save_invstd=rstd)

    return {
        "multiply": lambda x, y, z: t.mul(x, y, out=z),
        "add_relu": lambda x, y, z: t.relu_(t.add(x, y, out=z)),
        "bias_gelu": lambda x, b, z: gelu(t.add(x, b, out=z), out=z),
        "row_sum": lambda x, z: t.sum(x, 1, out=z),
        "softmax": lambda x, z: t.softmax(x, 1, out=z),
        "attention_scores": lambda x, m, z: t.softmax(t.add(m, x, alpha=0.125, out=z), -1, out=z),
        "rms_norm": rms_norm,
        "batch_norm": batch_norm,
        "batch_norm_training": training,
        "matmul": lambda a, b, z: t.mm(a, b, out=z),
        "linear_relu": lambda x, w, b, z: t.relu_(t.addmm(b, x, w.T, out=z)),
    }


def paths(t, name: str, given: tuple, outputs: tuple, wanted: tuple[str, ...]) -> dict[str, Call]:
    """Returns the calls that compute an operator, by "path/variant".

    Args:
        t: torch.
        name: Of the operator.
        given: Its inputs, in the program's order.
        outputs: Preallocated, in the program's order; calls of the variant "new" ignore them.
        wanted: Of eager, compiled, autotuned.
    """
    made, into = _expressions(t)[name], _preallocated(t).get(name)

    def write(*arguments):
        results = made(*arguments[: len(given)])
        results = results if isinstance(results, tuple) else (results,)
        for target, result in zip(arguments[len(given) :], results, strict=True):
            target.copy_(result)

    found: dict[str, Call] = {}
    if "eager" in wanted:
        found["eager/new"] = lambda: made(*given)
        if into:
            found["eager/out"] = lambda: into(*given, *outputs)
    for path, mode in (("compiled", None), ("autotuned", "max-autotune")):
        if path in wanted:
            new, out = (t.compile(fn, mode=mode, dynamic=False) for fn in (made, write))
            found[f"{path}/new"] = lambda call=new: call(*given)
            found[f"{path}/out"] = lambda call=out: call(*given, *outputs)
    return found


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Checks and times the paths of one workload, in alternation.

    Args:
        job: `operator`, `extents`, `threads`, `wanted` (paths), `rounds` and `batch_us`.

    Returns:
        `paths`: per name samples_us (one batch each), deviation and error; `torch`, its version.
    """
    import torch as t

    from kt_lab.programs.operators import get_operator

    t.set_num_threads(job["threads"])
    t.set_grad_enabled(False)
    operator = get_operator(job["operator"])
    program = operator.program(job["extents"])
    inputs = operator.inputs(job["extents"])
    expected = operator.expected(inputs)
    shapes = _torch_shapes(job["operator"], job["extents"])
    given = tuple(t.from_numpy(x).reshape(shapes.get(n, x.shape)) for n, x in inputs.items())
    names = [b.name for b in program.of_kind("out")]
    outputs = tuple(t.empty(shapes.get(n, expected[n].shape)) for n in names)
    calls = paths(t, job["operator"], given, outputs, tuple(job["wanted"]))
    rows = {}
    for name, call in calls.items():
        rows[name] = _checked(call, name, outputs, names, expected, operator, job["extents"])
    timed = {n: functools.partial(_batch, calls[n]) for n, row in rows.items() if not row["error"]}
    for name, samples in alternating(timed, job["rounds"], job["batch_us"]).items():
        rows[name]["samples_us"] = samples
    return {"paths": rows, "torch": t.__version__, "threads": t.get_num_threads()}


def _torch_shapes(name: str, extents: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Batch normalisation has images of flat pixels here; torch is given them with two sides."""
    if not name.startswith("batch_norm"):
        return {}
    image = tuple(extents[side] for side in "nchw")
    return {"x": image, "z": image}


def _checked(call, name, outputs, names, expected, operator, extents) -> dict[str, Any]:
    try:
        for output in outputs:
            output.fill_(float("nan"))
        results = call()
    except Exception as wrong:  # what torch.compile refuses is a fact to store
        return failed(wrong)
    if name.endswith("/out"):
        results = outputs
    results = results if isinstance(results, tuple) else (results,)
    found = {n: r.numpy().reshape(expected[n].shape) for n, r in zip(names, results, strict=True)}
    return judged(found, expected, operator.tolerance(extents))


def judged(found: Mapping[str, Any], expected: Mapping[str, Any], allowed: float) -> dict:
    """Returns the row of a path that ran: its deviation, and an error where that is too much."""
    from kt_lab.programs.operators import error

    deviation = error(found, expected)
    wrong = "" if deviation <= allowed else f"deviates by {deviation:.1e}, more than {allowed:.1e}"
    return {"samples_us": [], "error": wrong, "deviation": deviation}


def failed(wrong: Exception) -> dict[str, Any]:
    """Returns the row of a path that did not run."""
    text = str(wrong).strip().partition("\n")[0]
    return {"samples_us": [], "error": f"{type(wrong).__name__}: {text}"[:200]}


def alternating(
    batches: Mapping[str, Callable[[int], float]],
    rounds: int,
    batch_us: float,
    *,
    limit_s: float = math.inf,
) -> dict[str, list[float]]:
    """Times batches in alternation, each after one call that warms up.

    Args:
        batches: Per name what makes so many calls and returns their mean in microseconds.
        rounds: Batches of each.
        batch_us: A batch has as many calls as take at least this long.
        limit_s: What has taken this long gets no more than _LEAST batches.

    Returns:
        Per name the means of its batches, microseconds, `rounds` of them at most.
    """
    counts = {}
    for name, batch in batches.items():
        least = min(batch(1) for _ in range(3))
        least = min(least, batch(max(1, int(batch_us / least))))
        counts[name] = max(1, -int(-batch_us // least))
    samples: dict[str, list[float]] = {name: [] for name in batches}
    for number in range(rounds):
        for name in list(batches) if number % 2 else list(reversed(batches)):
            spent_s = 1e-6 * counts[name] * sum(samples[name])
            if len(samples[name]) < _LEAST or spent_s < limit_s:
                batches[name](1)
                samples[name].append(batches[name](counts[name]))
    return samples


def main(answer: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Answers the job on stdin as JSON on stdout, which nothing else that prints gets into."""
    result = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with np.errstate(all="ignore"):
        json.dump(answer(json.load(sys.stdin)), result)
    result.close()


def _batch(call: Call, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) * 1e6 / count


if __name__ == "__main__":
    main(answer)

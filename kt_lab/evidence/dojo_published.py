"""What PerfDojo's authors report beside what was measured here, as speed-ups like theirs.

Source: Ivanov et al., PerfDojo: Automated ML Library Generation for Heterogeneous Architectures,
SC '25, arXiv 2511.03586. It does not tell its operators' shapes and repetitions in full.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kt_lab.evidence.dojo_tables import means as geomeans
from kt_lab.evidence.markdown import grid
from kt_lab.evidence.tvm_paths import TUNED
from kt_lab.plots.captions import counted

CALLS = (
    "PyTorch's numbers contain the cost of a call from Python, some microseconds, which weighs at "
    "cache size; ours and TVM's are timed in a compiled loop."
)
_ALL = "all"
_NONE = "not reproduced"
_SAME = "znver4"  # as LLVM calls the cores of an MI300A


def published_lines(
    beside_tvm: Mapping[str, Any],
    on_gpu: Mapping[str, Any] | None,
    elsewhere: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Returns the table as Markdown.

    Args:
        beside_tvm: The stored result of `kt-lab evidence tvm`.
        on_gpu: That of `kt-lab evidence triton_programs`, or None.
        elsewhere: Those of `kt-lab evidence tvm` on other CPUs.
    """
    eager, tuned = (_everywhere(beside_tvm, elsewhere, name) for name in ("eager", TUNED))
    rows = [
        ("x86 CPU (MI300A), geomean over PyTorch", "1.56", f"over PyTorch eager: {eager}"),
        ("x86 CPU (MI300A), geomean over TVM", "1.80", f"over tuned TVM: {tuned}"),
        ("Arm CPU (GH200), geomean over PyTorch", "6.65", f"{_NONE}: no Arm CPU"),
        ("Arm CPU (GH200), geomean over TVM", "13.65", f"{_NONE}: no Arm CPU"),
        ("multiply on an MI300A, over PyTorch", "1.62", _on_gpu(on_gpu, "multiply")),
        ("batch normalisation on an MI300A, over PyTorch", "1.12", _on_gpu(on_gpu, "batch_norm")),
        ("multiply, batch normalisation on an MI300A, over TVM", "1.22, 1.76", _NONE),
        ("Snitch (RISC-V), GPU of the GH200", "", _NONE),
    ]
    said = (
        "What PerfDojo's authors report and what is measured here, as speed-ups like theirs "
        "(above 1 is faster; operators and shapes are not the same, and here PyTorch is called "
        "from Python):"
    )
    return f"{said}\n\n{grid(('PerfDojo', 'theirs', 'here'), rows)}"


def complete(result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a result with the rows of the sizes and threads alone that have most workloads.

    What was measured first of a size is no sample of it.
    """
    counts, most = _counts(result)
    rows = [row for row in result["rows"] if counts[row["size"], row["threads"]] == most]
    return dict(result) | {"rows": rows}


def unfinished(result: Mapping[str, Any]) -> list[str]:
    """Returns what is said of each of the sizes and threads that `complete` leaves out."""
    counts, most = _counts(result)
    return [
        f"{n} of {most} of {size} size on {counted(threads, 'thread')} so far, which have no "
        "mean yet"
        for (size, threads), n in counts.items()
        if n < most
    ]


def _counts(result: Mapping[str, Any]) -> tuple[Counter, int]:
    """Returns how many rows there are of each size and threads, and the most."""
    counts = Counter((row["size"], row["threads"]) for row in result["rows"])
    return counts, max(counts.values(), default=0)


def _everywhere(
    result: Mapping[str, Any], elsewhere: Sequence[Mapping[str, Any]], reference: str
) -> str:
    """Returns the speed-ups on this CPU and, apart, on cores of the MI300A's kind."""
    same = [
        f"; on Zen 4, the cores of an MI300A: {_speedups(complete(other), reference)}"
        for other in elsewhere
        if {row["tuning"].get("target", {}).get("mcpu") for row in other["rows"]} == {_SAME}
    ]
    return "".join([_speedups(result, reference), *same])


def _speedups(result: Mapping[str, Any], reference: str) -> str:
    """Returns the geomeans on each number of threads, with intervals."""
    found = [m for m in geomeans(result["rows"], references=(reference,)) if m["group"] == _ALL]
    told = [
        f"{1 / m['ratio']:.2f} [{1 / m['high']:.2f}, {1 / m['low']:.2f}] on "
        f"{counted(m['threads'], 'thread')} ({counted(m['workloads'], 'workload')})"
        for m in found
    ]
    return ", ".join(told) or _NONE


def _on_gpu(result: Mapping[str, Any] | None, kernel: str) -> str:
    """Returns speed-ups over PyTorch eager on the GPU that programs were measured on."""
    from kt_lab.evidence.triton_programs import ratios

    if result is None:
        return _NONE
    table = ratios(result)
    own = table[(table["kernel"] == kernel) & (table["reference"] == "eager")]
    if own.empty:
        return _NONE
    each = ", ".join(
        f"{1 / row.ratio:.2f} ({row.workload.partition('/')[2]})" for row in own.itertuples()
    )
    mean = 1 / np.exp(np.log(own["ratio"]).mean())
    return f"{mean:.2f} on an {result['gpu']}, over PyTorch eager: {each}"

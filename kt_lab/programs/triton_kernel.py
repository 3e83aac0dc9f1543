"""Schedules of an operator as one kernel that the GPU runner tunes like any other.

    kernel = triton_kernel("softmax", workload)
    with GpuRunner(kernel.workloads[0], kernel=kernel) as runner: ...

The choice of the schedule is a parameter beside those that only a launch has: ROWS of a program,
BLOCK of lanes, num_warps, num_stages. The source is a file, because Triton reads it from there; it
is named by the hash of all program texts and of the emitter's version.
"""

import hashlib
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kt_lab.errors import ProgramError
from kt_lab.kernels.row_space import next_power_of_two
from kt_lab.programs.emit_triton import PRELUDE, VERSION, Lowered, emit_triton
from kt_lab.programs.operators import Operator, get_operator
from kt_lab.programs.schedule import replay
from kt_lab.programs.text import to_text
from kt_lab.programs.triton_schedules import triton_schedules
from kt_lab.space import Choice, Constraint, Integer, Parameter, ParameterSpace, PowerOfTwo
from kt_lab.workload import Kernel, Workload

_FLAT, _ROWS = 8192, 16  # rows of a program at most: without lanes, and with
_NARROW, _WIDE = 128, 2048  # lanes of a block at least; by default at most, where it is a loop
_THREAD = 64  # elements of a tile for each thread, at most
_SHARED_BYTES = 227 * 1024  # of an H100 or H200, for the blocks in flight


def triton_kernel(
    operator: Operator | str,
    workload: Workload,
    *,
    schedules: Mapping[str, str] | None = None,
    folder: Path | str | None = None,
) -> Kernel:
    """Returns the kernel of a dojo operator at one shape; writes its device half.

    Args:
        operator: The operator or its name.
        workload: Its shape: named extents.
        schedules: Schedules by name, each an identifier; None: those of `triton_schedules`.
        folder: Where the source goes and must stay as long as the kernel is used; None:
            $KT_LAB_CACHE/programs or ~/.cache/kt_lab/programs.

    Raises:
        ProgramError: A schedule does not lower, or none was found.
    """
    operator = _registered(operator)
    if odd := [each for each in schedules or () if not each.isidentifier()]:
        raise ProgramError(f"a schedule's name must be an identifier, got {', '.join(odd)}")
    start = operator.program(workload.extents)
    schedules = triton_schedules(start) if schedules is None else schedules
    if not schedules:
        raise ProgramError(f"a kernel has at least one schedule that lowers; got {operator.name}")
    programs = {name: replay(start, text) for name, text in schedules.items()}
    lowered = {k: emit_triton(p, name=f"{operator.name}_{k}") for k, p in programs.items()}
    facts = [str(VERSION), *(f"{name}\n{to_text(p)}" for name, p in programs.items())]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("KT_LAB_CACHE") or Path.home() / ".cache" / "kt_lab")
    path = Path(folder or cache / "programs").resolve() / f"{operator.name}_{digest}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_suffix(f".{os.getpid()}.partial")
    partial_path.write_text(_module(operator.name, digest, lowered))
    partial_path.replace(path)
    name = f"{operator.name}_program"
    shape = Workload(name, workload.name, workload.extents, workload.dtype, workload.source)
    tolerance = operator.tolerance(workload.extents)
    return Kernel(
        name=name,
        description=operator.description,
        workloads=(shape,),
        space=partial(launch_space, variants=lowered),
        bytes_moved=partial(_of_extents, operator.bytes_moved),
        flops=partial(_of_extents, operator.flops),
        rtol=tolerance,
        # Of a typical element, not of the largest: a lost tail of a softmax must not hide.
        atol=tolerance * operator.magnitude(workload.extents),
        device=str(path),
    )


def _registered(operator: Operator | str) -> Operator:
    """Returns the operator that a device half finds by its name."""
    known = get_operator(operator if isinstance(operator, str) else operator.name)
    if not isinstance(operator, str) and operator is not known:
        raise ProgramError(
            "the operator of a kernel must be the registered one, which its device half asks for "
            f"by name; got another {operator.name}"
        )
    return known


def launch_space(_: Workload, *, variants: Mapping[str, Lowered]) -> ParameterSpace:
    """Returns the space of schedules and launch parameters.

    Args:
        _: The workload, whose extents are in the kernels already.
        variants: Kernels by the name of their schedule; the first is the default.
    """
    kernels = list(variants.values())
    tiled = [v for v in kernels if v.tiles]
    most = max(map(_most_rows, kernels))
    least = 1 if tiled else min(_NARROW, most)
    parameters: list[Parameter] = [Choice("SCHEDULE", tuple(variants))]
    parameters += [PowerOfTwo("ROWS", least, most, role="tile")]
    if tiled:
        widths = [next_power_of_two(max(v.tiles)) for v in tiled]
        low = min(_NARROW, *widths)
        parameters += [PowerOfTwo("BLOCK", low, max(widths), role="tile")]
    parameters += [PowerOfTwo("num_warps", 1, 32, role="warps")]
    if any(v.looped for v in kernels):
        parameters += [Integer("num_stages", 1, 4, role="stages")]
    lows = {parameter.name: parameter.values[0] for parameter in parameters}
    laws = [law for name, v in variants.items() for law in _laws(name, v, lows)]
    first = next(iter(variants))
    default = {"SCHEDULE": first, **_default(variants[first], lows)}
    return ParameterSpace(tuple(parameters), constraints=tuple(laws), default=default)


def _laws(name: str, variant: Lowered, lows: Mapping[str, int]) -> list[Constraint]:
    width, longest = "1", max(variant.tiles, default=1)
    laws = {f"ROWS <= {_most_rows(variant)}": "a program has no more rows than there are, or 16"}
    if variant.tiles:
        block = next_power_of_two(longest)
        width = f"min(BLOCK, {block})"
        laws[f"BLOCK <= {block}"] = "a block is no longer than the longest row, rounded up"
    elif "BLOCK" in lows:
        laws[f"BLOCK <= {lows['BLOCK']}"] = (
            "without lanes there are no blocks: one value stands for all"
        )
    if variant.kept:
        laws[f"BLOCK >= {next_power_of_two(max(variant.kept))}"] = "what is kept is a whole row"
    laws[f"ROWS * {width} <= {_THREAD * 32} * num_warps"] = "a thread has at most 64 elements"
    laws[f"ROWS * {width} >= 64 * num_warps or num_warps == 1"] = "a thread has two elements"
    if "num_stages" in lows:
        bytes_ = f"(num_stages - 1) * ROWS * {width} * 8 <= {_SHARED_BYTES}"
        deep = f"num_stages <= cdiv({longest}, BLOCK) and {bytes_}"
        law = f"num_stages == 1 or {deep}" if variant.looped else "num_stages == 1"
        laws[law] = "a loop is pipelined no deeper than it runs, in what memory there is"
    return [
        Constraint(f"{name}_{k}", f"SCHEDULE != '{name}' or ({law})", why)
        for k, (law, why) in enumerate(laws.items())
    ]


def _most_rows(variant: Lowered) -> int:
    return min(_ROWS if variant.tiles else _FLAT, next_power_of_two(variant.rows))


def _default(variant: Lowered, lows: Mapping[str, int]) -> dict[str, int]:
    """Returns about 1,024 elements a program, at least four for each of its threads."""
    block = next_power_of_two(max(variant.tiles, default=1))
    block = block if variant.kept else min(block, _WIDE)
    rows = min(_most_rows(variant), max(1, 1024 // block))
    warps = max(1, min(32, rows * block // 128, max(4, rows * block // 1024)))
    found = {"ROWS": rows, "BLOCK": block, "num_warps": warps, "num_stages": 1}
    if not variant.tiles:
        found["BLOCK"] = lows.get("BLOCK", 1)
    return {name: found[name] for name in lows if name in found}


def _of_extents(count, workload: Workload) -> int:
    return count(workload.extents)


def _module(operator: str, digest: str, variants: Mapping[str, Lowered]) -> str:
    listed = "\n".join(
        f'    "{name}": Variant({v.name}, {v.arguments!r}, {v.rows}, {v.tiles!r}, {v.looped}),'
        for name, v in variants.items()
    )
    bound = "make_inputs", "fake_inputs", "reference", "output", "plan", "baseline"
    return "\n".join(
        [
            f'"""Triton from programs of {operator}, by emit_triton {VERSION} of kt_lab."""\n',
            "import triton",
            "import triton.language as tl\n",
            "from kt_lab.programs.triton_device import Half, Variant\n",
            f'SOURCE_HASH = "{digest}"\n\n',
            f"{PRELUDE}\n",
            *(f"{v.text}\n" for v in variants.values()),
            f'_HALF = Half("{operator}", {{\n{listed}\n}})',
            *(f"{name} = _HALF.{name}" for name in bound),
            "",
        ]
    )

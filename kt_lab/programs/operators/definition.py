"""What an operator is: a start program at any extents, its inputs, reference and floors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from string import Template

import numpy as np

from kt_lab.errors import UsageError
from kt_lab.programs.ir import Binary, Call, Expr, Program
from kt_lab.programs.surgery import canonical, extents_above, ops
from kt_lab.programs.text import parse
from kt_lab.workload import Workload

Extents = Mapping[str, int]
Arrays = dict[str, np.ndarray]

# What fills an input: standard normal numbers, and what breaks careless kernels.
CASES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "random": lambda rng, shape: rng.standard_normal(shape, np.float32),
    "large": lambda rng, shape: 100 * rng.standard_normal(shape, np.float32),
    # a power of two: sums of it are exact in every order, so that differences of them vanish
    "equal": lambda _, shape: np.full(shape, 2, np.float32),
    "zeros": lambda _, shape: np.zeros(shape, np.float32),
    "negative": lambda rng, shape: -np.abs(rng.standard_normal(shape, np.float32)),
}


@dataclass(frozen=True)
class Operator:
    """A tensor operation that programs compute.

    Attributes:
        name: Name in the registry.
        description: What it computes, in one sentence.
        template: Text of the start program with $names for extents: every intermediate is
            materialised, one operation stands in each nest, each output is written once.
        reference: Computes the outputs, in float64, from float64 inputs.
        workloads: One whose inputs and outputs fit a core's cache, one that memory holds.
        tiny: Extents for tests, all different where the operation allows it.
        chain: Whether an eager framework runs it as several kernels, which a program fuses.
        derived: Further $names of the template, from the extents.
        reduced: The longest sum that goes into an output element; None: none.
        special: Inputs with a meaning of their own: name to how they are made, in every case.
    """

    name: str
    description: str
    template: str
    reference: Callable[[Arrays], Arrays]
    workloads: tuple[Workload, Workload]
    tiny: Extents
    chain: bool = False
    derived: Callable[[Extents], Extents] | None = None
    reduced: Callable[[Extents], int] | None = None
    special: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = field(
        default_factory=dict
    )

    def program(self, extents: Extents) -> Program:
        """Returns the start program at the named extents (`workload.extents`, `tiny`)."""
        if set(extents) != set(self.tiny) or min(extents.values()) < 1:
            asked = ", ".join(self.tiny)
            raise UsageError(f"{self.name} has the extents {asked}, >= 1; got {dict(extents)}")
        known = {**extents, **(self.derived(extents) if self.derived else {})}
        try:
            text = Template(self.template).substitute(known)
        except (KeyError, ValueError) as error:  # no such name, or a dollar by itself
            names = ", ".join(f"${name}" for name in known)
            raise UsageError(
                f"the template of {self.name} may name {names}; got {error}"
            ) from None
        return canonical(parse(text))

    def inputs(self, extents: Extents, *, case: str = "random", seed: int = 0) -> Arrays:
        """Returns float32 inputs.

        Args:
            extents: Named extents.
            case: A name of CASES.
            seed: Of the random numbers.
        """
        if case not in CASES:
            raise UsageError(f"case is one of {', '.join(CASES)}; got {case!r}")
        rng, taken = np.random.default_rng(seed), self.program(extents).of_kind("in")
        if odd := sorted(set(self.special) - {b.name for b in taken}):
            raise UsageError(f"special of {self.name} names inputs of its program, got {odd}")
        made = {b.name: self.special.get(b.name, CASES[case])(rng, b.shape) for b in taken}
        for b in taken:
            if np.shape(made[b.name]) != b.shape:
                found = np.shape(made[b.name])
                raise UsageError(f"{self.name}: input {b.name} has shape {b.shape}, got {found}")
        return {name: np.asarray(array).astype(np.float32) for name, array in made.items()}

    def expected(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the outputs in float64."""
        return self.reference({k: np.asarray(v, np.float64) for k, v in inputs.items()})

    def checked(self, extents: Extents, *, case: str = "random") -> tuple[Arrays, Arrays]:
        """Returns inputs and expected outputs, or raises UsageError: nothing can be held to them.

        Args:
            extents: Named extents.
            case: A name of CASES.
        """
        inputs = self.inputs(extents, case=case)
        with np.errstate(all="ignore"):
            found = self.expected(inputs)
        outputs = self.program(extents).of_kind("out")
        shapes, given = {b.name: b.shape for b in outputs}, type(found).__name__
        if isinstance(found, Mapping):
            given = {name: np.shape(array) for name, array in found.items()}
        if given != shapes:
            raise UsageError(
                f"the reference of {self.name} returns a dictionary of every output in its shape, "
                f"{shapes}; got {given}"
            )
        found = {name: np.asarray(array, np.float64) for name, array in found.items()}
        largest = {b.name: np.finfo(f"float{b.dtype[1:]}").max for b in outputs}
        for name, array in found.items():
            if not (np.abs(array) <= largest[name]).all():  # NaN is not either
                raise UsageError(
                    "outputs are finite in every case, or no program can be held to them; got not "
                    f"{name} of {self.name} in case {case!r}; make inputs that stay in range by "
                    "special={input: lambda rng, shape: ..}"
                )
        return inputs, found

    def tolerance(self, extents: Extents) -> float:
        """Returns what `error` may reach in float32, whatever the order of the sums.

        1e-5, or 8 eps sqrt(K) where sums of K terms let more rounding errors walk away.
        """
        eps = float(np.finfo(np.float32).eps)
        terms = self.reduced(extents) if self.reduced else 1
        return max(1e-5, 8 * eps * math.sqrt(terms))

    def magnitude(self, extents: Extents) -> float:
        """Returns the mean magnitude of the outputs for random inputs: what an element is like."""
        found = self.expected(self.inputs(extents)).values()
        return min(float(np.mean(np.abs(output))) for output in found)

    def bytes_moved(self, extents: Extents) -> int:
        """Returns the bytes that must move at least: inputs read once, outputs written once."""
        program = self.program(extents)
        return sum(b.bytes for b in (*program.of_kind("in"), *program.of_kind("out")))

    def flops(self, extents: Extents) -> int:
        """Returns the start program's arithmetic: an operator or function counts as one."""
        program = self.program(extents)
        return sum(
            (_steps(op.expr) + (op.kind != "=")) * math.prod(extents_above(program, at))
            for at, op in ops(program)
        )


def error(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """Returns the worst deviation of any output, relative to the largest value of that output.

    A deviation relative to each element would only measure how near to zero elements come.

    Returns:
        At least 0; inf for a value that is not finite or deviates where all must be zero.
    """
    worst = 0.0
    for name, reference in expected.items():
        with np.errstate(invalid="ignore"):
            deviation = float(np.max(np.abs(found[name] - reference)))
        scale = float(np.max(np.abs(reference)))
        if not math.isfinite(deviation) or (scale == 0 and deviation > 0):
            return math.inf
        worst = max(worst, deviation / scale if scale else 0.0)
    return worst


def workload(operator: str, extents: Extents, source: str) -> Workload:
    """Returns a float32 workload named after its extents."""
    name = "x".join(map(str, extents.values()))
    return Workload(operator, name, extents, "float32", source)


def _steps(expr: Expr) -> int:
    if isinstance(expr, Binary):
        return 1 + _steps(expr.left) + _steps(expr.right)
    return 1 + sum(map(_steps, expr.args)) if isinstance(expr, Call) else 0

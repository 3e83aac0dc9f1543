"""Helion's own space and measurements of a kernel in its language, for kt_lab's searchers."""

import itertools
import re
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from helion import exc
from helion.autotuner import config_fragment as fragments
from helion.autotuner import search_algorithms

from kt_lab.constraints import Constraint
from kt_lab.parameters import Choice, Flag, Integer, Parameter, PowerOfTwo
from kt_lab.space import ParameterSpace
from kt_lab.trial import OK, Config, Measurement, Proposal

_BATCH = 256  # more than any searcher asks for at once: Helion compiles a batch in parallel
# elements of all tiles together per thread: Helion draws up to 2048 at random, and its searches go
# on to 32768 from there, where the three tiles of a product count, of which registers hold two
_PER_THREAD = 16 * 2048
_WARP = 32
_STATUS = {"timeout": "timeout", "peer_compilation_fail": "compile_error"}


class HelionSpace:
    """The space of a bound kernel as a ParameterSpace, slot by slot of Helion's flat config.

    Attributes:
        space: One parameter per slot, and per element of a slot that holds a list; block sizes
            and warps with their roles. Its constraints are what Helion holds its own draws to,
            more loosely. Aliases that Helion normalises away stay in it.
        seeds: What Helion's compiler would try first, besides the default.
    """

    def __init__(self, bound: Any):
        """Reads the slots of `bound.config_spec`."""
        self._generation = bound.config_spec.create_config_generation()
        names = {
            at: f"{key}_{position}" if is_sequence else key
            for key, (slots, is_sequence) in self._generation._key_to_flat_indices.items()
            for position, at in enumerate(slots)
        }
        tried = [flat for flat, _ in self._generation.seed_flat_config_pairs()]
        tried.append(self._generation.default_flat())
        self._slots = [
            _Slot(names[at], fragment, [flat[at] for flat in tried])
            for at, fragment in enumerate(self._generation.flat_spec)
        ]
        *offered, default = map(self._encoded, tried)
        parameters = [p for slot in self._slots for p in slot.parameters]
        constraints = _constraints(parameters, bound.config_spec.tensor_numel_constraints)
        self.space = ParameterSpace(parameters, constraints=constraints, default=default)
        self.seeds = [Config(values) for values in offered if self.space.contains(Config(values))]

    def _encoded(self, flat: Sequence[Any]) -> dict[str, Any]:
        pairs = zip(self._slots, flat, strict=True)
        return {name: code for slot, value in pairs for name, code in slot.encode(value).items()}

    def helion(self, config: Config) -> Any:
        """Returns Helion's config; raises its InvalidConfig where it refuses the combination."""
        return self._generation.unflatten([slot.decode(config) for slot in self._slots])


class _Slot:
    """One slot of a flat config: its parameters, and its value in them."""

    def __init__(self, name: str, fragment: Any, tried: Sequence[Any]):
        self._list = isinstance(fragment, fragments.ListOf)
        self._inner = fragment.inner if self._list else fragment
        count = fragment.length if self._list else 1
        self._names = [f"{name}_{i}" for i in range(count)] if self._list else [name]
        self._values = _values(self._inner)
        seen = [v for value in tried for v in (value if self._list else [value])]
        self.parameters = [_parameter(n, self._inner, self._values, seen) for n in self._names]

    def encode(self, value: Any) -> dict[str, Any]:
        values = value if self._list else [value]
        return {n: self._code(v) for n, v in zip(self._names, values, strict=True)}

    def decode(self, config: Config) -> Any:
        found = [config[n] for n in self._names]
        if self._values is not None:
            found = [self._values[code] for code in found]
        return found if self._list else found[0]

    def _code(self, value: Any) -> Any:
        return value if self._values is None else self._values.index(value)


def _values(fragment: Any) -> list | None:
    """Returns what a position stands for; None where values stand for themselves."""
    if isinstance(fragment, fragments.EnumFragment):
        return list(fragment.choices)
    if isinstance(fragment, fragments.PermutationFragment):
        return [list(order) for order in itertools.permutations(range(fragment.length))]
    return None


def _parameter(name: str, fragment: Any, values: list | None, seen: Sequence) -> Parameter:
    """Returns a slot's parameter; what Helion tries first may lie outside of the slot's range."""
    if values is not None:
        return Choice(name, tuple(range(len(values))))
    if isinstance(fragment, fragments.BooleanFragment):
        return Flag(name)
    role = {
        fragments.Category.BLOCK_SIZE: "tile",
        fragments.Category.NUM_WARPS: "warps",
    }.get(fragment.category(), "stages" if name == "num_stages" else None)
    kind = PowerOfTwo if isinstance(fragment, fragments.PowerOfTwoFragment) else Integer
    return kind(name, min(fragment.low, *seen), max(fragment.high, *seen), role=role)


def _constraints(parameters: Sequence[Parameter], sizes: Sequence[Any]) -> list[Constraint]:
    """Returns the laws that Helion shrinks random configs by.

    Args:
        parameters: Of the space.
        sizes: Helion's TensorNumelConstraints: "u0*u2 <= 1048576" is about block sizes 0 and 2.
    """
    blocks = [p.name for p in parameters if p.role == "tile"]
    found = [
        f"{' * '.join(blocks)} <= {_PER_THREAD * _WARP} * {p.name}"
        for p in parameters
        if p.role == "warps" and blocks
    ]
    found += [re.sub(r"\bu(\d+)\b", r"block_sizes_\1", limit.expr_str) for limit in sizes]
    return [Constraint(f"elements_{at}", law) for at, law in enumerate(found)]


class HelionRunner:
    """Measures with Helion's own provider: its precompilation, its worker, its timing.

    What was submitted since the last answer is one batch, compiled in parallel as Helion does.
    """

    live = True

    def __init__(self, bound: Any, args: Sequence[Any], space: HelionSpace):
        """Prepares Helion's provider, which compiles and runs the default config."""
        self._began = time.perf_counter()
        self._space = space
        self._search = search_algorithms["LFBOTreeSearch"](bound, args)  # only to measure with
        self._search._prepare()
        self._search.benchmark_provider.setup()
        self._queue: list[Proposal] = []
        self._ready: deque[tuple[Proposal, Measurement]] = deque()

    @property
    def free(self) -> int:
        """How many more proposals a batch takes."""
        return max(0, _BATCH - len(self._queue))

    @property
    def pending(self) -> int:
        """Proposals that were not answered yet."""
        return len(self._queue) + len(self._ready)

    @property
    def now(self) -> float:
        """Wall-clock seconds since the provider was made."""
        return time.perf_counter() - self._began

    def submit(self, proposals: Sequence[Proposal]) -> None:
        """Queues proposals for the next batch."""
        self._queue += proposals

    def next(self) -> tuple[Proposal, Measurement]:
        """Measures the batch that waits, if no earlier answer is left; returns one answer."""
        if not self._ready:
            self._measure()
        return self._ready.popleft()

    def close(self) -> None:
        """Ends Helion's worker."""
        self._search.benchmark_provider.cleanup()

    def _measure(self) -> None:
        batch, self._queue = self._queue, []
        valid = []
        for proposal in batch:
            try:
                valid.append((proposal, self._space.helion(proposal.config)))
            except exc.InvalidConfig as error:
                told = Measurement("invalid", error=str(error).splitlines()[0][:200])
                self._ready.append((proposal, told))
        results = self._search.benchmark_batch([config for _, config in valid]) if valid else []
        for (proposal, _), result in zip(valid, results, strict=True):
            self._ready.append((proposal, _measurement(result)))


def _measurement(result: Any) -> Measurement:
    compile_s = result.compile_time or 0.0
    if result.perf < float("inf"):
        return Measurement(OK, (result.perf * 1e3,), compile_s=compile_s)
    status = _STATUS.get(result.status, "launch_error")
    return Measurement(status, compile_s=compile_s, error=f"Helion says {result.status}")

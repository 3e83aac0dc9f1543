"""Runs a search class of the real Helion over a space of kt_lab; imports Helion."""

import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import joblib
import numpy as np
import torch
from helion import exc
from helion._compiler.backend import TritonBackend
from helion.autotuner import search_algorithms
from helion.autotuner.benchmark_provider import BenchmarkProvider, BenchmarkResult
from helion.autotuner.config_generation import ConfigGeneration
from helion.autotuner.effort_profile import get_effort_profile
from helion.autotuner.external import UserConfigSpec, _ExternalKernelAdapter
from helion.autotuner.pattern_search import InitialPopulationStrategy, PatternSearch
from helion.runtime.config import Config as HelionConfig

from kt_lab.search.peers.handoff import Measure
from kt_lab.search.peers.helion import HelionOptions
from kt_lab.search.peers.helion_translation import Translation, fragment
from kt_lab.space import ParameterSpace
from kt_lab.trial import Config

_EVOLVING = ("DifferentialEvolutionSearch", "DESurrogateHybrid")
_SIZES = {"RandomSearch": "count"} | dict.fromkeys(_EVOLVING, "population_size")
_ATTEMPTS = 64  # Helion 1.5.1: draws per missing start before it gives up
_ORIGINS = {"Initial": "start", "Random": "start", "Generation": "neighbour", "Polish": "polish"}


@dataclass(frozen=True, kw_only=True)
class Task:
    """One search.

    Attributes:
        space: What is searched.
        algorithm: Name of Helion's class.
        seed: Helion's `autotune_random_seed`.
        options: Effort, starts and how invalid configs are treated.
        seeds: Configs to start from besides the default.
    """

    space: ParameterSpace
    algorithm: str
    seed: int
    options: HelionOptions
    seeds: tuple[Config, ...]


def search(task: Task, measure: Measure) -> None:
    """Runs the whole search; `measure` blocks until what it is given was measured.

    Args:
        task: What to search, and how.
        measure: Takes (config, origin, repetitions), returns microseconds, inf for failures.

    Raises:
        NoConfigFound: Nothing that Helion tried could be measured (of `helion.exc`).
    """
    translation = Translation(task.space)
    kernel = _ExternalKernelAdapter(
        _Spec(translation, invalid=task.options.invalid, uniform=task.options.starts == "uniform"),
        lambda config: _returning(config),
        args := (torch.empty(0),),  # a tensor on the CPU: Helion does not look for a GPU
        device=torch.device("cpu"),
        autotune_random_seed=task.seed,
        autotune_effort=task.options.effort,
        autotune_max_generations=task.options.max_generations,
        autotune_seed_configs=[translation.to_helion(config) for config in task.seeds] or None,
        autotune_benchmark_fn=_retiming(translation, measure, task.options),
        autotune_benchmark_subprocess=False,
        autotune_accuracy_check=False,
        autotune_progress_bar=False,
        autotune_log_level=logging.CRITICAL,
    )
    cls = _screened(search_algorithms[task.algorithm], translation, task.options)
    # Sequential: a forest's probabilities are then summed in one order on every machine.
    with joblib.parallel_config(backend="sequential"):
        running = cls(kernel, args, **_arguments(cls, task, kernel.settings))
        running._benchmark_provider_cls = partial(_Provider, translation, measure, task.algorithm)
        running.autotune(skip_cache=True)


def _arguments(cls: type, task: Task, settings) -> dict:
    """Returns the constructor's arguments: those of the effort profile, and the options'."""
    options = task.options
    arguments = cls.get_kwargs_from_profile(get_effort_profile(options.effort), settings)
    if options.population is not None:
        arguments[_SIZES.get(task.algorithm, "initial_population")] = options.population
    if task.algorithm == "DifferentialEvolutionSearch":
        arguments["immediate_update"] = False  # the adapter would make live Helion's batches of 1
    drawn = options.starts != "helion" or task.algorithm in _EVOLVING
    if drawn and "initial_population_strategy" in arguments:
        arguments["initial_population_strategy"] = InitialPopulationStrategy.FROM_RANDOM
    return arguments


# -- the space, as Helion sees it -----------------------------------------------------------------


class _Backend(TritonBackend):
    """Helion's backend, screening configs by the space's constraints (asked by 1.5 only)."""

    translation: Translation | None = None

    def autotune_config_is_viable(self, config_spec, config) -> bool:  # noqa: ARG002
        return self.translation is None or self.translation.is_member(config)


class _Spec(UserConfigSpec):
    """Helion's view of the space: the fragments of its parameters and nothing else."""

    def __init__(self, translation: Translation, *, invalid: str, uniform: bool):
        space, backend = translation.space, _Backend()
        backend.translation = translation if invalid == "viable" else None
        self.translation, self.uniform = translation, uniform
        self._rejects = invalid == "reject"
        tunables = {p.name: fragment(p, space.default[p.name]) for p in space.parameters}
        super().__init__(backend=backend, user_defined_tunables=tunables)

    def flat_config(self, fn, **more) -> HelionConfig:
        config = super().flat_config(fn, **more)
        if self._rejects and not self.translation.is_member(config):
            raise exc.InvalidConfig("a constraint of the space is broken")
        return config

    def create_config_generation(self, **more) -> ConfigGeneration:
        return _Generation(self, **more)


class _Generation(ConfigGeneration):
    """Helion's generator of configs, told what coded block sizes mean and where to draw from."""

    def block_numel(self, flat_config: list) -> int:
        named = zip(self.config_spec.translation.space.names, flat_config, strict=True)
        values = [self.config_spec.translation.value(name, seen) for name, seen in named]
        return math.prod(values[i] for i in self.block_size_indices)

    def random_flat(self) -> list:
        if not self.config_spec.uniform:
            return super().random_flat()
        translation = self.config_spec.translation
        rng = np.random.default_rng(random.getrandbits(64))
        row = translation.space.sample_rows(1, rng=rng)[0]
        return self.flatten(translation.to_helion(translation.space.config(row.tolist())))


# -- measuring ------------------------------------------------------------------------------------


def _returning(config: HelionConfig) -> Callable[..., HelionConfig]:
    """Returns what stands for a compiled kernel: calling it tells which config it is."""
    return lambda *_: config


class _Provider(BenchmarkProvider):
    """Hands a batch over and takes its latencies."""

    mutated_arg_indices = ()

    def __init__(self, translation, measure, algorithm, *, autotune_metrics, **_):
        self._translation, self._measure, self._metrics = translation, measure, autotune_metrics
        # Of batches that are only "Benchmarking": the first one, then what evolution makes.
        self._origin = "random" if algorithm == "RandomSearch" else "start"

    def setup(self) -> None:
        """Nothing to prepare."""

    def cleanup(self) -> None:
        """Nothing to release."""

    def benchmark(self, configs, *, desc="Benchmarking", **_) -> list[BenchmarkResult]:
        origin = _ORIGINS.get(desc.partition(" ")[0], self._origin)
        self._origin = "mutant"
        self._metrics.num_configs_tested += len(configs)
        requests = [(self._translation.config(config), origin, None) for config in configs]
        milliseconds = [us / 1e3 for us in self._measure(requests)] if requests else []
        return [
            BenchmarkResult(
                config, _returning(config), ms, "ok" if math.isfinite(ms) else "error", None
            )
            for config, ms in zip(configs, milliseconds, strict=True)
        ]


def _retiming(translation: Translation, measure: Measure, options: HelionOptions):
    """Returns Helion's `autotune_benchmark_fn`: re-measures what it is given, in milliseconds."""

    def retime(calls: list[Callable[[], HelionConfig]], **_) -> list[float]:
        configs = [translation.config(call()) for call in calls]
        # One config against itself: there is nothing to compare, so memory answers.
        repetitions = options.rebenchmark_repetitions if len(set(configs)) > 1 else None
        return [us / 1e3 for us in measure([(c, "retime", repetitions) for c in configs])]

    return retime


# -- screening ------------------------------------------------------------------------------------


def _screened(cls: type, translation: Translation, options: HelionOptions) -> type:
    """Returns the class without finalisation, and with 1.5's screening where it has none."""

    class Searching(cls):
        def _final_rebenchmark_top_k(self) -> int:
            return 0  # kt_lab.confirm does it for every searcher alike

    if options.invalid == "reject" or hasattr(cls, "_backend_config_is_viable"):
        return _renamed(Searching, cls)

    class Screening(Searching):
        def make_unbenchmarked(self, flat_values):
            member = super().make_unbenchmarked(flat_values)
            return member if member and translation.is_member(member.config) else None

        def _apply_config_filter(self, configs):
            kept = [i for i, config in enumerate(configs) if translation.is_member(config)]
            return [configs[i] for i in kept], kept

        def _generate_initial_population_flat(self):
            population = super()._generate_initial_population_flat()
            if not issubclass(cls, PatternSearch):
                return population  # Helion 1.5 replaces invalid starts of descents only
            return _refilled(self, population, translation)

    return _renamed(Screening, cls)


def _renamed(made: type, cls: type) -> type:
    made.__name__ = made.__qualname__ = cls.__name__  # Helion reports its class by name
    return made


def _refilled(running: PatternSearch, population: list, translation: Translation) -> list:
    """Replaces invalid starts by unique valid draws, as Helion 1.5.1 does."""
    found: dict[HelionConfig, list] = {}

    def add(flat: list) -> bool:
        canonical, config = running.config_gen.canonicalize_flat(flat)
        if good := translation.is_member(config):
            found.setdefault(config, canonical)
        return good

    if all([add(flat) for flat in population]):
        return population
    target = running.initial_population
    for _ in range(max(_ATTEMPTS, _ATTEMPTS * (target - len(found)))):
        if len(found) >= target:
            break
        add(running.config_gen.random_flat())
    return list(found.values())

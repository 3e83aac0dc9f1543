"""Searchers: ask/tell algorithms that choose what to measure next."""

import importlib
from typing import Any

from kt_lab.errors import UnknownName
from kt_lab.search.peers import PEERS

SEARCHERS = {
    "random": "kt_lab.search.random:RandomSearch",
    "pattern": "kt_lab.search.pattern:PatternSearch",
    "lfbo_pattern": "kt_lab.search.lfbo_pattern:LFBOPatternSearch",
    "lfbo_tree": "kt_lab.search.lfbo_tree:LFBOTreeSearch",
    "differential_evolution": "kt_lab.search.differential_evolution:DifferentialEvolutionSearch",
    "de_surrogate": "kt_lab.search.de_surrogate:DESurrogateSearch",
    "ucb_pattern": "kt_lab.search.ucb_pattern:UCBPatternSearch",
    "tpe": "kt_lab.search.tpe:TPESearch",
    "optuna": "kt_lab.search.optuna_samplers:OptunaSearch",
    "coordinate_descent": "kt_lab.search.coordinate_descent:CoordinateDescent",
    "simulated_annealing": "kt_lab.search.simulated_annealing:SimulatedAnnealing",
    "genetic": "kt_lab.search.genetic:Genetic",
    "greedy": "kt_lab.search.beam:GreedySearch",
    "beam": "kt_lab.search.beam:BeamSearch",
    "annealing": "kt_lab.search.annealing:Annealing",
    "evolution": "kt_lab.search.evolution:Evolution",
    "lfbo": "kt_lab.search.lfbo:LFBOSearch",
    "scout": "kt_lab.search.scout:ScoutSearch",
    "max_q": "kt_lab.search.max_q:MaxQSearch",
}
# They need torch, and so are made by name but not listed.
LEARNERS = {
    "max_q_dqn": "kt_lab.search.deep_q.searcher:MaxQDQNSearch",
    "dqn": "kt_lab.search.deep_q.searcher:DQNSearch",
}


def searchers() -> tuple[str, ...]:
    """Returns the names of the registered searchers, in the registry's order."""
    return tuple(SEARCHERS)


def get_searcher(name: str) -> type:
    """Returns a registered searcher's class; only its own module is imported.

    LEARNERS and peers (`kt_lab.search.peers.PEERS`) are found too, although `searchers()` does not
    list them: they need packages of their own.

    Raises:
        UnknownName: The registry does not hold the name.
    """
    known = SEARCHERS | LEARNERS | PEERS
    if name not in known:
        raise UnknownName("searcher", name, known)
    module, _, attribute = known[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def make_searcher(name: str, space, *, seed: int, budget=None, prior=None, **options: Any):
    """Returns a searcher over `space`, ready to be asked.

    Args:
        name: One of `searchers()`, of LEARNERS, or of a peer.
        space: What the searcher chooses from.
        seed: Fixes every random choice; >= 0.
        budget: The run's Budget; a searcher may plan by it, the loop enforces it.
        prior: What is known beforehand (Prior), or None. `random`, `tpe`, `optuna` and
            `coordinate_descent` make nothing of it.
        options: Fields of the searcher's `Options`.

    Raises:
        UnknownName: No such searcher, or no such option.
        UsageError: An option's value breaks its stated range, or the space is of a wrong kind.
    """
    return get_searcher(name)(space, seed=seed, budget=budget, prior=prior, **options)

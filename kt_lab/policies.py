"""Training one policy on several workloads, apart from playing with it.

policy, curve = train({"softmax": (space, runner), ..}, rounds=8, programs=64, seed=0)
policy.save("policy.safetensors")
make_searcher("max_q_dqn", other, seed=1, policy="policy.safetensors", learning=False)
"""

from collections.abc import Mapping
from typing import Any

from kt_lab.budget import Budget
from kt_lab.errors import UnknownName, UsageError
from kt_lab.provenance import provenance
from kt_lab.search import LEARNERS, make_searcher
from kt_lab.search.deep_q.policy import Policy, encoder_of
from kt_lab.search.max_reward import Epsilon
from kt_lab.trial import CENSORED, OK
from kt_lab.tune import tune_whole

_FALLING = 0.7  # share of the rounds over which random moves become rare


def train(
    arenas: Mapping[str, tuple[Any, Any]],
    *,
    rounds: int,
    programs: int,
    seed: int,
    player: str = "max_q_dqn",
    **options: Any,
) -> tuple[Policy, list[dict[str, Any]]]:
    """Lets one network play on some workloads in turn.

    Args:
        arenas: Spaces, all encoded alike, and their runners, by the name of the workload.
        rounds: Turns of every workload, >= 1; the share of random moves falls from one to the
            next.
        programs: Different configs measured per turn, >= 2; a runner that keeps readings measures
            those of earlier turns for nothing.
        seed: Fixes every random choice.
        player: A name of `kt_lab.search.LEARNERS`.
        options: Of the player.

    Returns:
        The policy, and what every turn came to: round, workload, epsilon, programs, start_us,
        best_us and median_us (microseconds, of those that ran to their end; None for none),
        censored and failed.
    """
    if rounds < 1 or programs < 2 or not arenas:
        raise UsageError(
            "training needs rounds >= 1, programs >= 2 and a workload, got "
            f"rounds={rounds}, programs={programs} and {len(arenas)} workloads"
        )
    _require_learning({name: space for name, (space, _) in arenas.items()}, player, options)
    low = options.get("epsilon_end", 0.05)
    epsilon = Epsilon(options.get("epsilon_start", 1.0), low, _FALLING * rounds)
    learner, curve = None, []
    for n in range(rounds):
        for k, (name, (space, runner)) in enumerate(arenas.items()):
            share = {"epsilon_start": epsilon(n), "epsilon_end": epsilon(n)}
            budget = Budget(trials=programs)
            number = (seed * rounds + n) * len(arenas) + k
            searcher = make_searcher(player, space, seed=number, budget=budget, **options | share)
            searcher.learner = learner
            history = tune_whole(searcher, runner, budget=budget)
            learner = searcher.learner
            curve.append({"round": n, "workload": name, "epsilon": epsilon(n), **_told(history)})
    facts = {
        "player": player,
        "workloads": list(arenas),
        "fingerprints": [space.fingerprint for space, _ in arenas.values()],
        "rounds": rounds,
        "programs": programs,
        "seed": seed,
        "provenance": provenance(),
    }
    return searcher.trained(**facts), curve


def _require_learning(spaces: Mapping[str, Any], player: str, options: Mapping[str, Any]) -> None:
    """Raises before anything is measured where no policy would come of it."""
    if not options.get("learning", True):
        raise UsageError("training needs learning=True, got learning=False; leave it out")
    if player not in LEARNERS:
        raise UnknownName("player that learns", player, LEARNERS)
    facts = {name: (encoder_of(s), s.encode([s.default]).shape[1]) for name, s in spaces.items()}
    if len(set(facts.values())) > 1:
        raise UsageError(
            f"one policy needs spaces that are encoded alike, got encoder and width {facts}; give "
            "them one encoder"
        )


def _told(history) -> dict[str, Any]:
    right = sorted(t.latency_us for t in history if t.latency_us is not None)
    return {
        "programs": len(history),
        "start_us": history[0].latency_us,
        "best_us": right[0] if right else None,
        "median_us": right[len(right) // 2] if right else None,
        "failed": sum(t.status not in (OK, CENSORED) for t in history),
        "censored": sum(t.status == CENSORED for t in history),
    }

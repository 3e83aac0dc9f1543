"""A learned policy at work: its greedy game on one program, move by move."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from kt_lab.programs.schedule import SEPARATOR
from kt_lab.search.deep_q.network import frozen_values, pairs
from kt_lab.search.deep_q.policy import Policy
from kt_lab.trial import Config


def walk_table(
    space: Any, measure: Callable[[Config], float | None], policy: Policy
) -> pd.DataFrame:
    """Plays a policy greedily from the start program and returns its game, move by move.

    Args:
        space: The schedules, encoded as the policy was trained.
        measure: Returns the latency of a config in microseconds, None for a failure.
        policy: A trained policy.

    Returns:
        One row per program: move, latency_us, speedup over the start program and value, what the
        policy expected of the move.
    """
    policy.check(space)
    moves = policy.facts["moves"]
    at, seen, start_us = space.default, {space.key(space.default)}, measure(space.default)
    rows = [{"move": "start", "latency_us": start_us, "speedup": 1.0, "value": None}]
    for n in range(moves):
        near = [c for c in space.neighbours(at) if space.key(c) not in seen]
        if not near:
            break
        offered = pairs(space.encode([at])[0], space.encode(near), n / moves)
        values = frozen_values(policy.weights, offered)
        best = int(values.argmax())
        got = rows[-1]["speedup"]
        worth = math.log2(1 + got) if policy.facts["reward"] == "log" else got
        if n and policy.facts["rule"] == "max" and values[best] < worth:
            break  # stopping is worth more
        move, at = _last(at, near[best]), near[best]
        seen.add(space.key(at))
        found = measure(at)
        speedup = start_us / found if found else 0.0
        rows.append({"move": move, "latency_us": found, "speedup": speedup, "value": values[best]})
        if not found:
            break  # a failure ends the game
    return pd.DataFrame(rows)


def _last(before: Config, after: Config) -> str:
    longer = len(after["schedule"]) > len(before["schedule"])
    return after["schedule"].rpartition(SEPARATOR)[2] if longer else "undo"

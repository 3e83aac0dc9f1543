"""Made-up rows of the dojo's evidence."""

from kt_lab.evidence.dojo_tables import best_so_far


def dojo_row(operator, *, best, eager, chain=False, threads=1, name="1"):
    """A row of `kt-lab evidence dojo` in which torch.compile and the start take twice eager's."""
    times = {"start": 2 * eager, "expert": 1.5 * best, "best": best, "eager": eager}
    times["compiled"] = 2 * eager
    path = {"disturbed": False}
    return {
        "workload": f"{operator}/{name}",
        "operator": operator,
        "threads": threads,
        "chain": chain,
        "size": "cache",
        "paths": {k: path | {"min_us": v, "median_us": v, "p90_us": v} for k, v in times.items()},
        "floor_us": best / 2,
        "floor_by": "copy",
        "schedules": {"expert": "vectorise 0", "best": "vectorise 0"},
        "load": 0.1,
    }


def players_row(player, seed, latencies, *, workload="softmax/1"):
    """A row of `kt-lab evidence players`."""
    return {
        "workload": workload,
        "player": player,
        "seed": seed,
        "start_us": 10.0,
        "points": best_so_far(latencies),
        "programs": len(latencies),
        "failed": 0,
    }

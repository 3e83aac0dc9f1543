"""kt-lab figures: draw the headline study from its stored runs, after checking a sample."""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from kt_lab.commands import require_folder
from kt_lab.store import read_table
from kt_lab.studies import LANES, headline, load_study, stored
from kt_lab.study import apart, draw_all, latency_table, ratio_tables, spot_check


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where the figures go and how many runs are recomputed first."""
    parser.add_argument("--directory", type=Path, default=Path("figures"))
    parser.add_argument("--check", type=int, default=12, help="stored runs to recompute first")
    parser.add_argument("--seed", type=int, default=None, help="chooses them; default: random")


def run(args: argparse.Namespace) -> int:
    """Recomputes a random sample of the stored runs and draws; 1 if one differs that must not."""
    require_folder("--directory", args.directory)
    experiment = headline()
    runs = load_study(experiment)
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    checked = spot_check(experiment, runs, cells=args.check, seed=seed)
    wrong, excused = apart(checked)
    for run in (*wrong, *excused):
        print(f"replay differs from the stored run: {run}: {', '.join(checked[run])}")
    print(
        f"{args.check} of {len(experiment.cells()):,} stored runs recomputed (--seed {seed}): "
        f"{_verdict(wrong, excused)}"
    )
    _, facts = read_table(stored(experiment))
    origin = {
        "runs": f"data/runs/{experiment.name}/{experiment.name}.parquet",
        "study": {k: facts[k] for k in ("searchers", "seeds", "budget", "lanes", "landscapes")},
        "computed_with": facts["provenance"],
    }
    for name, drawing in draw_all(runs, experiment).items():
        paths = drawing.save(name, directory=args.directory, provenance=origin)
        print(f"drew {paths['pdf']}")
    table = latency_table(runs)
    table.to_csv(args.directory / "latencies.csv", index=False)
    print(table.round(2).to_string(index=False))
    for lanes in LANES:
        _print_geomeans(ratio_tables(runs, lanes=lanes), lanes)
    return 1 if wrong else 0


def _verdict(wrong: Sequence[str], excused: Sequence[str]) -> str:
    told = []
    if excused:
        told.append(f"{len(excused)} of Optuna's differ, whose later trials hang on the CPU")
    if wrong:
        told.append(f"{len(wrong)} differ that must not: is this another version of numpy?")
    return "; ".join([*told, "what is drawn are the stored runs"]) if told else "all equal"


def _print_geomeans(tables: dict, lanes: int) -> None:
    for name, table in tables.items():
        means = table[(table["scope"] == "geomean")]
        for row in means.itertuples():
            print(
                f"{lanes:2d} lanes  {name:11s} ratio to {row.reference}: {row.searcher:13s}"
                f" {row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]"
                f" ({row.n_kernels} kernels, {row.n_workloads} workloads, {row.n_seeds} seeds)"
            )

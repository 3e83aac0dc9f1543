"""kt-lab figures: draw the headline study from its stored runs, after checking a sample."""

import argparse
import random
from pathlib import Path

from kt_lab.store import read_table
from kt_lab.studies import LANES, headline, load_study, stored
from kt_lab.study import draw_all, latency_table, ratio_tables, spot_check


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where the figures go and how many runs are recomputed first."""
    parser.add_argument("--directory", type=Path, default=Path("figures"))
    parser.add_argument("--check", type=int, default=12, help="stored runs to recompute first")
    parser.add_argument("--seed", type=int, default=None, help="chooses them; default: random")


def run(args: argparse.Namespace) -> int:
    """Recomputes a random sample of the stored runs, then draws; 1 if any differs."""
    experiment = headline()
    runs = load_study(experiment)
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    checked = spot_check(experiment, runs, cells=args.check, seed=seed)
    different = {run: columns for run, columns in checked.items() if columns}
    for run, columns in different.items():
        print(f"replay differs from the stored run: {run}: {', '.join(columns)}")
    if different:
        print(f"{len(different)} of {args.check} runs differ (--seed {seed}); nothing is drawn")
        return 1
    print(f"{args.check} of {len(experiment.cells()):,} stored runs recomputed, all equal")
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
    return 0


def _print_geomeans(tables: dict, lanes: int) -> None:
    for name, table in tables.items():
        means = table[(table["scope"] == "geomean")]
        for row in means.itertuples():
            print(
                f"{lanes:2d} lanes  {name:11s} ratio to {row.reference}: {row.searcher:13s}"
                f" {row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]"
                f" ({row.n_kernels} kernels, {row.n_workloads} workloads, {row.n_seeds} seeds)"
            )

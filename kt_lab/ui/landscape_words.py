"""What is said of cells, trials and landscapes."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from kt_lab.landscape import Landscape
from kt_lab.plots.captions import counted
from kt_lab.stats.slices import NO_CONFIG, value_text
from kt_lab.trial import OK, Config


def config_lines(config: Mapping[str, Any]) -> list[str]:
    """Returns a config, one parameter a line."""
    return [f"{name} = {value_text(value)}" for name, value in config.items()]


def cell_config(landscape: Landscape, cell: Any) -> Config | None:
    """Returns the config that a row of a slice shows; None: it has none."""
    if pd.isna(cell.config):
        return None
    return landscape.space.config(landscape.space.enumerate()[int(cell.config)])


def cell_tip(landscape: Landscape, cell: Any) -> str:
    """Returns what is told of a cell on hovering: its config, latency with spread, status."""
    config = cell_config(landscape, cell)
    if config is None:
        return f"{NO_CONFIG}\n{cell.x_name} = {cell.x}\n{cell.y_name} = {cell.y}"
    failed = cell.n_configs - cell.n_ok
    said = [
        f"the fastest of {counted(cell.n_configs, 'config')} of this cell"
        + (f", {failed} of them not ok" if failed else "")
    ]
    if cell.status == OK:
        said = [
            f"{cell.latency_us:,.2f} µs, {cell.ratio:.3f} of the optimum",
            f"visits {cell.low_us:,.2f} to {cell.high_us:,.2f} µs",
            *said,
        ]
    else:
        error = landscape.table["error"].get(int(cell.config), "")
        said = [
            f"{cell.status.replace('_', ' ')}: all {counted(cell.n_configs, 'config')} fail",
            *([_short(error)] if error else []),
        ]
    return "\n".join([*said, "", *config_lines(config)])


def reading_line(path: pd.DataFrame, upto: int) -> str:
    """Returns what the last of the first `upto` readings of a path was, in one line."""
    if not upto:
        return f"before the first of {counted(len(path), 'reading')}"
    row = path.iloc[upto - 1]
    found = row["status"].replace("_", " ")
    if row["status"] == OK:
        found = f"{row['latency_us']:,.2f} µs read, {row['ratio']:.3f} of the optimum"
    where = "" if row["inside"] else ", outside the slice"
    best = path["ratio"].iloc[int(row["incumbent"])] if pd.notna(row["incumbent"]) else None
    best = "" if best is None else f"; incumbent {best:.3f}"
    return f"reading {upto} of {len(path)}: {found}{where}{best}"


def run_name(facts: Mapping[str, Any]) -> str:
    """Returns whose run it is, in words: of `facts` or a row of its table."""
    seed = facts.get("seed")
    return str(facts.get("searcher", "a run")) + ("" if seed is None else f", seed {seed}")


def landscape_line(landscape: Landscape) -> str:
    """Returns which landscape it is, in one line."""
    gpu = landscape.manifest.get("facts", [{}])[0].get("gpu", landscape.gpu)
    failed = int((landscape.table["status"] != OK).sum())
    return (
        f"recorded on {gpu}: {counted(landscape.space.size, 'config')}, {failed} failed, "
        f"optimum {landscape.optimum_us:,.2f} µs"
    )


def _short(error: str, most: int = 90) -> str:
    line = error.partition("\n")[0]
    return line if len(line) <= most else line[: most - 1] + "…"

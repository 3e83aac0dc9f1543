"""The questions of a comparison, asked of a table of runs: tidy tables, and drawings of them.

    runs = load_field()
    table = budget_table(runs)
    display_table(table)
    budget_figure(runs, table=table).save("budgets", directory="figures")

Every function takes runs of one lane count. Landscapes are looked up by the workloads' keys among
those that ship, unless they are given.
"""

from kt_lab.comparison.figures import (
    anatomy_figure,
    budget_figure,
    convergence_figure,
    draw_all,
    profiles_figure,
    quality_figure,
    ratio_figure,
    significance_figure,
)
from kt_lab.comparison.requests import compare, names_of, open_runs, request, stored_runs
from kt_lab.comparison.tables import (
    budget_table,
    landscapes_of,
    leaders,
    methodology_table,
    optima_table,
    power_table,
    running_time_table,
    significance_table,
)
from kt_lab.comparison.watching import (
    finished_part,
    incumbent_figure,
    target_figure,
    target_tables,
)
from kt_lab.comparison.words import display_table, table_text

__all__ = [
    "anatomy_figure",
    "budget_figure",
    "budget_table",
    "compare",
    "convergence_figure",
    "display_table",
    "draw_all",
    "finished_part",
    "incumbent_figure",
    "landscapes_of",
    "leaders",
    "methodology_table",
    "names_of",
    "open_runs",
    "optima_table",
    "power_table",
    "profiles_figure",
    "quality_figure",
    "ratio_figure",
    "request",
    "running_time_table",
    "significance_figure",
    "significance_table",
    "stored_runs",
    "table_text",
    "target_figure",
    "target_tables",
]

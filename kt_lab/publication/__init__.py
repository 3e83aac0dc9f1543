"""From a stored study to a paper: every figure, table and caption of it, in one call.

    publish("field", venue="mlsys", directory="paper", workers=2)

Nothing is run: stored runs are read and judged by the landscapes that they replayed. The same
runs give the same csv, json, tex and html bytes, whenever, wherever and by whom they are written.
"""

from kt_lab.publication.publishing import FIGURES, TABLES, publish
from kt_lab.publication.stored import StoredStudy, read_study
from kt_lab.publication.tables import draw_tables

__all__ = ["FIGURES", "TABLES", "StoredStudy", "draw_tables", "publish", "read_study"]

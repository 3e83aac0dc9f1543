"""Durable results: append-only journals while running, Parquet when done; no pickle, no eval."""

from kt_lab.store.journal import Journal, read_journal, repair
from kt_lab.store.sharing import Shared, sweep
from kt_lab.store.tables import read_table, write_table

__all__ = ["Journal", "Shared", "read_journal", "read_table", "repair", "sweep", "write_table"]

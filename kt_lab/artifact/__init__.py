"""Artifacts for evaluation: a study with its data, its code, and the script that recomputes it.

    bundle(["field"], "field-artifact.zip")

The bundle needs nothing but Python and the locked packages: no GPU, no network, no repository.
"""

from kt_lab.artifact.bundling import bundle
from kt_lab.artifact.recomputing import compare_tables, replay_runs

__all__ = ["bundle", "compare_tables", "replay_runs"]

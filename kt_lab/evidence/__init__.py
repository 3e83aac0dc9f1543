"""The measurements behind the claims: each module adds arguments, runs and reports."""

"""Measuring on a real GPU: a pool of compile processes and one isolated timing process."""

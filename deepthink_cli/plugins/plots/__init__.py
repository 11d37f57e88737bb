"""Figures of runs: `deepthink plot`."""

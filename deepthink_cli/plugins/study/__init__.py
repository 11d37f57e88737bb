"""Studies, which are experiments in a file, and `deepthink plot`, which draws the figures of studies and of runs."""

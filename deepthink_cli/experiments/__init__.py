"""Experiments: runs as jobs, where they are done, and the folder of their results."""

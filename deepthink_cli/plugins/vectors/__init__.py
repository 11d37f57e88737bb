"""Iterative vectors: `deepthink vectors`, and what reads their files."""

"""Iterative vectors: `deepthink vectors`, and the use of their files."""

"""Runs: many jobs, with results in a folder that can be resumed."""

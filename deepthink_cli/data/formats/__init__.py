"""Formats of rows: one file for each."""

"""Rows, examples and templates."""

"""Formats of rows."""

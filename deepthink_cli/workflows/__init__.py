"""Workflows: the commands as functions that do not print."""

"""Serve a memory over HTTP from a process that stays."""

"""Queries that are read otherwise than their rows say: several times, or in part."""

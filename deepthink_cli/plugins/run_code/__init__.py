"""Judging answers that are programs, in confined processes."""

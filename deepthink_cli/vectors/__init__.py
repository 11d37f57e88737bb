"""Iterative vectors: what demonstrations change in attention outputs, extracted from rows and added to prompts."""

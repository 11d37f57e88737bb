"""Comparing memories: where they come from, their keys and values, and the labels that they give."""

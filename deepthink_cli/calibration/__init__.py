"""Corrections of scores for a bias toward some labels: the methods, their texts, and their use."""

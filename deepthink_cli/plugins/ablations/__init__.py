"""Ablations of the paper's update."""

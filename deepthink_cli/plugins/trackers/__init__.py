"""Rows of a run in trackio or wandb."""

"""A small model with trained weights, for a first trial without a model hub."""

"""Answers to a file of inputs: `deepthink generate`."""

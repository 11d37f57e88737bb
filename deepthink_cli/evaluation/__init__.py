"""Evaluating a memory: accuracy, probabilities and changes since T = 1, on labelled rows."""

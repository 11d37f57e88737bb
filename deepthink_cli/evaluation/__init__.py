"""The evaluation of a memory on labelled rows: accuracy, probabilities and changes since T = 1."""

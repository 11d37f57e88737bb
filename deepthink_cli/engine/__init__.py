"""Engines: the only code that runs the network, to read demonstrations and to score queries.

Names of tensors end with their dimensions, and shapes in comments use the same letters: R rows, S tokens of a row,
T tokens of a pass as one sequence, L tokens of a memory, H heads of the queries, G heads of the keys and values, D the
size of a head, W the width of hidden states, V the vocabulary, M tokens whose output is used, N requested
log-probabilities; a digit is a size. `ids_RS` is (R, S).
"""

"""The one seam to the network: how a model reads and scores.

Names of tensors end with their dimensions, and shapes in comments use the same letters: R rows, S tokens of a row,
T tokens of a pass in one line, L tokens of a memory, H heads of the queries, G heads of the keys and values, D the
size of a head, W the width of hidden states, V the vocabulary, M tokens that are read off, N log-probabilities
asked for; a digit is a size. `ids_RS` is (R, S).
"""

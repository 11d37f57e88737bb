"""Engines: the only code that runs the network, to read demonstrations and to score queries.

Names of tensors end with their dimensions: `ids_RS` is (R, S). Shapes in comments use the same letters: R rows, S
tokens of a row, T tokens of a pass as one sequence, L tokens of a memory, H heads of the queries, G heads of the keys
and values, D size of a head, W width of hidden states, V vocabulary, M tokens whose output is used, N requested
log-probabilities. A digit is a size.
"""

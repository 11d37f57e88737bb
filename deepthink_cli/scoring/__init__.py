"""The log-probabilities of candidates after a memory, and the predictions that they make."""

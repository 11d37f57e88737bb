"""What is done with memories: `deepthink compose`, `diff` and `quantize`, and `--nearest`, of composed ones."""

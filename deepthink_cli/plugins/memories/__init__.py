"""What is done with memories: `deepthink diff` and `quantize`, and `--nearest`, of composed ones."""

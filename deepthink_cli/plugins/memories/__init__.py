"""What is done with memory files: `deepthink compose`, `diff` and `quantize`."""

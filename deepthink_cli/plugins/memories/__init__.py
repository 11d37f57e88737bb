"""What differs between two memories: `deepthink diff` and `quantize`."""

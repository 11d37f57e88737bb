"""Text after a memory: tokens, answers and dialogue."""

"""lm-evaluation-harness and lighteval with the model `deepthink`."""

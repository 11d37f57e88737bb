"""lm-evaluation-harness: its tasks through Deep-Thinking, as the model `deepthink` (docs/elsewhere.md)."""

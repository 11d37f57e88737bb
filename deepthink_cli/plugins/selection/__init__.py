"""`deepthink select`, and selection methods that read the pool with a model."""

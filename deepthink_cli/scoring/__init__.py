"""From rows to predictions: the pipeline, its steps, and the check of the rows."""

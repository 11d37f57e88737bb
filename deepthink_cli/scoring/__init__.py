"""From rows to the predictions of candidates: one pipeline, and what checks the rows."""

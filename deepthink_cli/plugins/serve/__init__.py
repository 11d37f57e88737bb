"""`deepthink serve`: labels over HTTP."""

"""`deepthink chat`: one question after another, with the whole dialogue in the cache."""

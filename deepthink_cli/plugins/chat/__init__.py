"""`deepthink chat`: one question after another, with everything said so far in the cache."""

"""The choice of demonstrations from a pool of labelled rows: one file a method, one registry."""

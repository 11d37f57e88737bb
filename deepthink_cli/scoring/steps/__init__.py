"""The steps of this package, a file for each."""

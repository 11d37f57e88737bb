"""Labels for inputs: rows of files, streams and folders in, one row for each out, and continuing a file."""

"""Labels for inputs: an output row for each row of a file, a stream or a folder; interrupted files are continued."""

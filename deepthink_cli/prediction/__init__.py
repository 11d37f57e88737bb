"""Labels for inputs: rows of files, streams and folders in, one output row for each, and interrupted files continued."""

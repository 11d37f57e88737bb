"""What is there: the built-in tasks, and the names that options take."""

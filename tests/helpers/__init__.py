"""What several tests use: models, rows, servers and processes."""

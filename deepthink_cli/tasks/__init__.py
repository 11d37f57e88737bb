"""Tasks: definitions in YAML files, and their rows."""

"""Tasks as data: definitions in YAML files, and the rows that they name."""

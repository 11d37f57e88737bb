"""Tasks as data: one YAML file a task or family, what it says, and the rows it names."""

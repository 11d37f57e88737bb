"""Studies: files that cross models, tasks and settings into runs of one folder."""

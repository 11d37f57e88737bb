"""The header of a memory, for people: `deepthink inspect`."""

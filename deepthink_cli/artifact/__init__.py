"""The memory file."""

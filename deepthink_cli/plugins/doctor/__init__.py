"""The facts about this machine: `deepthink doctor`."""

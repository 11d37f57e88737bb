"""Many jobs, in a folder that can be continued."""

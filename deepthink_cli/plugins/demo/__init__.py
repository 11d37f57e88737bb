"""Both stages, on files of the package: `deepthink demo`."""

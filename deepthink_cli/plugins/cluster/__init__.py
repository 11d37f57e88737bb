"""Workers on a Ray cluster, and arrays of SLURM."""

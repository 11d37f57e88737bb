"""Where the units of a run are done: in this process, in worker processes, or on a Ray cluster."""

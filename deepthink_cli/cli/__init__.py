"""The command line: options, progress and reports; the only place that talks to people."""

"""The command line: options, progress and reports; the only package that prints."""

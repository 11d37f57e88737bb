"""Memories in a vLLM server, through its own interface for keys and values (docs/serve.md)."""

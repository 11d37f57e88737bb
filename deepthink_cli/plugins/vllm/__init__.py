"""Memories in a vLLM server."""

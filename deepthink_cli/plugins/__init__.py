"""Plugins: one folder a capability, which enters by the entry points of pyproject.toml (docs/architecture.md)."""

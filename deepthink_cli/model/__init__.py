"""Models before their weights are loaded: configuration, identity, limits, tokens."""

"""A memory in the formats of other programs."""

"""Memories in repositories of the Hugging Face hub."""

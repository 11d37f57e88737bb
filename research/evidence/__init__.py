"""Result folders of `deepthink run` turned into docs/evidence.md."""

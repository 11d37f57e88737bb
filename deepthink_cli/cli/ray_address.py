"""The option --ray, whose address may be missing, which typer has no way to say."""

from __future__ import annotations

from collections.abc import Sequence


def with_ray_address(words: Sequence[str]) -> list[str]:
    """The words of a command line with `local` after a `--ray` that has no address."""
    completed = list[str]()
    for number, word in enumerate(words):
        completed.append(word)
        rest = words[number + 1 :]
        if word == "--ray" and (not rest or rest[0].startswith("-")):
            completed.append("local")
    return completed

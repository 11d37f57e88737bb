"""Options of generation: how tokens are chosen, and where an answer ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from deepthink_cli.cli.options import option
from deepthink_cli.cli.values import unescaped
from deepthink_cli.engine.decoding import Decoding

GENERATION = "Generation"


@dataclass(frozen=True)
class DecodingArguments:
    """How tokens are chosen, and where an answer ends."""

    temperature: Annotated[
        str,
        option(
            "--temperature",
            panel=GENERATION,
            metavar="X",
            help="0 chooses the most likely token each time; above 0, tokens are drawn from softmax(logits / X).",
        ),
    ] = "0"
    top_p: Annotated[
        str,
        option(
            "--top-p",
            panel=GENERATION,
            metavar="P",
            help="Draw from the most likely tokens, whose probabilities sum up to P.",
        ),
    ] = "1"
    max_new_tokens: Annotated[
        str,
        option("--max-new-tokens", panel=GENERATION, metavar="N", help="Most tokens of an answer."),
    ] = "256"
    stop: Annotated[
        list[str] | None,
        option(
            "--stop",
            panel=GENERATION,
            metavar="TEXT",
            help=r"End an answer before this text (\n is a line break); give it several times for several, '' for "
            "none. Default: what follows an answer among the demonstrations.",
        ),
    ] = None
    seed: Annotated[
        str, option("--seed", panel=GENERATION, metavar="S", help="Seed of drawn tokens; input n uses S + n.")
    ] = "0"

    def checked(self) -> Decoding:
        """The validated options; raises InputError for each wrong value."""
        stop: dict[str, Any] = {}
        if self.stop is not None:
            stop["stop"] = tuple(unescaped(text) for text in self.stop if text)
        return Decoding.checked(
            temperature=self.temperature,
            top_p=self.top_p,
            max_new_tokens=self.max_new_tokens,
            seed=self.seed,
            **stop,
        )

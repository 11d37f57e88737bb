"""The rivals of this plugin and their option, which are named without importing scikit-learn."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

from pydantic import field_validator

from deepthink_cli.errors import installing
from deepthink_cli.options import DATA, Flag, Options
from deepthink_cli.tuning.rivals import Rivals


class EncoderOptions(Options):
    """The sentence encoder whose embeddings are classified, if any."""

    rival: Annotated[
        str | None,
        Flag(
            DATA,
            "Also judge logistic regression on the embeddings of this sentence encoder (extra rival).",
            "ENCODER",
            variable=False,
        ),
    ] = None

    @field_validator("rival")
    @classmethod
    def _installed(cls, encoder: str | None) -> str | None:
        for module, extra in (("sentence_transformers", "rival"), ("sklearn", "sklearn")):
            if encoder is not None and find_spec(module) is None:
                raise ValueError(f"needs more: {installing(extra)}")
        return encoder


LOGISTIC = Rivals(
    "deepthink_cli.plugins.rivals.classifiers:judge",
    EncoderOptions,
    "logistic regression on words, on hidden states, and on the embeddings of a sentence encoder",
    "https://scikit-learn.org/stable/modules/linear_model.html#logistic-regression",
)

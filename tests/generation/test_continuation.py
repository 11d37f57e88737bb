"""Generated texts: whole, and piece by piece without the beginning of a stop string or half a character."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from helpers.families import build_tokenizer

from deepthink_cli import Memory
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.decoding import Decoding, NewToken, Prompt
from deepthink_cli.engine.packed import PackedEngine
from deepthink_cli.errors import InputError
from deepthink_cli.generation import Continuation, continuations, pieces


class Scripted(PackedEngine):
    """Answers the prompts with given texts, token by token, in turn."""

    def __init__(self, *texts: str, end: bool = False) -> None:
        self.scripts = [build_tokenizer()(text, add_special_tokens=False)["input_ids"] for text in texts]
        self.end = end

    @property
    def tokenizer(self):  # type: ignore[no-untyped-def]
        return build_tokenizer()

    def generate(self, memory: Memory | None, prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[NewToken]:
        for number in range(max(map(len, self.scripts))):
            for place, script in enumerate(self.scripts):
                if number < len(script):
                    last = number == len(script) - 1
                    yield NewToken(place, script[number], "length" if last and not self.end else None)
                if number == len(script) - 1 and self.end:
                    yield NewToken(place, 0, "end")


def shown(engine: Engine, decoding: Decoding) -> list[str]:
    return [piece.text for piece in pieces(engine, None, [Prompt((1,))], decoding)]


def test_pieces_add_up_to_the_whole_text() -> None:
    engine = Scripted("a warm film", "dull, and far too long")
    parts = list(pieces(engine, None, [Prompt((1,)), Prompt((2,))], Decoding()))
    texts = ["".join(part.text for part in parts if part.place == place) for place in (0, 1)]
    assert texts == ["a warm film", "dull, and far too long"]
    assert [part.whole.text for part in parts if part.whole] == texts


def test_a_character_of_several_tokens_comes_whole() -> None:
    texts = shown(Scripted("ö€𝄞!"), Decoding())
    assert "".join(texts) == "ö€𝄞!"
    assert not any("\ufffd" in text for text in texts)


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_none() -> None:
    texts = shown(Scripted("so\nso\n\n"), Decoding(stop=("\n\n",)))
    assert "".join(texts) == "so\nso"
    assert not any(text.endswith("\n") for text in texts)


def test_a_text_ends_before_its_first_stop_string() -> None:
    (whole,) = continuations(Scripted("a film."), None, [Prompt((1,))], Decoding(stop=("mess", ".")))
    assert whole.text == "a film"


def test_the_end_token_is_not_text() -> None:
    (whole,) = continuations(Scripted("fine", end=True), None, [Prompt((1,))], Decoding())
    assert (whole.text, whole.finish, whole.token_ids[-1]) == ("fine", "end", 0)


def test_a_real_engine_gives_continuations_in_order(llama: Engine) -> None:
    prompts = [Prompt((5, 6)), Prompt((7,) * 30), Prompt((8,))]
    together = continuations(llama, None, prompts, Decoding(max_new_tokens=5))
    assert together == [continuations(llama, None, [prompt], Decoding(max_new_tokens=5))[0] for prompt in prompts]
    assert isinstance(together[0], Continuation)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("temperature", -1, "temperature -1: a number, 0 "),
        ("top_p", 0, "top_p 0: a probability above 0"),
        ("max_new_tokens", 0, "max_new_tokens 0: a number of tokens"),
        ("seed", -1, "seed -1: a whole number"),
        ("stop", ("",), "a stop string must not be empty"),
        ("temperature", float("nan"), "temperature nan: a number"),
    ],
)
def test_wrong_options_are_named(field: str, value: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Decoding.checked(**{field: value})

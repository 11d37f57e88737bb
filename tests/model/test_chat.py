"""Chats: the ids of demonstrations and a query are those of the whole conversation, by transformers."""

from __future__ import annotations

from itertools import cycle, product
from pathlib import Path

import pytest
import torch
from conftest import REVIEWS, TEMPLATE
from helpers.chats import KINDS, MARKS, chat_tokenizer, turns, whole_ids, write_chat_model
from helpers.soak import with_soak
from helpers.texts import HARD
from transformers import PreTrainedTokenizerBase

from deepthink_cli import (
    Chat,
    DemonstrationSet,
    Example,
    Method,
    Query,
    Template,
    load_model,
    score,
    think,
    tokenize_demonstrations,
    tokenize_queries,
)
from deepthink_cli.errors import InputError
from deepthink_cli.provenance import TokenizedDemonstrations

PAIR = ("positive", "negative")
PAIRS = [(f"Review: {text}\nSentiment:", label) for text, label in REVIEWS]
SYSTEM = "You say what a review thinks.\nAnswer with one word."
WITHOUT_SYSTEM = ("gemma", "mistral")
TEMPLATES = list(product(MARKS, KINDS))
# Every template with one kind of tokenizer, and every kind with one template.
IN_SUITE = {*zip(MARKS, cycle(KINDS))}


def read_as_chat(
    tokenizer: PreTrainedTokenizerBase, system: str | None = None, template: str = TEMPLATE
) -> TokenizedDemonstrations:
    examples = [Example(text, label) for text, label in REVIEWS]
    return tokenize_demonstrations(tokenizer, DemonstrationSet.of(examples, template, chat=Chat(system)))


def asked(text: str) -> str:
    return f"Review: {text.strip()}\nSentiment:"


@pytest.mark.parametrize(("name", "kind"), with_soak(TEMPLATES, IN_SUITE))
def test_the_ids_are_those_of_the_whole_conversation(name: str, kind: str) -> None:
    tokenizer = chat_tokenizer(name, kind)
    for system in (None,) if name in WITHOUT_SYSTEM else (None, "", SYSTEM):
        _are_those_of_the_whole(tokenizer, system)


def _are_those_of_the_whole(tokenizer: PreTrainedTokenizerBase, system: str | None) -> None:
    read = read_as_chat(tokenizer, system)
    texts = ["a joy", "  what\n\na film ! ", "日本 e\u0301 👩\u200d🚀", "user\n", *(f"{word}x{word}" for word in HARD)]
    control = [token for token in tokenizer.added_tokens_encoder if token.strip()]
    clean = [text for text in texts if text.strip() and not any(token in text for token in control)]
    candidates = (*PAIR, "so very good")
    queries = tokenize_queries(tokenizer, read, [Query(text, candidates) for text in clean])
    for text, query in zip(clean, queries, strict=True):
        conversation = turns(PAIRS, asked(text), system)
        begun = [*read.token_ids, *query.prefix]
        prompt = whole_ids(tokenizer, conversation, prompt=True)
        assert begun[: len(prompt)] == prompt[: len(begun)]
        for label, answer in zip(candidates, query.answers, strict=True):
            whole = whole_ids(tokenizer, [*conversation, {"role": "assistant", "content": label}])
            assert whole[: len(begun) + len(answer)] == [*begun, *answer]
            assert tokenizer.decode(answer).strip() == label
            assert whole[len(begun) + len(answer)] in tokenizer.all_special_ids  # the end of the reply


def test_the_date_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = chat_tokenizer("llama3")
    tokenizer.chat_template = tokenizer.chat_template.replace("%d %b %Y", "%A %B %Y-%m-%d %H:%M")
    assert "Date: Friday July 2024-07-26 00:00\n" in tokenizer.decode(read_as_chat(tokenizer).token_ids)


@pytest.mark.parametrize(("name", "kind"), with_soak(TEMPLATES, IN_SUITE))
def test_a_control_token_in_a_text_is_text(name: str, kind: str) -> None:
    tokenizer = chat_tokenizer(name, kind)
    hostile = "".join(f" {mark}x" for mark in tokenizer.added_tokens_encoder if mark.strip() and "0x" not in mark)
    clean = Example("fine", "positive"), Example("poor", "negative")
    counts = []
    for examples, text in ((clean, "fine"), ((Example(hostile, "positive"), clean[1]), hostile)):
        read = tokenize_demonstrations(tokenizer, DemonstrationSet.of(examples, TEMPLATE, chat=Chat()))
        (query,) = tokenize_queries(tokenizer, read, [Query(text, PAIR)])
        ids = [*read.token_ids, *query.prefix]
        counts.append([token for token in ids if token in tokenizer.all_special_ids and token != 0])
        assert tokenizer.decode(ids).count("Sentiment") == 3
    assert counts[0] == counts[1]


def test_a_text_that_changes_the_demonstrations_is_refused_with_its_place() -> None:
    tokenizer = chat_tokenizer("qwen3")
    read = read_as_chat(tokenizer, template="{review} {sentiment}")
    with pytest.raises(InputError, match=r"^rows:3: the chat template writes the demonstrations in another way"):
        tokenize_queries(tokenizer, read, [Query("<tool_response>1", PAIR, where="rows:3")])


def test_a_candidate_that_the_template_changes_is_refused() -> None:
    tokenizer = chat_tokenizer("qwen2.5")
    tokenizer.chat_template = tokenizer.chat_template.replace("message.content ~", "message.content|replace('z','s') ~")
    with pytest.raises(InputError, match="candidate 'jazz' is changed by the chat template"):
        tokenize_queries(tokenizer, read_as_chat(tokenizer), [Query("a joy", ("jazz", "rock"), where="rows:3")])


@pytest.mark.parametrize(
    ("name", "system", "reason"),
    [
        ("gemma", SYSTEM, "System role not supported; omit system$"),
        ("mistral", SYSTEM, "its prompt for a reply is not what it writes before one; omit system$"),
    ],
)
def test_a_system_message_that_the_template_does_not_take_is_refused(name: str, system: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_as_chat(chat_tokenizer(name), system)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "the tokenizer has no chat template"),
        ("{{ raise_exception('Not for you') }}", "cannot write this conversation: Not for you; omit chat"),
        ("{% if %}", "cannot write this conversation: "),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ", "writes no special token"),
        ("<|im_start|>{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "writes no special token"),
        (
            "{% for m in messages|reverse %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
            "the demonstrations depend on the query",
        ),
        (
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\nLet me think.{% endif %}",
            "its prompt for a reply is not what it writes before one",
        ),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_with_the_reason(template: str | None, reason: str) -> None:
    tokenizer = chat_tokenizer("smollm2")
    tokenizer.chat_template = template
    with pytest.raises(InputError, match=reason) as refused:
        read_as_chat(tokenizer)
    assert len(str(refused.value).splitlines()) == 1


def test_a_separator_that_the_tokenizer_normalizes_is_not_used() -> None:
    tokenizer = chat_tokenizer("smollm2", "legacy", normalized=True)
    with pytest.raises(InputError, match="writes no special token between"):
        read_as_chat(tokenizer)


def test_queries_of_several_fields_with_their_own_candidates() -> None:
    tokenizer = chat_tokenizer("llama3")
    template = Template("Question: {question}\n{options}\nAnswer: {answer}")
    example = Example({"question": "2 + 2?", "options": "A. 3\nB. 4"}, "four")
    read = tokenize_demonstrations(tokenizer, DemonstrationSet((example,), template, (), Chat()))
    queries = [
        Query({"question": f"{n} + 1?", "options": "A. a\nB. b"}, (str(n + 1), "none of them")) for n in range(3)
    ]
    for query, ids in zip(queries, tokenize_queries(tokenizer, read, queries), strict=True):
        conversation = turns([("Question: 2 + 2?\nA. 3\nB. 4\nAnswer:", "four")], template.query(query.text).rstrip())
        for label, answer in zip(query.candidates, ids.answers, strict=True):
            whole = whole_ids(tokenizer, [*conversation, {"role": "assistant", "content": label}])
            assert whole[:-1] == [*read.token_ids, *ids.prefix, *answer]


@pytest.mark.parametrize("kind", ["packed", "padded"])
def test_one_reading_scores_as_the_whole_conversation(kind: str, tmp_path: Path) -> None:
    engine = load_model(str(write_chat_model(tmp_path, "qwen3")), engine=kind)
    read = read_as_chat(engine.tokenizer, SYSTEM)
    texts = ["a joy", "far too long and cold"]
    queries = tokenize_queries(engine.tokenizer, read, [Query(text, PAIR) for text in texts])
    plan = engine.plan(queries)
    assert kind == "padded" or "user" in engine.tokenizer.decode(plan.shared)
    (memory,) = think(engine, read, Method(1))
    for text, query, scores in zip(texts, queries, score(engine, memory, queries), strict=True):
        for label, answer, total in zip(PAIR, query.answers, scores.sums, strict=True):
            turn = {"role": "assistant", "content": label}
            whole = whole_ids(engine.tokenizer, [*turns(PAIRS, asked(text), SYSTEM), turn])
            end = len(read.token_ids) + len(query.prefix) + len(answer)
            with torch.inference_mode():
                logits = engine.model.network(torch.tensor([whole[:end]])).logits[0].log_softmax(-1)
            expected = [logits[place - 1, whole[place]] for place in range(end - len(answer), end)]
            assert total == pytest.approx(float(sum(expected)), abs=1e-4)

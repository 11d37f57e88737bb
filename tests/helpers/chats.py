"""Tokenizers with chat templates, and the conversations that transformers makes of demonstrations with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from conftest import shared
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from helpers.families import TEXT, build_tokenizer, write_model

FOLDER = Path(__file__).parent.parent / "chat_templates"
CHATML = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
MARKS = {
    "smollm2": CHATML,
    "qwen2.5": CHATML,
    "qwen3": CHATML,
    "llama3": ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"],
    "gemma": ["<bos>", "<end_of_turn>", "<start_of_turn>"],
    "mistral": ["<s>", "</s>", "[INST]", "[/INST]"],
    "phi3": ["<s>", "<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"],
}
KINDS = ("bytes", "spaces", "legacy", "gpt2", "llama2", "pythia")
DATE = "26 Jul 2024"
Turns = list[dict[str, str]]


def chat_tokenizer(name: str, kind: str = "bytes", normalized: bool = False) -> PreTrainedTokenizerBase:
    """A tokenizer of some kind with a template of tests/chat_templates and its special tokens."""
    tokenizer, marks = _tokenizer(kind), MARKS[name]
    added = [AddedToken(mark, rstrip=name == "phi3", normalized=normalized, special=True) for mark in marks]
    tokenizer.add_special_tokens({"bos_token": added[0], "eos_token": added[1], "additional_special_tokens": added})
    if name == "qwen3":
        tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in ("<think>", "</think>")])
    tokenizer.chat_template = (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    return tokenizer


def write_chat_model(folder: Path, name: str = "smollm2") -> Path:
    """Save a random model whose tokenizer has a chat template."""
    tokenizer = chat_tokenizer(name)
    write_model(folder, "llama", vocab_size=len(tokenizer))
    tokenizer.save_pretrained(folder)
    return folder


def turns(pairs: Sequence[tuple[str, str]], query: str, system: str | None = None) -> Turns:
    """A conversation of questions and answers that ends with a question."""
    first = [] if system is None else [{"role": "system", "content": system}]
    solved = [({"role": "user", "content": text}, {"role": "assistant", "content": label}) for text, label in pairs]
    return [*first, *(turn for pair in solved for turn in pair), {"role": "user", "content": query}]


def whole_ids(tokenizer: PreTrainedTokenizerBase, conversation: Turns, prompt: bool = False) -> list[int]:
    """The ids of a whole conversation, by transformers."""
    ids = tokenizer.apply_chat_template(
        conversation, add_generation_prompt=prompt, return_dict=False, date_string=DATE, enable_thinking=False
    )
    assert isinstance(ids, list)
    return ids  # type: ignore[return-value]


def _tokenizer(kind: str) -> PreTrainedTokenizerBase:
    if kind == "bytes":
        return build_tokenizer()
    if kind in ("spaces", "legacy"):
        return _sentencepiece(kind == "legacy")
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(shared(f"tokenizers/{kind}"))
    return tokenizer


@cache
def _trained(legacy: bool) -> str:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    every_byte = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=every_byte, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    return tokenizer.to_str()


def _sentencepiece(legacy: bool) -> PreTrainedTokenizerBase:
    """A BPE like SentencePiece's, which adds a space before a text, or (legacy) before every part of it."""
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(_trained(legacy)), unk_token="<unk>")

"""Train pocket: one command, deterministic, resumable (run it again and it goes on where it stopped).

First the reader, the lowest layers alone, learns to tell the class of a text. Then it is
kept as it is, and the layers above learn to bind classes to the words that demonstrations show; at the
end these are often the task's own words, either way round, which a reader does not see as mere names.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from corpus import Corpus, load_corpus
from episodes import FORMATS, PRACTICE, WORDS, Batch, Episodes, Mixture
from look import look_at_binding, look_at_reading
from network import CONTEXT, LAYERS, READING_LAYERS, binding_loss, build_network, put_reader_below, reading_loss
from vocabulary import build_tokenizer, label_words

VOCABULARY = 8192
LOOK_EVERY, SAY_EVERY = 250, 50
Loss = Callable[[LlamaForCausalLM, Batch, float], tuple[Tensor, dict[str, float]]]


@dataclass(frozen=True)
class Stage:
    """What one stage trains on, how long and how fast; short rows come first, `first` steps of them."""

    name: str
    loss: Loss
    steps: int
    rate: float
    dropout: float
    short: Mixture
    long: Mixture
    first: int

    def drawn(self, step: int) -> tuple[int, Mixture]:
        """Number of rows and mixture of one step."""
        return (16, self.short) if step < self.first else (8, self.long)

    def rate_at(self, step: int) -> float:
        """Learning rate: warmed up, then falling by a cosine."""
        return self.rate * min(1.0, (step + 1) / 200) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / self.steps)))


READING = Stage(
    "reading",
    reading_loss,
    steps=3000,
    rate=1.5e-3,
    dropout=0.3,
    first=300,
    short=Mixture(128, {"sst2": 0.7, "trec": 0.15, WORDS: 0.15}, drop=0.3),
    long=Mixture(384, {"sst2": 0.7, "trec": 0.1, "ag_news": 0.08, WORDS: 0.12}, drop=0.3),
)
BINDING = Stage(
    "binding",
    binding_loss,
    steps=3000,
    rate=2e-3,
    dropout=0.05,
    first=900,
    short=Mixture(128, {PRACTICE: 0.3, "sst2": 0.2, WORDS: 0.5}, drop=0.1),
    long=Mixture(384, {PRACTICE: 0.45, "sst2": 0.25, "trec": 0.1, "ag_news": 0.08, WORDS: 0.12}, drop=0.25),
)
SETTLING = Stage(
    "settling",
    binding_loss,
    steps=300,
    rate=6e-4,
    dropout=0.05,
    first=0,
    short=BINDING.short,
    long=Mixture(384, {PRACTICE: 0.5, "sst2": 0.3, "trec": 0.05, "ag_news": 0.05, WORDS: 0.1}, drop=0.25, own=0.4),
)


def main() -> None:
    """Train all stages from the start, or from the checkpoints in --out, then save the model there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="local copies of the data sets; default: the hub")
    parser.add_argument("-o", "--out", type=Path, required=True, help="checkpoints, model and tokenizer go here")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    corpus = load_corpus(args.data_dir)
    print("texts left out because they overlap texts kept apart:", corpus.left_out, flush=True)
    tokenizer = _tokenizer(corpus)
    tokenizer.save_pretrained(args.out)
    words, fresh = label_words(tokenizer)
    episodes = Episodes(corpus, tokenizer, words)

    torch.manual_seed(0)
    reader = build_network(len(tokenizer), tokenizer.bos_token_id, READING_LAYERS)
    _train(READING, reader, episodes, lambda: look_at_reading(reader, corpus, tokenizer), args.out)
    torch.manual_seed(0)
    network = build_network(len(tokenizer), tokenizer.bos_token_id, LAYERS)
    put_reader_below(network, reader)
    print(f"{sum(p.numel() for p in network.parameters()):,} parameters", flush=True)
    for stage in (BINDING, SETTLING):
        _train(stage, network, episodes, lambda: look_at_binding(network, corpus, tokenizer, fresh), args.out)
    network.half().save_pretrained(args.out)


def _tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    texts = [f" {text}" for classes in corpus.texts.values() for texts in classes for text in texts]
    texts += [f" {a}:\n{b}: positive negative" for a, b in FORMATS for _ in range(50)]
    return build_tokenizer(texts, VOCABULARY, CONTEXT)


def _train(
    stage: Stage, network: LlamaForCausalLM, episodes: Episodes, look: Callable[[], dict[str, float]], out: Path
) -> None:
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=stage.rate, betas=(0.9, 0.98), weight_decay=0.1)
    checkpoint = out / f"{stage.name}.pt"
    clock, tokens = time.time(), 0
    for step in range(_resume(network, optimizer, checkpoint), stage.steps):
        rows, mixture = stage.drawn(step)
        batch = episodes.batch(step, rows, mixture)
        torch.manual_seed(step)  # what is random in a step depends on the step alone, so a resumed run is the same
        total, figures = stage.loss(network, batch, stage.dropout)
        for group in optimizer.param_groups:
            group["lr"] = stage.rate_at(step)
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        tokens += batch.ids.numel()
        if (step + 1) % SAY_EVERY == 0:
            shown = "  ".join(f"{name} {figure:.3f}" for name, figure in figures.items())
            print(f"{stage.name} {step + 1}  {shown}  {tokens / (time.time() - clock):,.0f} tokens/s", flush=True)
            clock, tokens = time.time(), 0
        if (step + 1) % LOOK_EVERY == 0 or step + 1 == stage.steps:
            print(f"{stage.name} {step + 1}  dev: {look()}", flush=True)
            _save(network, optimizer, step + 1, checkpoint)
            clock = time.time()


def _resume(network: LlamaForCausalLM, optimizer: torch.optim.Optimizer, checkpoint: Path) -> int:
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _save(network: LlamaForCausalLM, optimizer: torch.optim.Optimizer, step: int, checkpoint: Path) -> None:
    temporary = checkpoint.with_suffix(".tmp")
    torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, temporary)
    os.replace(temporary, checkpoint)


if __name__ == "__main__":
    main()

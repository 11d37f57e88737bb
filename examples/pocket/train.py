"""Train pocket: one command, deterministic, resumable (run it again and it goes on where it stopped)."""

from __future__ import annotations

import argparse
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from corpus import Corpus, load_corpus
from episodes import FORMATS, WORDS, Episodes, Mixture
from look import look
from network import CONTEXT, build_network, loss
from vocabulary import build_tokenizer, label_words

VOCABULARY = 8192
LOOK_EVERY, SAY_EVERY = 500, 100


@dataclass(frozen=True)
class Recipe:
    """What is trained on, how long and how fast."""

    steps: int = 7500
    first: int = 900  # steps in which single words are bound, before the rows grow
    peak: float = 2e-3  # learning rate of the first steps
    main: float = 0.6  # share of it from which the rest falls, by a cosine
    dropout: tuple[float, float] = (0.1, 0.2)  # of embeddings: while binding is learned, and from `late` on
    drop: tuple[float, float] = (0.15, 0.35)  # of a text's tokens, likewise
    late: int = 4000
    decay: float = 0.1

    def mixture(self, step: int) -> tuple[int, Mixture]:
        """Rows and mixture of one step."""
        drop = self.drop[step >= self.late]
        if step < self.first:
            return 16, Mixture(128, {"sst2": 0.4, "trec": 0.1, "ag_news": 0.0, WORDS: 0.5}, drop)
        return 8, Mixture(384, {"sst2": 0.65, "trec": 0.12, "ag_news": 0.08, WORDS: 0.15}, drop)

    def rate(self, step: int) -> float:
        """Learning rate of one step."""
        if step < self.first:
            return self.peak * min(1.0, (step + 1) / 200)
        done = (step - self.first) / (self.steps - self.first)
        return self.peak * self.main * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def main() -> None:
    """Train from the start, or from the checkpoint in --out, to the end; then save the model there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="local copies of the data sets; default: the hub")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint, model and tokenizer go here")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    corpus = load_corpus(args.data_dir)
    print("texts left out because they overlap an evaluation text:", corpus.left_out, flush=True)
    tokenizer = _tokenizer(corpus)
    tokenizer.save_pretrained(args.out)
    torch.manual_seed(0)
    network = build_network(len(tokenizer), tokenizer.bos_token_id)
    print(f"{sum(p.numel() for p in network.parameters()):,} parameters", flush=True)
    _train(network, tokenizer, corpus, Recipe(steps=args.steps), args.out / "checkpoint.pt")
    network.half().save_pretrained(args.out)


def _tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    texts = [f" {text}" for classes in corpus.texts.values() for texts in classes for text in texts]
    texts += [f" {a}:\n{b}: positive negative" for a, b in FORMATS for _ in range(50)]
    return build_tokenizer(texts, VOCABULARY, CONTEXT)


def _train(
    network: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, corpus: Corpus, recipe: Recipe, checkpoint: Path
) -> None:
    words, fresh = label_words(tokenizer)
    episodes = Episodes(corpus, tokenizer, words)
    optimizer = torch.optim.AdamW(network.parameters(), lr=recipe.peak, betas=(0.9, 0.98), weight_decay=recipe.decay)
    clock, tokens = time.time(), 0
    for step in range(_resume(network, optimizer, checkpoint), recipe.steps):
        rows, mixture = recipe.mixture(step)
        batch = episodes.batch(step, rows, mixture)
        torch.manual_seed(step)  # what is random in a step depends on the step alone, so a resumed run is the same
        total, figures = loss(network, batch, recipe.dropout[step >= recipe.late])
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        tokens += batch.ids.numel()
        if (step + 1) % SAY_EVERY == 0:
            shown = "  ".join(f"{name} {figure:.3f}" for name, figure in figures.items())
            print(f"{step + 1}  {shown}  {tokens / (time.time() - clock):,.0f} tokens/s", flush=True)
            clock, tokens = time.time(), 0
        if (step + 1) % LOOK_EVERY == 0 or step + 1 == recipe.steps:
            print(f"{step + 1}  dev accuracy: {look(network, corpus, tokenizer, fresh)}", flush=True)
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

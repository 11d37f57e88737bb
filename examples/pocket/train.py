"""Train pocket: one command, deterministic, resumable (run it again and it goes on)."""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from corpus import Corpus, load_corpus
from episodes import FORMATS, Batch, Episodes, Mixture
from vocabulary import build_tokenizer, class_names, label_words


def build_model(vocabulary: int, bos: int, args: argparse.Namespace) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=args.hidden, num_hidden_layers=args.layers,
        num_attention_heads=args.heads, num_key_value_heads=args.heads, intermediate_size=args.mlp,
        max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=bos, eos_token_id=bos,
        initializer_range=0.04,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    if args.mimetic:
        mimetic(model, args.mimetic)
    return model


@torch.no_grad()
def mimetic(model: LlamaForCausalLM, strength: float) -> None:
    """Start every head close to "attend to what is alike, and copy it": W_q W_k and W_v W_o near the identity."""
    identity = torch.eye(model.config.hidden_size)
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            weight = getattr(layer.self_attn, name).weight
            weight.mul_(0.5).add_(strength * identity)


def losses(model: LlamaForCausalLM, batch: Batch, probe_layer: int, dropout: float, rng: torch.Generator):
    """The four parts of the loss, and the share of right answers among the options where the class was shown."""
    embedded = F.dropout(model.model.embed_tokens(batch.ids), dropout)
    out = model.model(inputs_embeds=embedded, output_hidden_states=True, use_cache=False)
    hidden, middle = out.last_hidden_state, out.hidden_states[probe_layer]
    rows, places = batch.asked.T
    logits = model.lm_head(hidden[rows, places])  # [M, V]
    told = batch.told
    choices = logits.gather(1, batch.options.clamp(min=0)).masked_fill(batch.options < 0, -math.inf)  # [M, 6]
    parts = {
        "choice": F.cross_entropy(choices[told], batch.right[told]),
        "label": F.cross_entropy(logits[told], batch.answer[told]),
        "text": text_loss(model, hidden, batch.ids, rng),
        "name": name_loss(model, middle, batch),
    }
    return parts, (choices[told].argmax(1) == batch.right[told]).float()


def text_loss(model: LlamaForCausalLM, hidden: Tensor, ids: Tensor, rng: torch.Generator) -> Tensor:
    """Language-model loss on an eighth of the positions."""
    mask = torch.rand(ids[:, 1:].shape, generator=rng) < 0.125
    return F.cross_entropy(model.lm_head(hidden[:, :-1][mask]), ids[:, 1:][mask])


def name_loss(model: LlamaForCausalLM, middle: Tensor, batch: Batch) -> Tensor:
    """The middle layer is asked, through the output embedding, for the class's own name.

    The name is the class's word, or for classes of real texts a token reserved for it. It is asked where
    the label will be asked and where the label stands, so a text looks to the layers above like one word.
    """
    rows, places = batch.asked.T
    both = torch.cat([middle[rows, places], middle[rows, places + 1]])
    return F.cross_entropy(model.lm_head(model.model.norm(both)), batch.name.repeat(2))


def learning_rate(step: int, args: argparse.Namespace) -> float:
    """Warm up, stay at the peak while single words are bound, then fall by a cosine from `main` of it."""
    if step < args.first:
        return args.peak * min(1.0, (step + 1) / 200)
    done = (step - args.first) / (args.steps - args.first)
    return args.peak * args.main * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def look(model: LlamaForCausalLM, corpus: Corpus, tokenizer: PreTrainedTokenizerFast, fresh: list[int],
         layer: int, queries: int = 200, seeds: int = 2) -> dict[str, float]:
    """Accuracy on dev sentences with 16 balanced demonstrations: own, swapped and fresh words."""
    model.eval()
    own = [tokenizer.encode(f" {w}", add_special_tokens=False)[0] for w in ("negative", "positive")]
    found: dict[str, float] = {"read": 0.0}
    names = class_names(tokenizer)["sst2"]
    for name in ("own", "swapped", "fresh"):
        right = 0
        for seed in range(seeds):
            rng = random.Random(seed)
            options = {"own": own, "swapped": own[::-1], "fresh": rng.sample(fresh, 2)}[name]
            classes = [0, 1] * 8
            rng.shuffle(classes)
            prompt = [tokenizer.bos_token_id]
            long = [[t for t in texts if len(t.split()) >= 8] for texts in corpus.texts["sst2"]]
            for c in classes:
                prompt += tokenizer.encode(f"Review: {rng.choice(long[c])}\nSentiment:", add_special_tokens=False)
                prompt += [options[c], *tokenizer.encode("\n\n", add_special_tokens=False)]
            rows = corpus.dev[:queries]
            tails = [tokenizer.encode(f"Review: {t}\nSentiment:", add_special_tokens=False) for t, _ in rows]
            cache = model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1).past_key_values
            memory = [(layer.keys, layer.values) for layer in cache.layers]
            for start in range(0, len(rows), 50):
                part = tails[start : start + 50]
                width = max(map(len, part))
                ids = torch.tensor([t + [0] * (width - len(t)) for t in part])
                from transformers import DynamicCache
                past = DynamicCache([(k.expand(len(part), -1, -1, -1), v.expand(len(part), -1, -1, -1)) for k, v in memory])
                out = model.model(ids, past_key_values=past, output_hidden_states=True)
                ends = torch.arange(len(part)), torch.tensor([len(t) - 1 for t in part])
                logits = model.lm_head(out.last_hidden_state[ends])
                read = model.lm_head(model.model.norm(out.hidden_states[layer][ends]))[:, names].argmax(1)
                found["read"] += int((read == torch.tensor([c for _, c in rows[start : start + 50]])).sum()) / seeds / queries / 3
                guess = logits[:, options].argmax(1)
                right += int((guess == torch.tensor([c for _, c in rows[start : start + 50]])).sum())
        found[name] = right / seeds / queries
    model.train()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=7500)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=7)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--mlp", type=int, default=384)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--probe-layer", type=int, default=3)
    parser.add_argument("--peak", type=float, default=2e-3)
    parser.add_argument("--batch-tokens", type=int, default=3072)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--mimetic", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--first", type=int, default=900)
    parser.add_argument("--main", type=float, default=0.6)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--word-dropout", type=float, default=0.15)
    parser.add_argument("--decay", type=float, default=0.1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    corpus = load_corpus(args.data_dir)
    print("left out for overlap:", corpus.left_out, {n: [len(c) for c in t] for n, t in corpus.texts.items()}, flush=True)
    texts = [t for classes in corpus.texts.values() for c in classes for t in c]
    texts += [f"{a}:\n{b}: positive negative" for a, b in FORMATS for _ in range(50)]
    tokenizer = build_tokenizer([f" {t}" for t in texts], args.vocabulary, 4096)
    tokenizer.save_pretrained(args.out)
    train_words, fresh = label_words(tokenizer)
    print("label words:", len(train_words), "kept for testing:", len(fresh), flush=True)
    episodes = Episodes(corpus, tokenizer, train_words)
    model = build_model(len(tokenizer), tokenizer.bos_token_id, args)
    parameters = list(model.parameters())
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    optimizer = torch.optim.AdamW(parameters, lr=args.peak, betas=(0.9, 0.98), weight_decay=args.decay)
    start, checkpoint = 0, args.out / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"]); start = state["step"]
    clock, tokens, right, seen = time.time(), 0, 0.0, 0
    for step in range(start, args.steps):
        length = 128 if step < args.first else 384
        mixture = Mixture(length, drop=args.word_dropout)
        if step < args.first:
            mixture = Mixture(length, sst2=0.4, trec=0.1, ag_news=0.0, words=0.5, drop=args.word_dropout)
        rows = 16 if length == 128 else args.batch_tokens // length
        batch = episodes.batch(step, rows, mixture)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            parts, correct = losses(model, batch, args.probe_layer, args.dropout, torch.Generator().manual_seed(step))
        loss = parts["choice"] + 0.25 * parts["label"] + 0.15 * parts["text"] + parts["name"]
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        tokens += batch.ids.numel()
        if (step + 1) % 100 == 0:
            told = batch.source[batch.told]
            by = {n: round(float(correct[told == i].mean()), 3) for i, n in [(-1, "words"), (0, "sst2"), (1, "trec"), (2, "ag")]}
            print(step + 1, {k: round(v.item(), 3) for k, v in parts.items()}, by, f"{tokens / (time.time() - clock):.0f} tok/s", flush=True)
            clock, tokens = time.time(), 0
        if (step + 1) % 500 == 0 or step + 1 == args.steps:
            print("  look", step + 1, look(model, corpus, tokenizer, fresh, args.probe_layer), flush=True)
            temporary = checkpoint.with_suffix(".tmp")
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, temporary)
            os.replace(temporary, checkpoint)
            clock = time.time()
    model.half().save_pretrained(args.out)


if __name__ == "__main__":
    main()

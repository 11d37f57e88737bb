"""Every subtask of MMLU and BBH, by texts and by letters: random weights with real tokenizers, and the built-in model.

    python benchmarks/subtasks.py --data-dir DIR --gpt2 TOKENIZER --llama TOKENIZER

The tokenizers are directories or hub ids. Prints a Markdown table: jobs done, rows written, demonstrations
dropped, inputs skipped, seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from deepthink_cli.experiments.results import read_results

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 1024},
    "llama": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 4096,
    },
}
GROUPS = ("mmlu", "bbh", "mmlu-letters", "bbh-letters")


def write_model(folder: Path, family: str, tokenizer: str) -> Path:
    """Save a small random model of a family with a real tokenizer."""
    words = AutoTokenizer.from_pretrained(tokenizer)
    config = AutoConfig.for_model(family, vocab_size=len(words), **SMALL[family])
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / family)
    words.save_pretrained(folder / family)
    return folder / family


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--gpt2", default="openai-community/gpt2")
    parser.add_argument("--llama", default="meta-llama/Llama-2-7b-hf")
    parser.add_argument("--limit", default="3")
    args = parser.parse_args()
    print("| model | tasks | rows | tasks with fewer demonstrations | rows skipped | s |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {"pocket": "pocket"}
        for family in SMALL:
            models[f"{family}, random weights"] = str(write_model(folder, family, getattr(args, family)))
        for title, model in models.items():
            out = folder / "runs" / title.split(",")[0]
            command = [
                sys.executable,
                "-m",
                "deepthink_cli",
                "run",
                "-m",
                model,
                "--data-dir",
                args.data_dir,
                "-T",
                "2",
                "--limit",
                args.limit,
                "-o",
                str(out),
                "-q",
            ]
            started = time.perf_counter()
            subprocess.run([*command, *(word for group in GROUPS for word in ("--task", group))], check=True)
            rows = read_results(out)
            fewer = {row.setting.task for row in rows if row.shots_used < row.setting.shots}
            skipped = sum(sum(row.skipped.values()) for row in rows if row.setting.iteration == 1)
            tasks = {row.setting.task for row in rows}
            print(
                f"| {title} | {len(tasks)} | {len(rows)} | {len(fewer)} | {skipped} | "
                f"{time.perf_counter() - started:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""What storing a memory in 8 or 4 bits a number costs: bytes, changed labels and accuracy.

    python benchmarks/quantized_memories.py --data-dir DIR -o DIR

For each model: demonstrations of AG News are read T times, the memory is stored as float32, int8 and int4, and the
same test rows are labelled with each file, as `deepthink diff --task agnews` does. Prints a table. Scores are kept
in the folder --out as they come: the same command continues an interrupted run, and with more --rows a finished one.
The columns keys and values are relative changes, `mean change` is that of a label's log-probability in nats, and p is
that of McNemar's exact test against float32.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers.utils import logging

from deepthink_cli import Engine, Method, load_memory, load_model, save_memory, score, think
from deepthink_cli.artifact.format import read_header
from deepthink_cli.artifact.opening import open_memory
from deepthink_cli.evaluation.metrics import mcnemar
from deepthink_cli.model.tokens import TokenizedQuery, tokenize_demonstrations, tokenize_queries
from deepthink_cli.plugins.memories.diff import tensor_changes
from deepthink_cli.plugins.memories.quantize import save_quantized
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import draw_demonstrations, evaluation_set
from deepthink_cli.updates import Gate
from real_model import REAL
from shapes import weights_of

TASK, SHOTS, SEED, ETA = "agnews", 8, 0, 0.01
FORMS = {"float32": None, "int8": 8, "int4": 4}
CHUNK = 50  # rows scored between two writes
HEADER = (
    "| model | stored as | bytes | of float32 | keys | values | mean change | rows | changed | accuracy | McNemar p |"
)


def main() -> None:
    """Measure every model and print the table."""
    args = _arguments()
    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    print(HEADER, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", sep="\n")
    for model in args.models:
        for line in _lines(model, args):
            print(f"| {model} | {line} |", flush=True)


def _lines(model: str, args: argparse.Namespace) -> Iterator[str]:
    """The cells of each form of one model's memory, after the model's name."""
    engine = load_model(weights_of(model) or model)
    task = find_task(TASK)
    evaluated = evaluation_set(task, "official", Source(Path(args.data_dir)))
    drawn = draw_demonstrations(task, evaluated, SHOTS, SEED).demonstrations
    rows = list(evaluated)[: args.rows]
    queries = list(tokenize_queries(engine.tokenizer, drawn.template, rows))
    gold = [list(row.candidates).index(str(row.gold)) for row in rows]
    folder = Path(args.out) / Path(model).name
    folder.mkdir(parents=True, exist_ok=True)
    first = folder / "float32.safetensors"
    if not first.exists():
        read = think(engine, tokenize_demonstrations(engine.tokenizer, drawn), Method(args.iterations, Gate(ETA)))
        save_memory(list(read)[-1], first)
    for form in args.forms:
        path = folder / f"{form}.safetensors"
        if (bits := FORMS[form]) is not None:
            save_quantized(read_header(first), bits, path)
        _score(engine, path, queries)
    for form in args.forms:
        yield f"{form} | {_cells(folder, form, gold)}"


def _score(engine: Engine, path: Path, queries: list[TokenizedQuery]) -> None:
    """Append the scores of the rows that the memory's file of scores does not have yet."""
    scores, memory = _scores_file(path), load_memory(path)
    done = len(_read(scores))
    with open(scores, "a", encoding="utf-8") as file:
        for start in range(done, len(queries), CHUNK):
            for each in score(engine, memory, queries[start : start + CHUNK]):
                file.write(json.dumps(list(each.sums)) + "\n")
            file.flush()


def _scores_file(path: Path) -> Path:
    """The file of a memory's scores, which another memory does not continue."""
    return path.with_name(f"{path.stem}-{read_header(path).metadata.sha256[:12]}.jsonl")


def _read(scores: Path) -> list[list[float]]:
    """The complete rows of a file of scores; a row that an interrupt cut is removed."""
    if not scores.exists():
        return []
    text = scores.read_text(encoding="utf-8")
    complete = text[: text.rfind("\n") + 1]
    scores.write_text(complete, encoding="utf-8")
    return [json.loads(line) for line in complete.splitlines()]


def _cells(folder: Path, form: str, gold: list[int]) -> str:
    """The figures of one form, beside float32."""
    first, path = folder / "float32.safetensors", folder / f"{form}.safetensors"
    (before,), (after,) = (open_memory(each).memories() for each in (first, path))
    tensors = tensor_changes(before, after)
    assert tensors is not None
    plain, scores = (torch.tensor(_read(_scores_file(each))[: len(gold)]).log_softmax(-1) for each in (first, path))
    old, new, true = plain.argmax(-1), scores.argmax(-1), torch.tensor(gold)
    p = mcnemar(int(((old != true) & (new == true)).sum()), int(((old == true) & (new != true)).sum()))
    size = path.stat().st_size
    return (
        f"{size:,} | {size / first.stat().st_size:.3f} | {tensors.whole.keys:.2%} | {tensors.whole.values:.2%} | "
        f"{(scores - plain).abs().mean():.4f} | {len(gold):,} | {int((old != new).sum())} | "
        f"{float((new == true).float().mean()):.2%} | {p:.2g}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data-dir", metavar="DIR", required=True, help="folder with ag_news/")
    add("-o", "--out", metavar="DIR", required=True, help="folder of memories and scores; a second run continues there")
    add("-m", "--models", nargs="+", default=["pocket", REAL], help="folders, or names that benchmarks/speed.py knows")
    add("--rows", type=int, default=2000)
    add("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="float32 is needed once")
    add("--iterations", type=int, default=5, help="T; eta is 0.01")
    add("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()

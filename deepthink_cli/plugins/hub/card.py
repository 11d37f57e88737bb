"""The card of a published memory: what made it, its figures, how to use it, its demonstrations and licence.

huggingface_hub writes the metadata (`ModelCardData`); its `EvalResult` requires a data set of the Hub, and its card
templates escape nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.metadata import method_text, origin_lines, prompt_lines
from deepthink_cli.calibration.registry import STORED
from deepthink_cli.errors import InputError
from deepthink_cli.io.text import json_line, markdown_text, printable, size
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.techniques.registry import first_reading

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header

MEMORY = "memory.safetensors"
_TAGS = ["deep-thinking", "in-context-learning", "prefix-tuning"]
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def figures_of(path: Path, header: Header) -> str:
    """The figures of the output of `deepthink eval --json`; raises InputError for another file, or another memory."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        memory, split, n = found["memory"]["sha256"], str(found["split"]), int(found["n"])
        shown = [(each["iteration"], each.get("calibrated", {}).get(STORED, each)) for each in found["results"]]
        rows = ["| {} | {:.1%} | {:.1%} to {:.1%} |".format(t, each["accuracy"], *each["ci95"]) for t, each in shown]
    except OSError as error:
        raise InputError.of("results", path, f"cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError.of("results", path, "not the output of deepthink eval --json; give that") from error
    if memory != header.metadata.sha256:
        raise InputError.of("results", path, f"results of another memory than {header.path}; evaluate this one")
    named = ", ".join(filter(None, (found.get("task"), split.rpartition("/")[2])))  # a file is named by its path
    note = f"T = 1 is {first_reading(header.metadata.technique)}."
    if header.metadata.calibrated is not None:
        note += " Scores are corrected as the memory says."
    table = "\n".join(["| T | accuracy | 95 % interval |", "|--:|--:|--:|", *rows])
    return f"## Figures\n\nOn {n:,} rows ({markdown_text(named)}), by `deepthink eval`. {note}\n\n{table}"


def card_of(header: Header, repo: str, has_adapter: bool, licence: str | None, figures: str = "") -> str:
    """The card of a memory: its metadata for the hub, then Markdown; texts of others are as they are, in code blocks.

    `licence` is the model's; `has_adapter` if the memory is published in PEFT's form, too.
    """
    from huggingface_hub import ModelCardData

    from deepthink_cli.tasks.catalogue import built_in

    metadata, task = header.metadata, built_in().get(header.metadata.task or "")
    front = ModelCardData(
        base_model=hub_id(metadata.model),
        datasets=[task.hub.path] if task is not None and task.hub is not None else None,
        library_name="peft" if has_adapter else None,
        license=licence,
        tags=_TAGS,
    ).to_yaml()
    introduction = (
        f"# {markdown_text(repo.rpartition('/')[2])}\n\nA memory of {metadata.shots} solved examples "
        f"({len(metadata.demonstrations.token_ids)} tokens), made by "
        "[Deep-Thinking](https://arxiv.org/abs/2305.13016): the model read them "
        f"{metadata.iterations} times, and its keys and values of every layer were stored. No weight was changed. "
        f"`{MEMORY}` ({size(header.size)}) fits the model that made it and no other."
    )
    model = Path(metadata.model.id)
    name = model.name if model.is_absolute() else metadata.model.id  # without a folder's path
    shown = replace(metadata, model=replace(metadata.model, id=name))
    origin = {
        **origin_lines(shown, method_text(metadata.iterations, metadata.rule, metadata.positions)),
        **prompt_lines(metadata.labels, metadata.template, metadata.chat),
        "versions": ", ".join(f"{name} {number}" for name, number in metadata.versions.items()),
        "sha256": metadata.sha256,
    }
    stored = metadata.demonstrations
    pairs = zip(stored.texts, stored.labels, strict=True)
    demonstrations = [json_line({"text": text, "label": label}).rstrip() for text, label in pairs]
    named = f": `{markdown_text(licence)}`" if licence else ""
    rows = f" The demonstrations are from {task.title}: {task.licence}." if task else ""
    parts = [
        f"---\n{front}\n---",
        introduction,
        "## What made it\n\n" + _fenced([f"{name:<9} {text}" for name, text in origin.items()]),
        figures,
        _usage(header, repo, has_adapter),
        "## Demonstrations\n\nThe file contains them, in this order:\n\n" + _fenced(demonstrations, "json"),
        f"## Licence\n\nThe licence of {markdown_text(shown.model.id)} applies{named}.{rows}",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _usage(header: Header, repo: str, has_adapter: bool) -> str:
    lines = [f"deepthink pull {repo} -o {MEMORY}", f"deepthink predict {MEMORY} inputs.jsonl"]
    text = "## How to use it\n\n" + _fenced(lines, "bash")
    if not has_adapter:
        return text
    code = [
        "from peft import PeftModel",
        "from transformers import AutoModelForCausalLM",
        "",
        f"model = AutoModelForCausalLM.from_pretrained({hub_id(header.metadata.model) or 'MODEL'!r})",
        f"model = PeftModel.from_pretrained(model, {repo!r})",
    ]
    about = "As a prefix adapter of PEFT (the last stored iteration); the query's tokenizer must not add a BOS"
    corrected = "" if header.metadata.calibrated is None else ", and scores are not corrected"
    return f"{text}\n\n{about}{corrected}:\n\n{_fenced(code, 'python')}"


def hub_id(model: ModelIdentity) -> str | None:
    """The id of a hub model; None for a local folder or file and for the built-in model."""
    return model.id if _HUB_ID.fullmatch(model.id) and model.revision is not None else None


def _fenced(lines: Sequence[str], language: str = "text") -> str:
    """Lines in a code block, whose fence is longer than any run of backticks in them."""
    shown = [printable(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *shown, fence])

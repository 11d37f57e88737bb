"""The card of a published memory: what made it, its figures, how to use it, its demonstrations and licence.

huggingface_hub writes the metadata (`ModelCardData`); its `EvalResult` requires a data set of the Hub, and its card
templates escape nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    from deepthink_cli.artifact.metadata import Metadata
    from deepthink_cli.tasks.format import Task

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


@dataclass(frozen=True)
class Card:
    """What a card says of a memory, and its `figures`; `has_adapter` if it is published in PEFT's form, too.

    `licence` is the model's.
    """

    header: Header
    repo: str
    has_adapter: bool
    licence: str | None
    figures: str = ""

    def text(self) -> str:
        """The card: its metadata for the hub, then Markdown; texts of others are shown as they are, in code blocks."""
        parts = [self._introduction(), self._origin(), self.figures, self._usage(), self._demonstrations()]
        front = f"---\n{self._front_matter()}\n---"
        return "\n\n".join(part for part in (front, *parts, self._licence()) if part) + "\n"

    @property
    def _base(self) -> str | None:
        return hub_id(self.header.metadata.model)

    @property
    def _task(self) -> Task | None:
        """The task of the catalogue that the demonstrations come from."""
        from deepthink_cli.tasks.catalogue import built_in

        return built_in().get(self.header.metadata.task or "")

    def _front_matter(self) -> str:
        from huggingface_hub import ModelCardData

        task = self._task
        return ModelCardData(
            base_model=self._base,
            datasets=[task.hub.path] if task is not None and task.hub is not None else None,
            library_name="peft" if self.has_adapter else None,
            license=self.licence,
            tags=_TAGS,
        ).to_yaml()

    def _introduction(self) -> str:
        metadata = self.header.metadata
        return (
            f"# {markdown_text(self.repo.rpartition('/')[2])}\n\nA memory of {metadata.shots} solved examples "
            f"({len(metadata.demonstrations.token_ids)} tokens), made by "
            "[Deep-Thinking](https://arxiv.org/abs/2305.13016): the model read them "
            f"{metadata.iterations} times, and its keys and values of every layer were stored. No weight was changed. "
            f"`{MEMORY}` ({size(self.header.size)}) fits the model that made it and no other."
        )

    def _origin(self) -> str:
        metadata = self.header.metadata
        lines = {
            **origin_lines(
                without_paths(metadata), method_text(metadata.iterations, metadata.rule, metadata.positions)
            ),
            **prompt_lines(metadata.labels, metadata.template, metadata.chat),
            "versions": ", ".join(f"{name} {number}" for name, number in metadata.versions.items()),
            "sha256": metadata.sha256,
        }
        return "## What made it\n\n" + _fenced([f"{name:<9} {text}" for name, text in lines.items()])

    def _usage(self) -> str:
        base = self._base or "MODEL"
        lines = [f"deepthink pull {self.repo} -o {MEMORY}", f"deepthink predict {MEMORY} inputs.jsonl"]
        text = "## How to use it\n\n" + _fenced(lines, "bash")
        if not self.has_adapter:
            return text
        code = [
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM",
            "",
            f"model = AutoModelForCausalLM.from_pretrained({base!r})",
            f"model = PeftModel.from_pretrained(model, {self.repo!r})",
        ]
        about = "As a prefix adapter of PEFT (the last stored iteration); the query's tokenizer must not add a BOS"
        corrected = "" if self.header.metadata.calibrated is None else ", and scores are not corrected"
        return f"{text}\n\n{about}{corrected}:\n\n{_fenced(code, 'python')}"

    def _demonstrations(self) -> str:
        stored = self.header.metadata.demonstrations
        rows = [
            json_line({"text": text, "label": label}).rstrip()
            for text, label in zip(stored.texts, stored.labels, strict=True)
        ]
        return "## Demonstrations\n\nThe file contains them, in this order:\n\n" + _fenced(rows, "json")

    def _licence(self) -> str:
        model, task = markdown_text(_last(self.header.metadata.model.id)), self._task
        named = f": `{markdown_text(self.licence)}`" if self.licence else ""
        rows = f" The demonstrations are from {task.title}: {task.licence}." if task else ""
        return f"## Licence\n\nThe licence of {model} applies{named}.{rows}"


def hub_id(model: ModelIdentity) -> str | None:
    """The id of a hub model; None for a local folder or file and for the built-in model."""
    return model.id if _HUB_ID.fullmatch(model.id) and model.revision is not None else None


def without_paths(metadata: Metadata) -> Metadata:
    """The metadata with the name of the model's folder in place of its path."""
    model = metadata.model
    return replace(metadata, model=replace(model, id=_last(model.id)))


def _last(path: str) -> str:
    return Path(path).name if Path(path).is_absolute() else path


def _fenced(lines: Sequence[str], language: str = "text") -> str:
    """Lines in a code block, whose fence is longer than any run of backticks in them."""
    shown = [printable(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *shown, fence])

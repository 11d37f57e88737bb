"""`deepthink inspect`: describe a memory from its header alone; torch is never imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.console import bar, report, size, table, write_json
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import OUTPUT, CommonArguments
from deepthink_cli.cli.predict import MemoryFile
from deepthink_cli.techniques.registry import CT_KV

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.artifact.metadata import Metadata
    from deepthink_cli.provenance import Technique, Tuned

Verify = Annotated[
    bool, typer.Option("--verify", rich_help_panel=OUTPUT, help="Read every byte and compare with the digest.")
]


@grouped
def inspect(
    memory: MemoryFile, verify: Verify = False, *, common: Annotated[CommonArguments, Without("quiet", "verbose")]
) -> None:
    """Show a memory's model, method, drift, sizes, labels, template and demonstrations."""
    from deepthink_cli.artifact import format as artifact

    header = artifact.read_header(Path(memory))
    if verify:
        artifact.verify(header)
    if common.json:
        write_json({**artifact.summary(header), **({"verified": True} if verify else {})})
        return
    report(*_facts(header), "", *_drift(header.metadata), "", *_demonstrations(header.metadata))
    if verify:
        report("", f"digest verified: {header.metadata.sha256}")


def _facts(header: Header) -> list[str]:
    metadata = header.metadata
    model = metadata.model
    keys, values = (
        header.tensors[f"iteration.{metadata.kept[-1]}.layer.0.{part}"].shape for part in ("keys", "values")
    )
    shape = f"{header.layers} layers of keys {_by(keys)} and values {_by(values)} (kv_heads x L x head_dim)"
    kept = ", ".join(map(str, metadata.kept))
    revision = f" at {model.revision}" if model.revision else ""
    quantized = f", {model.quantize}" if model.quantize else ""
    adapter = f", with {model.adapter}" if model.adapter else ""
    drawn = "" if metadata.seed is None else f", seed {metadata.seed}"
    return [
        f"memory    {header.path} ({size(header.size)}, format {metadata.format_version})",
        f"model     {model.id}{revision} ({model.architecture}, {model.dtype}{quantized}{adapter})",
        f"method    T = {metadata.iterations}, {metadata.rule}, {metadata.positions} positions",
        *([f"made by   {metadata.technique}"] if metadata.technique else []),
        *([f"words     {_words(metadata.technique)}"] if metadata.technique and metadata.technique.words else []),
        *([f"task      {metadata.task}{drawn}"] if metadata.task else []),
        *([f"selected  {metadata.selected}"] if metadata.selected else []),
        *([f"tuned     {_tuned(metadata.tuned)}"] if metadata.tuned else []),
        f"stored    iteration {kept}: {shape}, {metadata.dtypes['memory']}",
        f"labels    {', '.join(metadata.labels) or 'with every input'}",
        f"template  {metadata.template.pattern!r}, separator {metadata.template.separator!r}",
        *([f"prompts   {metadata.chat}, template {metadata.chat.template_sha256[:12]}"] if metadata.chat else []),
        f"versions  {', '.join(f'{name} {number}' for name, number in metadata.versions.items())}",
    ]


def _tuned(tuned: Tuned) -> str:
    chosen = f"chosen from {tuned.tried} settings by {tuned.folds}-fold cross-validation over {tuned.rows} rows"
    return f"{chosen}: {tuned.accuracy:.1%}, plain {tuned.baseline:.1%}; calibration {tuned.calibration}"


def _words(technique: Technique) -> str:
    """What the model reads in place of the labels."""
    return "read in place of the labels: " + ", ".join(f"{label} -> {word}" for label, word in technique.words.items())


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _drift(metadata: Metadata) -> list[Any]:
    """Relative change of keys and values by iteration (mean over the layers) and, for the last, by layer."""
    if not metadata.drift:
        trained = metadata.technique is not None and metadata.technique.name == CT_KV
        return [f"one reading: {'then trained by gradients' if trained else 'plain in-context learning, no drift'}"]
    changes = metadata.drift
    most = max(drift.mean_keys + drift.mean_values for drift in changes.values())
    by_iteration = [
        [t, f"{drift.mean_keys:.3%}", f"{drift.mean_values:.3%}", bar(drift.mean_keys + drift.mean_values, 0, most)]
        for t, drift in changes.items()
    ]
    last = list(changes)[-1]
    pairs = zip(changes[last].keys, changes[last].values, strict=True)
    by_layer = [[str(layer), f"{keys:.3%}", f"{values:.3%}"] for layer, (keys, values) in enumerate(pairs)]
    return [
        table("drift at T", "keys", "values", "", rows=by_iteration),
        "",
        table(f"layer, T = {last}", "keys", "values", rows=by_layer),
    ]


def _demonstrations(metadata: Metadata) -> list[str]:
    stored = metadata.demonstrations
    lines = [f"{metadata.shots} demonstrations, {len(stored.token_ids)} tokens:"]
    for number, (text, label) in enumerate(zip(stored.texts, stored.labels, strict=True), start=1):
        shown = text if isinstance(text, str) else " | ".join(text.values())
        line = " ".join(shown.split())
        lines.append(f"{number:>4}  {line if len(line) <= 80 else line[:77] + '...'}  ->  {label}")
    return lines

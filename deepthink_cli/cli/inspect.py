"""`deepthink inspect`: describe a memory from its header alone; torch is never imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import bar, report, table, write_json
from deepthink_cli.cli.data_options import MemoryFile
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.io.text import size
from deepthink_cli.options import OUTPUT, Flag
from deepthink_cli.provenance import method_text, origin_lines, prompt_lines, stored_text
from deepthink_cli.techniques.registry import first_reading

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.artifact.metadata import Metadata, StoredDemonstrations

Verify = Annotated[bool, Flag(OUTPUT, "Read every byte and compare with the digest.", variable=False)]


@about("inspect mem.safetensors --verify", group="The two stages")
@grouped
def inspect(
    memory: MemoryFile, verify: Verify = False, *, common: Annotated[CommonArguments, Without("quiet", "verbose")]
) -> None:
    """Show a memory's model, method, drift, sizes, labels, template and demonstrations.

    Of a file of deepthink vectors, it shows the model, the rows, the factors and the demonstrations of its prompts.
    """
    from deepthink_cli.artifact import format as artifact
    from deepthink_cli.plugins.vectors.file import is_vectors

    if is_vectors(memory):
        return _inspect_vectors(memory, verify, common.as_json)
    header = artifact.read_header(Path(memory))
    if verify:
        artifact.verify(header)
    if common.as_json:
        write_json({**artifact.summary(header), **({"verified": True} if verify else {})})
        return
    report(*_facts(header), "", *_drift(header.metadata), "", *_demonstrations(header.metadata.demonstrations))
    if verify:
        report("", f"digest verified: {header.metadata.sha256}")


def _inspect_vectors(path: Path, verify: bool, json: bool) -> None:
    from deepthink_cli.plugins.vectors.file import read_vectors

    file = read_vectors(path)
    if verify:
        _ = file.body  # raises for another digest
    if json:
        write_json({**file.summary(), **({"verified": True} if verify else {})})
        return
    metadata, (layers, rows, width) = file.metadata, file.shape
    lines = {
        "vectors": f"{path} ({size(file.container.size)}, format {metadata.format_version})",
        **origin_lines(metadata.provenance, "vectors added to one reading of the demonstrations and to the query"),
        "rows": f"{metadata.rows} of {metadata.source}",
        "stored": f"{layers} layers x {rows} (each label, and the query) x width {width}, float32",
        **prompt_lines(metadata.labels, metadata.template, None),
        **_versions(metadata.versions),
    }
    report(*_lines(lines), "", *_demonstrations(metadata.demonstrations))
    if verify:
        report("", f"digest verified: {metadata.sha256}")


def _facts(header: Header) -> list[str]:
    metadata = header.metadata
    keys, values = header.shape(0, "keys"), header.shape(0, "values")
    lines = {
        "memory": f"{header.path} ({size(header.size)}, format {metadata.format_version})",
        **origin_lines(metadata, method_text(metadata.iterations, metadata.rule, metadata.positions)),
        "stored": stored_text(metadata.kept, header.layers, keys, values, metadata.dtypes["memory"]),
        **prompt_lines(metadata.labels, metadata.template, metadata.chat),
        **_versions(metadata.versions),
    }
    return _lines(lines)


def _versions(numbers: Mapping[str, str]) -> dict[str, str]:
    return {"versions": ", ".join(f"{name} {number}" for name, number in numbers.items())}


def _lines(facts: Mapping[str, str]) -> list[str]:
    return [f"{name:<9} {text}" for name, text in facts.items()]


def _drift(metadata: Metadata) -> list[Any]:
    """Relative change of keys and values by iteration (mean over the layers) and, for the last, by layer."""
    if not metadata.drift:
        return [f"no drift: T = 1 is {first_reading(metadata.technique)}"]
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


def _demonstrations(stored: StoredDemonstrations) -> list[str]:
    lines = [f"{len(stored.texts)} demonstrations, {len(stored.token_ids)} tokens:"]
    for number, (text, label) in enumerate(zip(stored.texts, stored.labels, strict=True), start=1):
        shown = text if isinstance(text, str) else " | ".join(text.values())
        line = " ".join(shown.split())
        lines.append(f"{number:>4}  {line if len(line) <= 80 else line[:77] + '...'}  ->  {label}")
    return lines

"""`deepthink inspect`: describe a memory from its header alone; torch is never imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from deepthink_cli.artifact.metadata import method_text, origin_lines, prompt_lines, versions_line
from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import report, table, write_json
from deepthink_cli.cli.data_options import MemoryFile
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.names import flag
from deepthink_cli.cli.options import CommonArguments, Details
from deepthink_cli.io.text import size
from deepthink_cli.options import OUTPUT, Flag
from deepthink_cli.registry import loaded
from deepthink_cli.techniques.registry import first_reading

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.artifact.metadata import Metadata, StoredDemonstrations

SHOWN, READINGS, WIDTH = 10, 5, 55  # demonstrations, readings with their drift, and the characters of a demonstration
Verify = Annotated[bool, Flag(OUTPUT, "Read every byte and compare with the digest.", variable=False)]


@about("inspect mem.safetensors --verify", group="The two stages")
@grouped
def inspect(
    memory: MemoryFile,
    verify: Verify = False,
    details: Details = False,
    *,
    common: Annotated[CommonArguments, Without("quiet", "verbose")],
) -> None:
    """Show a memory's model, method, labels and demonstrations.

    Also its drift, sizes and template. Of another file that predict takes, such as vectors, it shows the model, the
    rows and the demonstrations.
    """
    from deepthink_cli.artifact import format as artifact
    from deepthink_cli.artifact.container import opener_of

    facts: list[Any]
    if opener := opener_of(memory):
        found = loaded(opener.describe)(str(memory), verify)
        values, stored, sha256, facts = found.values, found.demonstrations, found.sha256, _lines(found.facts)
        more = "all demonstrations" if len(stored.texts) > SHOWN else ""
    else:
        header = artifact.read_header(Path(memory))
        if verify:
            artifact.read_artifact(header)
        values, stored, sha256 = artifact.summary(header), header.metadata.demonstrations, header.metadata.sha256
        facts = [*_facts(header, details), "", *_drift(header.metadata, details)]
        more = "shapes, versions, all of the drift, all demonstrations"
    if common.as_json:
        write_json({**values, **({"verified": True} if verify else {})})
        return
    report(*facts, "", *_demonstrations(stored, details))
    if more and not details:
        report("", f"{flag('details')}: {more}")
    if verify:
        report("", f"digest verified: {sha256}")


def _facts(header: Header, details: bool) -> list[str]:
    metadata, kept = header.metadata, ", ".join(map(str, header.metadata.kept))
    keys, values = (" x ".join(map(str, header.shape(0, part))) for part in ("keys", "values"))
    shapes = {"shapes": f"keys {keys}, values {values} (kv_heads x L x head_dim)"}
    lines = {
        "memory": f"{header.path} ({size(header.size)}, format {metadata.format_version})",
        **origin_lines(metadata, method_text(metadata.iterations, metadata.rule, metadata.positions)),
        "stored": f"iteration {kept}: {header.layers} layers, {metadata.dtypes['memory']}",
        **(shapes if details else {}),
        **prompt_lines(metadata.labels, metadata.template, metadata.chat),
        **(versions_line(metadata.versions) if details else {}),
    }
    return _lines(lines)


def _lines(facts: Mapping[str, str]) -> list[str]:
    return [f"{name:<9} {text}" for name, text in facts.items()]


def _drift(metadata: Metadata, details: bool) -> list[Any]:
    """Relative change of keys and values by iteration (mean over the layers); with details, of the last by layer."""
    if not metadata.drift:
        return [f"no drift: T = 1 is {first_reading(metadata.technique)}"]
    changes = metadata.drift
    rows = [[t, f"{drift.mean_keys:.3%}", f"{drift.mean_values:.3%}"] for t, drift in changes.items()]
    by_t = table("drift at T", "keys", "values", rows=rows if details else rows[-READINGS:])
    if not details:
        return [by_t]
    last = list(changes)[-1]
    pairs = zip(changes[last].keys, changes[last].values, strict=True)
    by_layer = [[str(layer), f"{keys:.3%}", f"{values:.3%}"] for layer, (keys, values) in enumerate(pairs)]
    return [by_t, "", table(f"layer, T = {last}", "keys", "values", rows=by_layer)]


def _demonstrations(stored: StoredDemonstrations, details: bool) -> list[str]:
    count = len(stored.texts)
    shown_count = count if details else min(SHOWN, count)
    lines = [f"{count} demonstrations, {len(stored.token_ids)} tokens:"]
    for number, (text, label) in enumerate(zip(stored.texts[:shown_count], stored.labels, strict=False), start=1):
        shown = text if isinstance(text, str) else " | ".join(text.values())
        line = " ".join(shown.split())
        lines.append(f"{number:>4}  {line if len(line) <= WIDTH else line[: WIDTH - 3] + '...'}  ->  {label}")
    return lines if shown_count == count else [*lines, f"   ... and {count - shown_count} more"]

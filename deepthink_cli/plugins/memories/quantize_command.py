"""`deepthink quantize`: store a memory in 8 or 4 bits a number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from deepthink_cli.cli.about import about
from deepthink_cli.cli.console import note, report, write_json
from deepthink_cli.cli.data_options import MemoryFile
from deepthink_cli.cli.grouped import grouped
from deepthink_cli.cli.options import CommonArguments
from deepthink_cli.cli.values import read_by
from deepthink_cli.io.text import size
from deepthink_cli.options import OUTPUT, Flag

To = Annotated[Literal["int8", "int4"], Flag(OUTPUT, "Bits per number: int8 or int4.", variable=False)]
Output = Annotated[Path, Flag(OUTPUT, "Output file of the quantized memory.", "FILE", short="-o", variable=False)]


@about("quantize mem.safetensors --to int8 -o mem8.safetensors")
@grouped
def quantize(memory: MemoryFile, output: Output, to: To = "int8", *, common: CommonArguments) -> None:
    """Store a memory in 8 or 4 bits a number.

    Keys are scaled per channel, values per token. Every command reads it as any other memory. diff shows the labels
    that change.
    """
    from deepthink_cli.artifact.format import read_header
    from deepthink_cli.outputs import check_memory_apart

    source = read_header(memory)  # refuses another file, without torch
    check_memory_apart(output, read_by(memory, config=common.config))
    from deepthink_cli.artifact.files import load_memory
    from deepthink_cli.plugins.memories.diff import tensor_changes
    from deepthink_cli.plugins.memories.quantize import save_quantized

    header = save_quantized(source, 8 if to == "int8" else 4, output)
    changes = tensor_changes(load_memory(memory), load_memory(output))
    form = header.metadata.quantized
    assert changes is not None  # both have the same shapes
    assert form is not None
    before, after, change = source.size, header.size, changes.whole
    note(f"wrote {output} ({size(after)})", common.quiet)
    if not common.as_json:
        report(
            f"size    {size(before)} -> {size(after)}, {after / before:.3f} of the bytes",
            f"change  keys {change.keys:.3%}, values {change.values:.3%} "
            f"(relative, iteration {header.metadata.kept[-1]})",
            f"labels  not compared; run: deepthink diff {memory} {output} ROWS",
        )
        return
    write_json(
        {
            "file": header.path,
            "source": source.path,
            "to": form.dtype,
            "group": form.group,
            "bytes_before": before,
            "bytes_after": after,
            "share": after / before,
            "change": {"keys": change.keys, "values": change.values},
            "sha256": header.metadata.sha256,
        }
    )

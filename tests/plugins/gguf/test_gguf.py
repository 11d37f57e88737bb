"""Models in GGUF files: read exactly, identified by their bytes, and what transformers ignores of them is named."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from conftest import Models, write_rows
from helpers.families import write_model
from helpers.said import Captured, output, refused
from helpers.tiny import run_words
from helpers.tiny_gguf import write_gguf
from transformers import AutoModelForCausalLM

from deepthink_cli import load_memory, load_model
from deepthink_cli.cli.main import run
from deepthink_cli.errors import DeepThinkError, InputError, Problem
from deepthink_cli.experiments.results import read_results
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.gguf.files import read_header

gguf = pytest.importorskip("gguf", reason="gguf is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
gguf_tensors = pytest.importorskip("gguf_tensors", reason="gguf is not installed")

ARRAY = struct.pack("<Q", 1) + b"a" + struct.pack("<I", 9)  # the name and the type of a field of a GGUF file
# Fields that transformers does not read from a GGUF file have its defaults: layers in turn, softcapping as in Gemma.
READABLE: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "gemma2": {"sliding_window": 48},
    "gemma3_text": {"sliding_window": 48, "sliding_window_pattern": 6, "num_hidden_layers": 6},
    "gpt2": {"n_positions": 1024},
}


@pytest.fixture(scope="session")
def tiny(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with grouped heads in a GGUF file, in blocks of Q8_0."""
    return write_gguf(models("llama"), tmp_path_factory.mktemp("gguf") / "tiny.gguf", "Q8_0")


@pytest.fixture
def cached(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a repository in the hub's cache that has GGUF files only, one of them in a folder."""
    repository, commit = tmp_path / "cache" / "models--team--tiny", "0" * 40
    (repository / "blobs").mkdir(parents=True)
    shutil.copy(tiny, repository / "blobs" / "content")  # as in the cache, the file itself has no suffix
    (repository / "snapshots" / commit / "small").mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for link in ("tiny.gguf", "small/tiny.gguf"):
        (repository / "snapshots" / commit / link).symlink_to(repository / "blobs" / "content")
    for name in ("huggingface_hub.constants", "huggingface_hub.file_download.constants"):
        monkeypatch.setattr(f"{name}.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return "team/tiny"


def opened(**options: Any) -> Any:
    return open_model(ModelOptions.checked(**options))


def thought(model: list[str], demos: Path, memory: Path) -> int:
    return run(["think", str(demos), *model, "-T", "2", "-q", "-o", str(memory)])


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_1"])
def test_every_tensor_is_the_gguf_packages_own_dequantization(models: Models, tmp_path: Path, kind: str) -> None:
    count, wrong = gguf_tensors.differing(write_gguf(models("llama"), tmp_path / "x.gguf", kind))
    assert (count, wrong) == (21, [])


@pytest.mark.parametrize("family", READABLE)
def test_a_float32_file_is_the_model_that_it_was_written_from(tmp_path: Path, family: str) -> None:
    folder = write_model(tmp_path / "model", family, **READABLE[family])
    engine = load_model(str(write_gguf(folder, tmp_path / "x.gguf")))
    ids = torch.arange(1, 97)[None]  # twice as long as the windows
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits
        assert torch.allclose(engine.model.network(ids).logits, expected, atol=1e-4)
    assert opened(model=str(tmp_path / "x.gguf")).warning is None


def test_the_file_is_named_by_its_path_here_or_on_the_hub(
    tiny: Path, cached: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    path, folder = opened(model="tiny.gguf"), opened(model=str(tiny), gguf="tiny.gguf")
    hub = opened(model=cached, gguf="tiny.gguf", offline=True)
    assert (path.id, folder.id, hub.id) == (str(tiny), str(tiny), cached)
    assert (path.revision, hub.revision) == (None, "0" * 40)
    assert not path.identify().differences(folder.identify())
    assert not path.identify().differences(hub.identify())


@pytest.mark.parametrize("name", ["tiny.gguf", "small/tiny.gguf"])
def test_predict_reopens_the_file_of_a_hub_model(cached: str, name: str, demos: Path, tmp_path: Path) -> None:
    memory, rows = tmp_path / "mem.safetensors", write_rows(tmp_path / "in.jsonl", [{"review": "fine"}])
    assert thought(["-m", f"{cached}/{name}", "--offline"], demos, memory) == 0
    made_by = load_memory(memory).provenance.model  # type: ignore[union-attr]
    assert (made_by.id, made_by.gguf, made_by.revision) == (cached, name, "0" * 40)
    assert run(["predict", str(memory), str(rows), "--offline", "-q", "-o", str(tmp_path / "out.jsonl")]) == 0


@pytest.mark.plugins
def test_every_command_reads_a_gguf_file(tiny: Path, demos: Path, tmp_path: Path, capsys: Captured) -> None:
    memory, model = tmp_path / "mem.safetensors", ["-m", str(tiny)]
    assert thought(model, demos, memory) == 0
    for command in ("predict", "eval"):
        assert run([command, str(memory), str(demos), "-q"]) == 0
    assert run(run_words(tmp_path, tiny, "-T", "2", "-q")) == 0
    (row, *_) = read_results(tmp_path / "out")
    assert row.setting.model == str(tiny)
    assert '"gguf"' in (text := output(capsys, "doctor", *model, "--json"))
    assert str(tiny) in text


def test_the_identity_covers_every_byte_and_no_name(tiny: Path, demos: Path, tmp_path: Path, capsys: Captured) -> None:
    memory, moved = tmp_path / "mem.safetensors", tmp_path / "moved" / "renamed.gguf"
    assert thought(["-m", str(tiny)], demos, memory) == 0
    moved.parent.mkdir()
    shutil.copy(tiny, moved)
    assert run(["predict", str(memory), str(demos), "-m", str(moved), "-q"]) == 0
    with open(moved, "r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        last = stream.read(1)
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([last[0] ^ 1]))
    capsys.readouterr()
    assert run(["predict", str(memory), str(demos), "-m", str(moved), "-q"]) == 2
    assert "made by another model: weights differ" in capsys.readouterr().err


def test_a_memory_of_a_gguf_file_refuses_the_model_it_was_made_from(
    models: Models, tiny: Path, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    memory = tmp_path / "mem.safetensors"
    for made_by, other in ((tiny, models("llama")), (models("llama"), tiny)):
        assert thought(["-m", str(made_by)], demos, memory) == 0
        line = refused(capsys, "predict", memory, demos, "-m", other, "-q")
        assert "made by another model: " in line
        assert f"it was made by {made_by}, this is {other}" in line


def test_a_tokenizer_beside_the_file_is_not_read(tiny: Path, models: Models, tmp_path: Path) -> None:
    shutil.copy(tiny, tmp_path / "x.gguf")
    text = (models("llama") / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace("ByteLevel", "Whitespace", 1).replace('"a"', '"zz"'))
    assert opened(model=str(tmp_path / "x.gguf")).tokenizer_sha256 == opened(model=str(tiny)).tokenizer_sha256


IGNORED: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "tensors rope_freqs.weight": ("llama", {}, {"rope_freqs.weight": (4,)}),
    "tensors blk.0.attn_q.bias, blk.1.attn_q.bias": (
        *("llama", {}),
        {"blk.0.attn_q.bias": (32,), "blk.1.attn_q.bias": (32,)},
    ),
    "attention.sliding_window 64 (no window is used)": ("llama", {"sliding_window": 64}, {}),
    "rope.scaling linear with factor 8": (
        *("llama", {"rope_scaling_type": gguf.RopeScalingType.LINEAR, "rope_scaling_factor": 8.0}),
        {},
    ),
    "tokenizer.ggml.pre smollm (texts are split as for GPT-2)": ("llama", {"tokenizer_pre": "smollm"}, {}),
}


@pytest.mark.parametrize("message", IGNORED)
def test_what_transformers_ignores_of_a_file_is_named(models: Models, tmp_path: Path, message: str) -> None:
    family, fields, tensors = IGNORED[message]
    ones = {name: numpy.ones(shape, dtype=numpy.float32) for name, shape in tensors.items()}
    spec = opened(model=str(write_gguf(models(family), tmp_path / "x.gguf", fields=fields, tensors=ones)))
    assert spec.warning == (
        f"model {tmp_path}/x.gguf: transformers ignores {message}: scores may differ from the published model's"
    )


def damaged(file: Path, keep: int, path: Path) -> Path:
    path.write_bytes(file.read_bytes()[:keep])
    return path


def test_a_truncated_file_is_refused_wherever_it_ends(tiny: Path, tmp_path: Path) -> None:
    size = tiny.stat().st_size
    for keep in (4, 20, 100, 2000, size // 2, size - 40):
        path = damaged(tiny, keep, tmp_path / "x.gguf")
        with pytest.raises(InputError, match="truncated or damaged") as caught:
            opened(model=str(path))
        assert len(caught.value.messages) == 1


def test_a_damaged_header_is_no_other_error(tiny: Path, tmp_path: Path) -> None:
    content = tiny.read_bytes()
    for place in range(4, 400, 7):
        (tmp_path / "x.gguf").write_bytes(content[:place] + b"\xff" * 8 + content[place + 8 :])
        with suppress(InputError):  # a value may also be one that does not matter
            opened(model=str(tmp_path / "x.gguf"))


@pytest.mark.parametrize(
    ("tensors", "fields", "content"),
    [
        (0, 1, ARRAY + struct.pack("<IQ", 0, 100_000)),
        (0, 1, ARRAY + struct.pack("<IQ", 8, 100_000)),
        (0, 1, ARRAY + struct.pack("<IQ", 9, 100_000)),
        (0, 100_000, b""),
        (100_000, 0, b""),
        (0, 1, ARRAY + struct.pack("<IQ", 0, 100_000) + bytes(100_000)),
    ],
    ids=["numbers", "texts", "arrays", "fields", "tensors", "numbers that are there"],
)
def test_a_header_of_more_values_than_its_file_can_have_is_not_read(
    tensors: int, fields: int, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.gguf.files._PARTS", 10_000, raising=False)
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + content)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="truncated or damaged"):
            read_header(path, Problem.of("model", "x.gguf"))
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


WRONG_KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no tokenizer": ("llama", "no tokenizer in this GGUF file", {"token_list": None, "token_merges": None}),
    "a tokenizer of another type": ("llama", "its tokenizer cannot be built", {"tokenizer_model": "bert"}),
    "an embedding model": ("qwen2", "an embedding model", {"pooling_type": gguf.PoolingType.LAST}),
    "an encoder": ("llama", "an embedding model", {"causal_attention": False}),
    "an adapter": ("llama", "a GGUF file of type adapter, not a model", {"type": "adapter"}),
    "bert": ("llama", "architecture bert is not supported", {}),
    "t5": ("llama", "is an encoder-decoder", {}),
    "mamba": ("llama", "keep a state instead of keys and values", {}),
}


@pytest.mark.parametrize("case", WRONG_KINDS)
def test_a_file_of_another_kind_or_architecture_is_refused_by_name(models: Models, tmp_path: Path, case: str) -> None:
    family, message, fields = WRONG_KINDS[case]
    how: dict[str, Any] = {"fields": fields} if fields else {"architecture": case}
    with pytest.raises(InputError, match=message) as caught:
        opened(model=str(write_gguf(models(family), tmp_path / "x.gguf", **how)))
    assert len(caught.value.messages) == 1


def test_a_type_that_cannot_be_dequantized_is_named(models: Models, tmp_path: Path) -> None:
    block = {"extra.weight": numpy.ones((1, 256), dtype=numpy.float32)}  # as wide as a block of Q8_K
    content = write_gguf(models("llama"), tmp_path / "x.gguf", tensors=block).read_bytes()
    place = content.index(b"extra.weight") + len(b"extra.weight") + 4 + 16
    (tmp_path / "x.gguf").write_bytes(content[:place] + b"\x0f\0\0\0" + content[place + 4 :])
    with pytest.raises(InputError, match=r"tensors of type Q8_K, which the gguf package cannot dequantize"):
        opened(model=str(tmp_path / "x.gguf"))


def test_weights_that_the_file_does_not_hold_are_an_error_of_one_line(models: Models, tmp_path: Path) -> None:
    file = write_gguf(models("llama"), tmp_path / "x.gguf")
    file.write_bytes(file.read_bytes().replace(b"blk.1.ffn_down", b"blk.1.ffn_dow_"))
    with pytest.raises(DeepThinkError, match=r"1 weights are missing, such as model.layers.1.mlp.down_proj.weight"):
        load_model(str(file))


def test_names_that_do_not_fit_are_refused_with_a_hint(
    tiny: Path, models: Models, cached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, part = tiny.parent, tmp_path / "big-00001-of-00003.gguf"
    shutil.copy(tiny, part)
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "x.gguf").write_bytes(b"PK\3\4" + bytes(40))
    (tmp_path / "model.bin").write_bytes(b"")
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"model": str(folder), "gguf": "tiny.gguf"}, "gguf tiny.gguf: is a file of a repository of the hub"),
        ({"model": str(folder)}, r"no config.json in this directory; name a file: .*/tiny.gguf"),
        (
            {"model": "team/absent", "gguf": "other.gguf", "offline": True},
            "model team/absent: not in the cache.*; omit offline",
        ),
        ({"model": "team/absent", "offline": True}, "model team/absent: not in the cache.*; omit offline"),
        ({"model": str(part)}, "part 1 of 3 of a split GGUF file; join the parts"),
        ({"model": cached, "gguf": part.name}, "/big-00001-of-00003.gguf: part 1 of 3"),
        ({"model": str(tmp_path / "folder.gguf")}, "no config.json in this directory"),
        ({"model": str(tmp_path / "x.gguf")}, "not a GGUF file; download it again"),
        ({"model": str(tmp_path / "model.bin")}, "a file that does not end with .gguf; name the model's directory"),
        (
            {"model": str(tmp_path / "absent.gguf")},
            "no such file; check the path, or name a file of the hub, as in ID/FILE.gguf",
        ),
        ({"model": str(tmp_path / "absent.gguf"), "gguf": "absent.gguf"}, "no such file; check the path"),
        ({"gguf": ""}, "gguf : must not be empty"),
        ({"model": cached, "gguf": "../tiny.gguf"}, "leads out of the model"),
        ({"model": str(tiny), "quantize": "8bit"}, "quantize 8bit: the weights of a GGUF file are dequantized"),
        ({"model": str(tiny), "revision": "main"}, "revision main: .* is on this machine; omit revision"),
    ]
    monkeypatch.setattr("deepthink_cli.model.opening._check_extras", lambda options: None)  # bitsandbytes is not here
    for options, message in refusals:
        with pytest.raises(DeepThinkError, match=message) as caught:
            opened(**options)
        assert len(caught.value.messages) == 1


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_a_missing_package_is_named_with_its_extra(tiny: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(
        InputError, match=rf"{package} is not installed; in a checkout of deepthink: pip install '\.\[gguf\]'"
    ):
        opened(model=str(tiny))


def test_a_command_shows_the_warning_even_if_quiet(
    models: Models, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    file = write_gguf(models("llama"), tmp_path / "x.gguf", fields={"tokenizer_pre": "smollm"})
    assert thought(["-m", str(file)], demos, tmp_path / "mem.safetensors") == 0
    assert "transformers ignores tokenizer.ggml.pre smollm" in capsys.readouterr().err

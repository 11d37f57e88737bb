"""A memory file says what it is, and one that is foreign, cut or changed is refused; the bytes are made by hand."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from helpers.by_hand import Tensors, canonical, changed, demonstrations_sha256, signed, with_header
from safetensors import safe_open

from deepthink_cli import Gate, Method
from deepthink_cli.artifact.format import Header, read_artifact, read_header
from deepthink_cli.errors import InputError

METADATA: dict[str, Any] = {
    "format_version": 1,
    "model": {
        "id": "tiny",
        "revision": None,
        "architecture": "TinyForCausalLM",
        "config_sha256": "c" * 64,
        "weights_sha256": "0" * 64,
        "tokenizer_sha256": "1" * 64,
        "dtype": "float32",
        "quantize": None,
    },
    "demonstrations": {"token_ids": [5, 6, 7], "texts": ["héllo", {"text": "x"}], "labels": ["p", "q"], "sha256": ""},
    "template": {"pattern": "{text} {label}", "separator": "\n"},
    "labels": ["p", "q"],
    "iterations": 3,
    "eta": 0.01,
    "momentum": 0.0,
    "positions": "continued",
    "kept": [1, 3],
    "dtypes": {"memory": "float32", "model": "float32"},
    "task": None,
    "seed": 4,
    "shots": 2,
    "versions": {"torch": "2"},
    "drift": {"2": {"keys": [0.25, 0.5], "values": [0.125, 0.0]}, "3": {"keys": [0.5, 0.5], "values": [1.0, 2.0]}},
    "sha256": "",
}
METADATA["demonstrations"]["sha256"] = demonstrations_sha256(METADATA)
CORRECTION: dict[str, Any] = {
    "method": "batch",
    "scoring": {},
    "bias": {t: {kind: {"p": -0.5, "q": -1.0} for kind in ("compared", "per_token")} for t in ("1", "3")},
    "inputs": 20,
    "sha256": "e" * 64,
    "source": "rows.jsonl",
}
NAMES = [f"iteration.{t}.layer.{layer}.{part}" for t in (1, 3) for layer in (0, 1) for part in ("keys", "values")]
SHAPE = [2, 3, 4]
SIZE = 4 * 2 * 3 * 4


def entries(**changes: Any) -> Tensors:
    listed = {
        name: {"dtype": "F32", "shape": SHAPE, "data_offsets": [SIZE * place, SIZE * (place + 1)]}
        for place, name in enumerate(NAMES)
    }
    listed[NAMES[0]] |= changes
    return listed


def content(tensors: Tensors) -> bytes:
    return b"".join(struct.pack("<24f", *[number + place for place in range(24)]) for number in range(len(tensors)))


def memory_file(
    path: Path, metadata: Any = None, tensors: Tensors | None = None, extra: dict[str, str] | None = None
) -> Path:
    tensors = entries() if tensors is None else tensors
    metadata = metadata or signed(METADATA, entries(), content(entries()))
    text = metadata if isinstance(metadata, str) else canonical(metadata)
    raw = {"__metadata__": {"deepthink": text, **(extra or {})}, **tensors}
    return with_header(path, json.dumps(raw, separators=(",", ":"), ensure_ascii=False), content(tensors))


def metadata_with(*place: str | int, to: Any) -> dict[str, Any]:
    return changed(METADATA, place, to)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_header(path)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mem.safetensors"


@pytest.fixture
def header(path: Path) -> Header:
    return read_header(memory_file(path))


def test_the_bytes_made_by_hand_are_a_safetensors_file(path: Path) -> None:
    with safe_open(memory_file(path), framework="numpy") as file:
        assert sorted(file.keys()) == sorted(NAMES)
        assert file.get_tensor(NAMES[2]).tolist()[1][2] == [22, 23, 24, 25]


def test_a_header_gives_back_what_made_the_memory(header: Header) -> None:
    provenance = header.metadata.provenance()
    assert [example.text for example in provenance.demonstrations.examples] == ["héllo", {"text": "x"}]
    assert [example.label for example in provenance.demonstrations.examples] == ["p", "q"]
    assert provenance.demonstrations.token_ids == (5, 6, 7)
    assert provenance.demonstrations.template.query("why") == "why "
    assert provenance.method == Method(3, Gate(0.01), "continued")
    assert (provenance.model.id, provenance.seed, provenance.task) == ("tiny", 4, None)


def test_drift_is_in_the_order_of_the_iterations(path: Path) -> None:
    drift = {str(t): {"keys": [0.5], "values": [0.5]} for t in range(2, 12)}
    read = read_header(memory_file(path, metadata_with("drift", to=drift)))
    assert list(read.metadata.drift) == [str(t) for t in range(2, 12)]


@pytest.mark.parametrize(("place", "value"), [(("labels",), ["q", "p"]), (("demonstrations", "token_ids", 0), 8)])
def test_demonstrations_of_another_digest_are_refused_by_the_header(
    path: Path, place: tuple[str | int, ...], value: Any
) -> None:
    metadata = signed(metadata_with(*place, to=value), entries(), content(entries()))
    assert refusal(memory_file(path, metadata)) == (
        f"{path}: damaged metadata: demonstrations.sha256: not the digest of the demonstrations"
    )


def test_a_missing_file_says_how_to_make_one(path: Path) -> None:
    assert refusal(path) == f"{path}: no such file; make a memory with: deepthink think DEMOS -o {path}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<!DOCTYPE html><html><body>404: Not Found</body></html>",
        struct.pack("<Q", 2**64 - 1) + b"{}",
        struct.pack("<Q", 16 * 2**20 + 1) + b"{}" + b" " * 16 * 2**20,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b'{"a"',
        struct.pack("<Q", 4) + b"\xff\xfe{}",
        struct.pack("<Q", 90_000) + b"[" * 90_000,
        struct.pack("<Q", 15) + b'{"a":{},"a":{}}',
    ],
    ids=["empty", "html", "endless", "large", "list", "cut", "bytes", "deep", "twice"],
)
def test_another_kind_of_file_is_not_a_memory(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    hint = "name a file written by deepthink think"
    assert refusal(path) == f"{path}: not a deepthink memory (not a safetensors file); {hint}"


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}, {"deepthink": {}}, "deepthink"])
def test_a_foreign_safetensors_file_is_not_a_memory(path: Path, metadata: Any) -> None:
    head = json.dumps(entries() if metadata is None else {"__metadata__": metadata, **entries()}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + content(entries()))
    assert "not a deepthink memory (a safetensors file without deepthink metadata); " in refusal(path)


def test_a_second_metadata_key_is_refused(path: Path) -> None:
    assert "not a deepthink memory" in refusal(memory_file(path, extra={"format": "pt"}))


@pytest.mark.parametrize("missing", [1, SIZE, 8 * SIZE])
def test_a_file_cut_short_is_told_by_its_size(path: Path, missing: int) -> None:
    data = memory_file(path).read_bytes()
    path.write_bytes(data[:-missing])
    expected = f"{len(data) - missing} bytes, {len(data)} expected; copy it again"
    assert refusal(path) == f"{path}: damaged: {expected}"


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {name: entry for name, entry in entries().items() if name != NAMES[-1]},
        {name.replace("iteration.3", "iteration.2"): entry for name, entry in entries().items()},
        {name.replace("layer.1", "layer.2"): entry for name, entry in entries().items()},
        {name.replace("layer.1", "layer.01"): entry for name, entry in entries().items()},
        {**entries(), "weight": {"dtype": "F32", "shape": SHAPE, "data_offsets": [8 * SIZE, 9 * SIZE]}},
    ],
    ids=["none", "one-less", "other-iteration", "layer-left-out", "other-spelling", "one-more"],
)
def test_tensors_that_were_not_promised_are_refused(path: Path, tensors: Tensors) -> None:
    assert (
        refusal(memory_file(path, tensors=tensors))
        == f"{path}: damaged: its tensors are not those of iterations [1, 3]"
    )


@pytest.mark.parametrize("change", [{"dtype": "F16"}, {"shape": [2, 4, 3]}, {"shape": [6, 4]}, {"shape": [0, 3, 4]}])
def test_a_tensor_of_another_dtype_or_shape_is_refused(path: Path, change: dict[str, Any]) -> None:
    told = {"dtype": "F32", "shape": SHAPE} | change
    expected = f"{NAMES[0]} is {told['dtype']} {told['shape']}, not F32 (heads, 3, size)"
    assert refusal(memory_file(path, tensors=entries(**change))) == f"{path}: damaged: {expected}"


def respelled(header: str) -> dict[str, str]:
    """The same header in other words: what a JSON reader takes for the same."""
    first, second = (f'"{name}":{json.dumps(entries()[name], separators=(",", ":"))}' for name in NAMES[:2])
    return {
        "a space": header.replace(",", ", ", 1),
        "an escape": header.replace("iteration.1", "iteration\\u002e1", 1),
        "a fraction": header.replace("[0,96]", "[0.0,96]"),
        "an exponent": header.replace("0.01", "1e-2"),
        "a digit more": header.replace("0.01", "0.010"),
        "spaces in the metadata": header.replace('\\"eta\\":', '\\"eta\\": '),
        "another field": header.replace('"dtype":"F32"', '"dtype":"F32","note":1', 1),
        "another order": header.replace(f"{first},{second}", f"{second},{first}"),
        "metadata last": re.sub(r'^\{("__metadata__":\{.*?(?<!\\)"\}),(.*)\}$', r"{\2,\1}", header, flags=re.S),
    }


@pytest.mark.parametrize("change", respelled(""))
def test_there_is_one_way_to_write_a_header(path: Path, change: str) -> None:
    data = memory_file(path).read_bytes()
    header = data[8 : 8 + struct.unpack("<Q", data[:8])[0]].decode().rstrip()
    other = respelled(header)[change]
    assert other != header
    message = refusal(with_header(path, other, content(entries())))
    advice = "run it again, or copy the file again"
    assert message == f"{path}: damaged: its header is not as deepthink think writes it; {advice}"


def test_the_bytes_that_are_used_are_those_that_were_verified(header: Header) -> None:
    artifact = read_artifact(header, [3])
    assert sorted(artifact.tensors) == [name for name in NAMES if name.startswith("iteration.3")]
    Path(header.path).write_bytes(b"something else")
    assert artifact.tensors[NAMES[4]][:8] == struct.pack("<2f", 4, 5)


def test_a_file_that_changes_after_its_header_was_read_is_refused(header: Header) -> None:
    path = Path(header.path)
    for data in (path.read_bytes()[:-4], path.read_bytes()[:-4] + b"\0\0\0\0", b""):
        path.write_bytes(data)
        with pytest.raises(InputError, match="do not match its digest"):
            read_artifact(header, [1])


@pytest.mark.parametrize("offsets", [[0, SIZE + 4], [4, SIZE + 4], [SIZE, 2 * SIZE], [0, 0]])
def test_tensors_lie_one_behind_the_other(path: Path, offsets: list[int]) -> None:
    message = refusal(memory_file(path, tensors=entries(data_offsets=offsets)))
    assert message.startswith(f"{path}: damaged: the bytes of ")
    assert message.endswith(" are at the wrong offset")


@pytest.mark.parametrize("offsets", [None, [0], [0, 1, 2], ["x", "y"], [0, float("inf")], {}])
def test_a_tensor_described_otherwise_is_refused(path: Path, offsets: Any) -> None:
    message = refusal(memory_file(path, tensors=entries(data_offsets=offsets)))
    assert message == f"{path}: damaged: tensor '{NAMES[0]}' is not described as safetensors does"


@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_another_format_version_is_refused_by_its_number(path: Path, version: Any) -> None:
    message = refusal(memory_file(path, metadata_with("format_version", to=version)))
    advice = "upgrade it, or run deepthink think again"
    assert message == f"{path}: memory format {version!r}; this program reads format 1; {advice}"


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (metadata_with("author", to="me"), "author: no such field"),
        (metadata_with("model", "size", to=1), "model.size: no such field"),
        (metadata_with("eta", to="much"), "eta: must be a number"),
        (metadata_with("labels", to="p"), "labels: must be a list"),
        (metadata_with("drift", to={"two": {"keys": [], "values": []}}), "drift: not one entry for every reading"),
        (metadata_with("template", "pattern", to="{text}"), "template '{text}': needs a text field and a label field"),
        ({name: value for name, value in METADATA.items() if name != "kept"}, "kept: is missing; add it"),
    ],
    ids=["extra", "inner-extra", "number", "list", "drift", "template", "missing"],
)
def test_damaged_metadata_are_named_by_their_place(path: Path, metadata: dict[str, Any], reason: str) -> None:
    message = refusal(memory_file(path, json.dumps(metadata)))
    assert message.startswith(f"{path}: damaged metadata: {reason}")


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "{",
        "[" * 90_000,
        json.dumps(metadata_with("eta", to=float("nan"))),
        json.dumps(metadata_with("task", to="\ud800")),
    ],
)
def test_metadata_that_are_not_json_are_refused(path: Path, text: str) -> None:
    assert refusal(memory_file(path, text)) == f"{path}: not a deepthink memory: its metadata are not JSON"


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("demonstrations", "labels"), ["x"], "texts, labels and shots differ in number"),
        (("kept",), [3, 1], r"kept: \[3, 1\] are not iterations of T = 3"),
        (("kept",), [], "are not iterations"),
        (("drift",), {}, "not one entry for every reading"),
        (("drift", "2", "keys"), [0.5], "do not describe one memory"),
        (("dtypes",), {}, "do not describe one memory"),
    ],
)
def test_metadata_that_contradict_themselves_are_refused(
    place: tuple[str, ...], value: Any, reason: str, path: Path
) -> None:
    assert re.search(reason, refusal(memory_file(path, metadata_with(*place, to=value))))


def corrected(*place: str, to: Any) -> dict[str, Any]:
    """Metadata with a correction, of which one value is another."""
    metadata = {**METADATA, "calibrated": changed(CORRECTION, place, to)}
    return signed(metadata, entries(), content(entries()))


def test_a_correction_is_read(path: Path) -> None:
    stored = read_header(memory_file(path, corrected("inputs", to=20))).metadata.calibrated
    assert stored.bias["3"].compared == {"p": -0.5, "q": -1.0}
    assert str(stored) == ("batch calibration of 20 rows of rows.jsonl; at T = 3: 'p' -0.500, 'q' -1.000 nats")


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("bias",), {"1": CORRECTION["bias"]["1"]}, "calibrated.bias: not one for the labels at T = 1 and at each"),
        (("bias",), {}, "calibrated: a correction has either a bias or a head"),
        (("bias", "3", "compared", "p"), -1e300, "calibrated.bias.3.compared.p: must be -1000000.0 or more"),
        (("sha256",), "x", "calibrated.sha256: does not have the form"),
        (("bias", "3", "compared"), {"p": 0.0}, "calibrated.bias: of p, not of the labels"),
        (("bias", "3", "compared", "p"), "much", "calibrated.bias.3.compared.p: must be a number"),
        (("bias", "3", "more"), {}, "calibrated.bias.3.more: no such field"),
        (("inputs",), 0, "calibrated.inputs: "),
        (("scoring",), "best", "calibrated.scoring: "),
    ],
)
def test_a_damaged_correction_is_named_by_its_place(
    place: tuple[str, ...], value: Any, reason: str, path: Path
) -> None:
    message = refusal(memory_file(path, corrected(*place, to=value)))
    assert message.startswith(f"{path}: damaged metadata: {reason}")

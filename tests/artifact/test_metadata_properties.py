"""Metadata drawn from their schema: every number has a bound, and what the reader of headers takes, commands take."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import write_reviews, write_rows
from helpers.by_hand import changed, demonstrations_sha256, parts, write_parts
from helpers.said import Captured
from hypothesis import event, given
from hypothesis import strategies as st

from deepthink_cli.artifact.format import read_header
from deepthink_cli.artifact.metadata import ADAPTER_METADATA
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.plugins.vectors.file import VectorsMetadata

Schema = dict[str, Any]
Place = tuple[str | int, ...]
SCHEMA: Schema = ADAPTER_METADATA.json_schema()
ABSURD: list[Any] = [1e308, -1e300, 5e-324, -1, 10**39, 2**63, "", "²", "x" * 99, "positive", None, True, [], {}]
DIGEST = "0" * 64
LABELS = ("positive", "negative")


def resolved(schema: Schema) -> Schema:
    """A schema, or the one that it refers to."""
    return SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def nodes(schema: Schema, defs: Schema) -> Iterator[Schema]:
    """A schema and all schemas in it."""
    yield schema
    for key, value in schema.items():
        inner = value.values() if key in ("properties", "$defs") else value if isinstance(value, list) else [value]
        for each in inner:
            if isinstance(each, dict) and key not in ("default", "const", "enum"):
                yield from nodes(each, defs)


@pytest.mark.parametrize("kind", [ADAPTER_METADATA, pytest.param(VectorsMetadata, id="vectors")])
def test_every_number_has_a_bound_above_and_below(kind: Any) -> None:
    from pydantic import TypeAdapter

    schema = (kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)).json_schema()
    numbers = [each for each in nodes(schema, schema["$defs"]) if each.get("type") in ("integer", "number")]
    assert len(numbers) > 5
    for each in numbers:
        assert each.keys() & {"minimum", "exclusiveMinimum", "enum", "const"}, each
        assert each.keys() & {"maximum", "exclusiveMaximum", "enum", "const"}, each


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """What a schema allows."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            most = schema["maximum"] if "maximum" in schema else schema["exclusiveMaximum"] - 1
            return st.integers(schema["minimum"], most)
        case "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            return st.floats(low, schema["maximum"], exclude_min="exclusiveMinimum" in schema)
        case "string":
            pattern = schema.get("pattern")
            return st.from_regex(pattern, fullmatch=True) if pattern else st.text(max_size=8) | st.sampled_from(LABELS)
        case "array":
            each = schema.get("items")
            if each is None:
                return st.tuples(*map(values, schema["prefixItems"])).map(list)
            return st.lists(values(each), max_size=3)
        case "object" if "properties" in schema:
            required = schema.get("required", [])
            fields = {name: values(each) for name, each in schema["properties"].items()}
            return st.fixed_dictionaries(
                {name: each for name, each in fields.items() if name in required},
                optional={name: each for name, each in fields.items() if name not in required},
            )
    return st.dictionaries(
        st.sampled_from(["1", "2", *LABELS]) | st.text(max_size=3), values(schema["additionalProperties"]), max_size=3
    )


def places(value: Any, schema: Schema, at: Place = ()) -> Iterator[tuple[Place, Schema]]:
    """Every place in metadata, with the schema of what stands there; of the elements of a list, the first."""
    schema = resolved(schema)
    if "anyOf" in schema:
        kinds = {dict: "object", list: "array", str: "string", type(None): "null"}
        whole, found = schema, [resolved(each) for each in schema["anyOf"]]
        schema = next((each for each in found if each.get("type") == kinds.get(type(value))), schema)
        yield at, whole
    elif at:
        yield at, schema
    if isinstance(value, dict):
        for name, inner in value.items():
            of = schema.get("properties", {}).get(name) or schema["additionalProperties"]
            yield from places(inner, of, (*at, name))
    elif isinstance(value, list) and value:
        yield from places(value[0], schema["items"], (*at, 0))


@dataclass(frozen=True)
class Bases:
    """Metadata of memories that use every field between them, with the tensors of their files."""

    metadata: list[dict[str, Any]]
    tensors: dict[str, Any]
    body: bytes
    folder: Path

    def changed(self, number: int, place: Place, value: Any) -> Path:
        """The file with another value in one place, and the digests of that."""
        metadata = changed(self.metadata[number], place, value)
        try:
            if place != ("demonstrations", "sha256"):
                metadata["demonstrations"]["sha256"] = demonstrations_sha256(metadata)
        except (TypeError, ValueError, KeyError):
            pass  # no demonstrations that have a digest
        return write_parts(self.folder / "changed.safetensors", metadata, self.tensors, self.body)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    """A memory of the built-in model with two iterations, with a bias, with a head, and with thresholds."""
    folder = tmp_path_factory.mktemp("bases")
    path = folder / "mem.safetensors"
    demos = write_reviews(folder / "demos.jsonl")
    write_rows(folder / "rows.jsonl", [{"review": "a kind film", "sentiment": "positive"}])
    assert run(["think", str(demos), "-T", "2", "--keep", "all", "-q", "-o", str(path)]) == 0
    headed = ["calibrate", str(path), "--calibrate", "head", "-q", "-o", str(folder / "head.safetensors")]
    assert run(headed) == 0
    head, _, _ = parts(folder / "head.safetensors")
    metadata, tensors, body = parts(path)
    bias = dict.fromkeys(LABELS, -0.5)
    both = {
        **metadata,
        "selected": {"method": "random", "shots": 4, "seed": 0, "balanced": True, "pool": "p", "pool_rows": 9}
        | {"pool_sha256": DIGEST, "model": None, "model_sha256": None, "options": None},
        "technique": {"name": "flipped", "values": {"steps": 2.0}, "words": {label: label for label in LABELS}},
        "tuned": {"folds": 5, "seed": 0, "rows": 20, "tried": 9, "accuracy": 0.5, "baseline": 0.5}
        | {"calibration": "none"},
        "calibrated": {"method": "batch", "scoring": {}, "inputs": 20, "sha256": DIGEST, "source": "rows"}
        | {"bias": {t: {"compared": bias, "per_token": bias} for t in "12"}},
    }
    several = {
        **metadata,
        "template": {**metadata["template"], "label_separator": ";"},
        "thresholds": {"scoring": {}, "at": {t: dict.fromkeys(LABELS, 0.5) for t in "12"}, "rows": 20, "folds": 5}
        | {"source": "r", "micro_f1": 0.5, "macro_f1": 0.5, "subset_accuracy": 0.5, "head": head["calibrated"]["head"]},
        "update": {"name": "layer-ramp", "values": {"eta": 0.1, "momentum": 0.0, "first": 0.0, "last": 1.0}},
        "eta": 0.0,
    }
    made = Bases([both, head, several], tensors, body, folder)
    for number in range(len(made.metadata)):
        assert set(codes_of_commands(made, made.changed(number, ("seed",), 1)).values()) == {0}
    return made


COMMANDS = ("inspect MEM", "inspect MEM --json", "predict MEM ROWS --at all --offline", "eval MEM ROWS --offline")


def codes_of_commands(bases: Bases, path: Path) -> dict[str, int]:
    words = {"MEM": str(path), "ROWS": str(bases.folder / "rows.jsonl")}
    return {command: run([words.get(word, word) for word in command.split()]) for command in COMMANDS}


@pytest.mark.parametrize(
    ("number", "place", "value"),
    [
        (0, ("demonstrations", "labels", 0), "other"),
        (0, ("dtypes", "memory"), "float16"),
        (0, ("labels",), ["positive", "positive"]),
        (0, ("demonstrations", "sha256"), DIGEST),
        (0, ("demonstrations", "texts", 0), {"other": "x"}),
        (0, ("model", "tokenizer_sha256"), "²"),
        (0, ("seed",), -1),
        (0, ("technique", "words"), {"other": "lamp"}),
        (1, ("calibrated", "head", "2", "layers"), [2, 1]),
        (2, ("thresholds", "head", "2", "layers"), [2, 1]),
        (2, ("thresholds", "head"), {}),
        (2, ("thresholds", "at", "2", "positive"), 1.5),
        (2, ("update", "name"), "gate"),
    ],
)
def test_an_absurd_value_or_reference_is_refused(number: int, place: Place, value: Any, bases: Bases) -> None:
    with pytest.raises(InputError, match=r"^.* damaged metadata: [^\n]*$"):
        read_header(bases.changed(number, place, value))


@pytest.mark.parametrize("width", [1, 3])
def test_a_head_of_another_width_than_the_models_is_refused(width: int, bases: Bases, capsys: Captured) -> None:
    weights = b64encode(struct.pack(f"<{width}f", *range(width))).decode()
    head = {
        "layers": [1],
        "weights": dict.fromkeys(LABELS, weights),
        "bias": dict.fromkeys(LABELS, 0.0),
        "of_scores": 1.0,
    }
    path = bases.changed(1, ("calibrated", "head"), {"1": head, "2": head})
    assert list(codes_of_commands(bases, path).values()) == [0, 0, 2, 2]
    assert f"hidden states of {width} numbers" in capsys.readouterr().err


def test_a_head_by_a_layer_that_the_model_lacks_is_refused(bases: Bases, capsys: Captured) -> None:
    layers = [len(bases.metadata[1]["calibrated"]["head"]["1"]["layers"]) + 90]
    head = {t: {**each, "layers": layers} for t, each in bases.metadata[1]["calibrated"]["head"].items()}
    path = bases.changed(1, ("calibrated", "head"), head)
    assert list(codes_of_commands(bases, path).values())[2:] == [2, 2]
    assert f"a correction by layer {layers[0]} of a model with" in capsys.readouterr().err


@given(data=st.data())
def test_no_command_fails_as_a_bug_on_metadata_that_were_accepted(bases: Bases, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(bases.metadata) - 1))
    place, schema = data.draw(st.sampled_from(list(places(bases.metadata[number], SCHEMA))))
    path = bases.changed(number, place, data.draw(values(schema) | st.sampled_from(ABSURD), label=str(place)))
    try:
        read_header(path)
    except InputError:
        return event("refused")
    event("accepted")
    codes = codes_of_commands(bases, path)
    assert set(codes.values()) <= {0, 1, 2}, codes

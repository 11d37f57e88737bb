"""YAML and TOML files come as values, and every value is found again by its line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deepthink_cli.errors import InputError
from deepthink_cli.io.documents import Document, read_document
from deepthink_cli.tasks.catalogue import FOLDER


def read(path: Path, text: str) -> Document:
    path.write_text(text, encoding="utf-8", newline="")
    return read_document(path)


def lines(document: Document, *places: str) -> list[int]:
    return [int(document.where(*place.split(".")).rsplit(":", 1)[1]) for place in places]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_task_file_holds_what_the_yaml_library_finds_in_it(path: Path) -> None:
    assert read_document(path).values == yaml.safe_load(path.read_text(encoding="utf-8"))


def test_a_yaml_value_stands_where_its_key_does(tmp_path: Path) -> None:
    text = "# a comment\na: 1\nb:\n  c: [x,\n    y]\n  d:\n    - 1\n    - e: 2\n"
    document = read(tmp_path / "a.yaml", text)
    assert lines(document, "a", "b", "b.c", "b.c.1", "b.d.1.e") == [2, 3, 4, 5, 8]


def test_what_is_not_there_is_missing_from_what_is_around_it(tmp_path: Path) -> None:
    document = read(tmp_path / "a.yaml", "a: 1\nb:\n  c: 2\n")
    assert document.where("b", "d", "e") == f"{tmp_path}/a.yaml:2"
    assert document.where("z") == f"{tmp_path}/a.yaml:1"
    assert (document.has("b", "c"), document.has("b", "d")) == (True, False)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_unusual_line_separators_do_not_count(tmp_path: Path, end: str) -> None:
    document = read(tmp_path / "a.yaml", f'\ufeffa: "one\u2028two\u0085three"{end}b: 2{end}')
    assert lines(document, "a", "b") == [1, 2]


def test_a_toml_value_stands_where_its_statement_begins(tmp_path: Path) -> None:
    text = 'a = """\nc = 1\n"""\n# b = 2\nb = [\n  1,\n  2,\n]\n"c-d" = 3\n\n[e]\nb = 4\n'
    document = read(tmp_path / "a.toml", text)
    assert lines(document, "a", "b", "c-d", "e") == [1, 5, 9, 11]
    assert document.values == {"a": "c = 1\n", "b": [1, 2], "c-d": 3, "e": {"b": 4}}


def test_merged_fields_go_behind_a_mappings_own(tmp_path: Path) -> None:
    text = "one: &one {a: 1, b: 1}\ntwo: &two {b: 2, c: 2}\nboth:\n  <<: [*one, *two]\n  c: 3\n"
    document = read(tmp_path / "a.yaml", text)
    assert document.values == yaml.safe_load(text)
    assert document.values["both"] == {"a": 1, "b": 1, "c": 3}
    assert lines(document, "both.a", "both.c") == [1, 5]


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "a.yaml", "# nothing\n").values is None
    assert read(tmp_path / "a.toml", "# nothing\n").values == {}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.yaml: cannot be read: No such file"):
        read_document(tmp_path / "a.yaml")


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "7" * 5000, "1" + "_0" * 5000])
@pytest.mark.parametrize("kind", ["yaml", "toml"])
def test_a_number_of_thousands_of_digits_is_refused(number: str, kind: str, tmp_path: Path) -> None:
    text = f"a: 1\nb: [1, {number}]\n" if kind == "yaml" else f"a = 1\nb = [1, {number}]\n"
    with pytest.raises(InputError, match=rf"a\.{kind}(:2)?: .*a number (has more than 100 digits|is too long)"):
        read(tmp_path / f"a.{kind}", text)


def test_a_number_of_base_60_is_limited_as_well(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.yaml:1: a number has more than 100 digits"):
        read(tmp_path / "a.yaml", "a: " + ":".join(["59"] * 5000))

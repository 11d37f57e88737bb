"""--labels: a line of CSV or a file, and the same from a configuration file."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from conftest import Models, write_rows

from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.data_options import PromptArguments
from deepthink_cli.cli.main import run
from deepthink_cli.cli.sources import csv_line
from deepthink_cli.errors import InputError

COMMA = ["positive", "negative, mixed"]
HARD = ["a, b", 'say "no"', "@user", "[PAD]", "it's", "c"]


def refusal(typed: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        PromptArguments(labels=typed).decoded()
    return caught.value.messages


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("a,b", ["a", "b"]),
        (" yes , no way ", ["yes", "no way"]),
        ('positive,"negative, mixed"', COMMA),
        ('positive, "negative, mixed"', COMMA),
        ('"say ""no""",5" disk', ['say "no"', '5" disk']),
        ("a,a", ["a", "a"]),
        ("a,@b", ["a", "@b"]),
        (None, None),
    ],
)
def test_the_value_is_a_line_of_csv(typed: str | None, words: list[str] | None) -> None:
    assert PromptArguments(labels=typed).decoded()[2] == words


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("a", "one label only; name at least two"),
        ("", "a label word is empty; write a,b,c"),
        ("a, ,b", "a label word is empty; write a,b,c"),
        ('"a,b', "not a line of CSV; write a,b,c, with quotation marks around a label that has a comma"),
        ("a,b\nc", "not a line of CSV; write a,b,c, with quotation marks around a label that has a comma"),
    ],
)
def test_wrong_label_words_are_refused(typed: str, reason: str) -> None:
    assert refusal(typed) == (f"labels {typed}: {reason}",)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    assert refusal("a\udcff,b") == (r"labels a\udcff,b: holds bytes that are not UTF-8; write it in UTF-8",)


def test_a_file_has_one_label_a_line(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("\ufeffpositive\r\n\n  negative, mixed  \n\n@user", encoding="utf-8")
    assert PromptArguments(labels=f"@{file}").decoded()[2] == [*COMMA, "@user"]


def test_mistakes_in_a_file_of_labels_are_named_by_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_bytes(b"a\n\nb\n a\n\xff\n")
    assert refusal(f"@{file}") == (
        f"{file}:4: 'a' is duplicated, first at {file}:1; keep one",
        f"{file}:5: not UTF-8 (byte 0xff); save the file as UTF-8",
    )
    file.write_text("a\n\n")
    assert refusal(f"@{file}") == (f"labels @{file}: 1 labels; write at least two, one a line",)


def test_a_file_of_labels_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert refusal(f"@{tmp_path}/gone") == (
        f"labels @{tmp_path}/gone: no such file; give a file with one label a line",
    )
    assert refusal(f"@{tmp_path}")[0].startswith(f"labels @{tmp_path}: cannot be read: ")


@pytest.mark.parametrize("labels", [["a", "b"], COMMA, HARD])
def test_the_option_that_names_labels_is_read_as_these_labels(labels: list[str]) -> None:
    (word,) = shlex.split(shlex.quote(csv_line(labels)))
    assert PromptArguments(labels=word).decoded()[2] == labels


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Demonstrations with a label that has a comma."""
    rows: list[dict[str, object]] = [{"text": f"text {n}", "kind": COMMA[n % 2]} for n in range(4)]
    return write_rows(tmp_path / "mixed.jsonl", rows)


@pytest.mark.parametrize(
    "words",
    [
        ["--labels", '"negative, mixed",positive'],
        ["--labels", "@labels.txt"],
        ["--config", "labels.toml"],
        ["--config", "labels.yaml"],
        ["--config", "file.yaml"],
    ],
)
def test_think_takes_labels_from_everywhere(
    words: list[str], mixed: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mixed.parent)
    Path("labels.txt").write_text("negative, mixed\npositive\n")
    Path("labels.toml").write_text('labels = ["negative, mixed", "positive"]\n')
    Path("labels.yaml").write_text("labels:\n- negative, mixed\n- positive\n")
    Path("file.yaml").write_text('labels: "@labels.txt"\n')
    assert run(["think", str(mixed), "-m", str(models("llama")), "-T", "1", "-q", *words]) == 0
    assert read_header("memory.safetensors").metadata.labels == ["negative, mixed", "positive"]

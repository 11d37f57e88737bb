"""How files are read: options of every command with rows, and warnings of rows that are not what was meant."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import write_rows
from helpers.said import Captured, json_of, output

from deepthink_cli.artifact.opening import open_memory
from deepthink_cli.cli.main import run

KINDS = {"positive": ("warm", "wise", "tender", "lively"), "negative": ("dull", "flat", "cold", "stale")}
ROWS = [(f"a {word} film", label) for label, words in KINDS.items() for word in words]
CODED = "text,label\n" + "".join(f"{text},{int(label == 'positive')}\n" for text, label in ROWS)
MAPPED = ["--labels", "0=negative,1=positive"]
OTHERS = [(f"{text} number {number}", label) for number in range(3) for text, label in ROWS]  # 24 rows


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "coded.csv").write_text(CODED)


def made(*words: str) -> tuple[str, ...]:
    """The labels of the demonstrations of a memory that `think` makes with these words."""
    assert run(["think", *words, "-T", "1", "-q", "-o", "mem.safetensors"]) == 0
    return tuple(example.label for example in open_memory("mem.safetensors").provenance.demonstrations.examples)


@pytest.mark.plugins
def test_values_of_labels_are_mapped_wherever_labels_are_read(capsys: Captured) -> None:
    golds = tuple(label for _, label in ROWS)
    assert made("coded.csv", *MAPPED) == golds
    of_words = json_of(capsys, "eval", "mem.safetensors", "coded.csv", *MAPPED, "--json", "-q")
    words = write_rows(Path("words.jsonl"), [{"text": text, "label": label} for text, label in ROWS])
    assert json_of(capsys, "eval", "mem.safetensors", words, "--json", "-q")["results"] == of_words["results"]
    others = "".join(f"{text},{int(label == 'positive')}\n" for text, label in OTHERS)
    Path("others.csv").write_text("text,label\n" + others)
    assert run(["calibrate", "mem.safetensors", "others.csv", "--calibrate", "fitted", *MAPPED, "-q"]) == 0
    assert run(["select", "coded.csv", *MAPPED, "--demos-by", "first", "--shots", "8", "-o", "out.jsonl"]) == 0
    assert [json.loads(line)["label"] for line in Path("out.jsonl").read_text().splitlines()] == list(golds)
    assert "think out.jsonl --labels 0=negative,1=positive" in capsys.readouterr().err


def test_labels_that_are_not_the_memorys_are_refused(capsys: Captured) -> None:
    made("coded.csv", *MAPPED)
    assert run(["eval", "mem.safetensors", "coded.csv", "--labels", "a,b"]) == 2
    assert "--labels a,b: the label words are those of the memory; give values and words" in capsys.readouterr().err
    assert run(["eval", "mem.safetensors", "coded.csv", "--labels", "0=bad,1=positive"]) == 2
    assert "coded.csv:6" in (err := capsys.readouterr().err)
    assert "label 'bad' is not one of negative, positive" in err


def test_a_list_of_the_environment_is_for_commands_that_make_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    made("coded.csv", *MAPPED)
    monkeypatch.setenv("DEEPTHINK_LABELS", "positive,negative")
    words = write_rows(Path("words.jsonl"), [{"text": text, "label": label} for text, label in ROWS])
    assert run(["eval", "mem.safetensors", str(words), "-q"]) == 0


def test_a_csv_without_a_header_is_warned_of_and_can_be_read(capsys: Captured) -> None:
    Path("rows.csv").write_text("".join(f"{text},{label}\n" for text, label in ROWS))
    assert made("rows.csv")[0] == "positive"
    err = capsys.readouterr().err
    assert "warning: the field 'positive' is named like one of its values" in err
    assert "give --no-header" in err
    assert len(made("rows.csv", "--no-header", "--map", "column1=text,column2=label")) == len(ROWS)
    assert open_memory("mem.safetensors").provenance.demonstrations.template.fields == ("text", "label")
    assert len(
        output(
            capsys, "predict", "mem.safetensors", "rows.csv", "--no-header", "--map", "column1=text", "-q"
        ).splitlines()
    ) == len(ROWS)


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["tune", "ids.jsonl", "--folds", "99"], 2),  # refused after the rows were read
        (["select", "ids.jsonl", "--demos-by", "first", "--shots", "2"], 0),
        (["calibrate", "ids.safetensors", "ids.jsonl"], 0),
        (["eval", "ids.safetensors", "ids.jsonl"], 0),
        (["predict", "ids.safetensors", "ids.jsonl"], 0),
    ],
)
def test_ids_that_are_read_as_text_are_warned_of(words: list[str], code: int, capsys: Captured) -> None:
    for name, rows in (("demos.jsonl", ROWS), ("ids.jsonl", OTHERS)):
        fields = [{"id": f"row-{number}", "text": text, "label": label} for number, (text, label) in enumerate(rows)]
        write_rows(Path(name), list(fields))
    if words[1] == "ids.safetensors":
        assert run(["think", "demos.jsonl", "-T", "1", "-q", "-o", "ids.safetensors"]) == 0
        capsys.readouterr()
    assert run([*words, "-q"]) == code
    said = re.findall("warning: the field .*", capsys.readouterr().err)
    assert len(said) == 1
    before = "deepthink think " if words[1] == "ids.safetensors" else ""
    sign = "'id' looks like an id (row-0, row-1, row-2, ...) and is read as text: to omit it, "
    assert f"{sign}{before}--template " in said[0]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--no-header"],
            "--no-header: is of CSV and TSV, and rows.jsonl is read as jsonl; omit it, or name the format",
        ),
        (["--no-quotes"], "--no-quotes: is of CSV and TSV"),
        (["--labels", "0=a,0=b"], "--labels 0=a,0=b: give VALUE=LABEL, each value once, as in 0=negative,1=positive"),
        (["--labels", "0=,1=b"], "--labels 0=,1=b: give VALUE=LABEL"),
        (["--labels", "0=a,1=a"], "--labels 0=a,1=a: one label only; name at least two"),
    ],
)
def test_options_of_reading_without_a_meaning_are_refused(words: list[str], reason: str, capsys: Captured) -> None:
    write_rows(Path("rows.jsonl"), [{"text": text, "label": label} for text, label in ROWS])
    assert run(["think", "rows.jsonl", *words, "--dry-run"]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.plugins
def test_a_task_file_says_how_its_rows_are_read(capsys: Captured) -> None:
    Path("rows.tsv").write_text("".join(f'"{text}\t{label}\n' for text, label in ROWS * 2))
    fields = 'template: "{column1} is {column2}"\nlabels: [negative, positive]\n'
    Path("mine.yaml").write_text(fields + "rows: {file: rows.tsv, header: false, quotes: false}\nshots: 2\n")
    shown = json_of(capsys, "tasks", "mine.yaml", "--json")
    assert (shown["counted"]["own"]["rows"], shown["example_query"][0]) == (8, '"')

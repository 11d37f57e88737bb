"""A labelling that was killed continues with the bytes of one that was never interrupted, or says why it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Models, write_reviews, write_rows
from helpers.forks import Forks
from helpers.said import Captured
from helpers.tiny import tiny_task

from deepthink_cli.cli.main import run
from deepthink_cli.prediction import scorer
from deepthink_cli.prediction.files import partial_of
from deepthink_cli.prediction.rows import RowWriter
from deepthink_cli.scoring.pipeline import CHUNK

ROWS = 3 * CHUNK + 20


@pytest.fixture(scope="module")
def folder(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of two iterations, and inputs of four chunks, among them bad rows and rows of several lengths."""
    folder = tmp_path_factory.mktemp("resume")
    write_reviews(folder / "demos.jsonl")
    thought_of(folder / "mem.safetensors", "llama", "-T", "2", "--keep", "all")
    inputs = [json.dumps({"id": n, "review": f"film {n} " * (1 + n % 7)}) for n in range(ROWS)]
    for place in (3, CHUNK - 1, CHUNK, ROWS - 1):
        inputs[place] = "not json"
    (folder / "in.jsonl").write_text("\n".join(inputs) + "\n")
    return folder


def words_of(folder: Path, output: Path, *more: str) -> list[str]:
    fixed = ["--on-error", "skip", "--allow-errors", "4", "--at", "all", "-q", "-o", str(output)]
    return ["predict", str(folder / "mem.safetensors"), str(folder / "in.jsonl"), *fixed, *more]


def killed(forks: Forks, words: list[str], output: Path, chunks: int) -> None:
    """Start a labelling and kill it when it has written so many chunks."""
    partial = partial_of(output)
    child = forks.start([*words, "--resume"])
    assert child.until(lambda: partial.exists() and f'"index": {chunks * CHUNK}, '.encode() in partial.read_bytes())
    child.kill()
    assert partial.exists()
    assert not output.exists()


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param("out.jsonl", [], marks=pytest.mark.soak),
        pytest.param("out.parquet", ["--columns", "id", "--scores"], marks=pytest.mark.soak),
        ("out.csv", ["--calibrate", "batch,prior,contextual", "--top", "2", "--threshold", "0.6"]),
    ],
)
def test_it_has_the_bytes_of_one_that_was_not_interrupted(
    name: str, more: list[str], folder: Path, tmp_path: Path, forks: Forks
) -> None:
    (tmp_path / "whole").mkdir()
    assert run(words_of(folder, tmp_path / "whole" / name, *more)) == 0
    output = tmp_path / name
    words = words_of(folder, output, *more)
    for chunks in (0, 1):
        killed(forks, words, output, chunks)
        with open(partial_of(output), "ab") as file:  # a line that was not written to its end
            file.write(b'{"index": 9')
    code, said = forks.run([*words, "--resume"])
    assert code == 0, said
    assert output.read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({name, "whole"})


def test_rows_that_are_all_there_need_no_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    from deepthink_cli.prediction import files as label_files
    from deepthink_cli.prediction import scorer

    output = tmp_path / "out.jsonl"

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(label_files, "writing_rows", stopped)
        assert run(words_of(folder, output, "--resume")) == 130
    monkeypatch.setattr(scorer, "load", None)
    assert run([*words_of(folder, output, "--resume"), "-v"]) == 0
    assert f"continuing {partial_of(output)}: {ROWS} of {ROWS} rows are there" in capsys.readouterr().err
    assert json.loads(output.read_text().splitlines()[-1])["index"] == ROWS - 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--resume"], f".partial: {CHUNK} of {ROWS} rows are kept; the same command continues"),
        ([], f": not written; the labels of {CHUNK} rows are lost; --resume keeps them"),
    ],
)
def test_ctrl_c_says_what_is_kept(
    more: list[str], said: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    write = RowWriter.__call__

    def interrupted_at_the_second_chunk(writer: RowWriter, part: Any) -> None:
        if writer.index:
            raise KeyboardInterrupt
        write(writer, part)

    monkeypatch.setattr(RowWriter, "__call__", interrupted_at_the_second_chunk)
    output = tmp_path / "out.jsonl"
    words = [word for word in words_of(folder, output, *more) if word != "-q"]
    assert run(words) == 130
    assert f"{output}{said}" in capsys.readouterr().err
    assert not output.exists()


def test_without_resume_nothing_is_kept(folder: Path, tmp_path: Path, forks: Forks) -> None:
    child = forks.start(words_of(folder, tmp_path / "out.jsonl"))
    # Not at the instant in which the temporary folder appears: then it stays until the next labelling removes it.
    assert child.until(lambda: any(tmp_path.glob(".out.jsonl.*/out.jsonl")))
    child.interrupt()
    assert child.wait(30) == 130
    assert list(tmp_path.iterdir()) == []


def test_other_options_inputs_and_memories_are_refused_by_name(
    folder: Path, tmp_path: Path, forks: Forks, capsys: Captured
) -> None:
    output = tmp_path / "out.jsonl"
    killed(forks, words_of(folder, output), output, 1)
    before = partial_of(output).read_bytes()
    assert run(words_of(folder, output, "--resume", "--top", "1", "--columns", "id")) == 2
    assert f"{partial_of(output)}: was begun with another --top, another --columns; give" in capsys.readouterr().err
    other = write_rows(tmp_path / "in.jsonl", [{"review": "other"}])
    words = words_of(folder, output, "--resume")
    assert run([str(other) if word == str(folder / "in.jsonl") else word for word in words]) == 2
    assert "another name of the inputs, another content of the inputs" in capsys.readouterr().err
    assert run(["think", str(folder / "demos.jsonl"), "-T", "1", "-q", "-o", str(tmp_path / "other.safetensors")]) == 0
    memory = str(folder / "mem.safetensors")
    assert run([str(tmp_path / "other.safetensors") if word == memory else word for word in words]) == 2
    assert "was begun with another memory" in capsys.readouterr().err
    assert partial_of(output).read_bytes() == before


def test_a_file_that_is_something_else_is_refused_and_left(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "out.jsonl"
    for content in ('{"text": "mine"}\n', "half a line", "[1]\n"):
        partial_of(output).write_text(content)
        assert run(words_of(folder, output, "--resume")) == 2
        assert "out.jsonl.partial: not the rows of a labelling" in capsys.readouterr().err
        assert partial_of(output).read_text() == content


def test_two_processes_do_not_continue_the_same_labelling(
    folder: Path, tmp_path: Path, forks: Forks, capsys: Captured
) -> None:
    output = tmp_path / "out.jsonl"
    child = forks.start(words_of(folder, output, "--resume"))
    assert child.until(partial_of(output).exists)
    assert run(words_of(folder, output, "--resume")) == 2
    assert "another deepthink predict with --resume writes there" in capsys.readouterr().err
    child.kill()


def test_a_full_disk_keeps_the_rows_that_are_there(folder: Path, tmp_path: Path, forks: Forks) -> None:
    output = tmp_path / "out.jsonl"
    words = words_of(folder, output, "--resume")
    code, said = forks.run(words, largest=150_000)
    assert code == 1
    assert f"-o {output}: cannot be written: File too large; the same command continues it" in said
    assert partial_of(output).exists()
    assert forks.run(words)[0] == 0
    assert output.exists()
    assert not partial_of(output).exists()


def test_the_share_of_a_label_is_of_all_rows_those_before_the_interruption_included(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    from deepthink_cli.prediction import files

    words = ["predict", str(folder / "mem.safetensors"), str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl")]
    (tmp_path / "in.jsonl").write_text((json.dumps({"review": "film"}) + "\n") * (CHUNK + 1))

    append = files.PartialLabels.append

    def once(self: files.PartialLabels, rows: list[object]) -> None:
        append(self, rows)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files.PartialLabels, "append", once)
        assert run([*words, "--resume"]) == 130
    capsys.readouterr()
    assert run([*words, "--resume"]) == 0
    assert "warning: 100 % of the answers are '" in capsys.readouterr().err  # of one row there would be none


LINES = [json.dumps({"review": f"film {n}", "sentiment": "positive"}) + "\n" for n in range(CHUNK + 20)]


@pytest.fixture(scope="module")
def memory(thought_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of four reviews."""
    return thought_of(tmp_path_factory.mktemp("memory") / "mem.safetensors", "llama", "-T", "1")


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Rows of a chunk and a part of one."""
    path = tmp_path / "in.jsonl"
    path.write_text("".join(LINES))
    return path


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], None]:
    """Gives a file other contents while a command loads the model, after the rows were checked."""

    def change(path: Path, contents: str) -> None:
        load = scorer.load

        def loading(*arguments: object) -> object:
            path.write_text(contents)
            return load(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(scorer, "load", loading)

    return change


CHANGES = {
    "fewer rows": "".join(LINES[:5]),
    "more rows": "".join([*LINES, LINES[0]]),
    "other rows": "".join([*LINES[:-3], *LINES[:3]]),
    "no row": "",
    "half a row": "".join(LINES)[:-10],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("more", [[], ["--on-error", "skip"]])
def test_labels_of_rows_that_change_are_not_written(
    change: str, more: list[str], memory: Path, inputs: Path, changing: Callable[..., None], capsys: Captured
) -> None:
    output = inputs.parent / "out.jsonl"
    changing(inputs, CHANGES[change])
    assert run(["predict", str(memory), str(inputs), "-q", "-o", str(output), *more]) == 1
    assert f"deepthink: {inputs}: has changed since its rows were checked" in capsys.readouterr().err
    assert not output.exists()


def test_nor_are_the_rows_of_an_evaluation(
    memory: Path, inputs: Path, changing: Callable[..., None], capsys: Captured
) -> None:
    output = inputs.parent / "out.jsonl"
    changing(inputs, CHANGES["other rows"])
    assert run(["eval", str(memory), str(inputs), "-q", "-o", str(output), "--limit", "8"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1].partition(";")[0]) == (
        "",
        f"deepthink: {inputs}: has changed since its rows were checked",
    )
    assert not output.exists()


def test_the_rows_of_a_task_are_those_that_were_checked(
    models: Models, tmp_path: Path, changing: Callable[..., None], capsys: Captured
) -> None:
    task, data = tiny_task(tmp_path)
    fixed = ["--task", str(task), "--data-dir", str(data), "--protocol", "paper", "-q"]
    memory, rows = tmp_path / "mem.safetensors", data / "tiny" / "test.jsonl"
    assert run(["think", *fixed, "-m", str(models("llama")), "-T", "1", "-o", str(memory)]) == 0
    changing(rows, "".join(rows.read_text().splitlines(keepends=True)[:3]))
    assert run(["eval", str(memory), *fixed]) == 1
    assert "task tiny: its test rows have changed since they were checked" in capsys.readouterr().err


def test_a_labelling_is_continued_with_the_rows_that_it_was_begun_with(
    memory: Path, inputs: Path, changing: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    whole, output = inputs.parent / "whole.jsonl", inputs.parent / "out.jsonl"
    assert run(["predict", str(memory), str(inputs), "-q", "-o", str(whole)]) == 0
    words = ["predict", str(memory), str(inputs), "-q", "-o", str(output), "--resume"]
    others = "".join([*LINES[:CHUNK], *LINES[:20]])
    with monkeypatch.context():
        changing(inputs, others)
        assert run(words) == 1
        monkeypatch.undo()
    kept = partial_of(output).read_bytes().splitlines(keepends=True)[1:]
    assert kept == whole.read_bytes().splitlines(keepends=True)[:CHUNK]
    assert run(words) == 2
    assert "was begun with another content of the inputs" in capsys.readouterr().err
    inputs.write_text("".join(LINES))
    assert run(words) == 0
    assert output.read_bytes() == whole.read_bytes()
    assert not partial_of(output).exists()

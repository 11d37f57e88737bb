"""Options under the names that they had before: they do the same, and a note says what they are called now."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import write_reviews, write_rows

from deepthink_cli import SelectOptions
from deepthink_cli.cli.main import program, run
from deepthink_cli.cli.renamed import former_flags
from deepthink_cli.cli.sources import commands_of
from deepthink_cli.errors import InputError
from deepthink_cli.experiments.study import open_study

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def memory(tmp_path: Path) -> str:
    path = str(tmp_path / "mem.safetensors")
    assert (
        run(["think", str(write_reviews(tmp_path / "demos.jsonl")), "-T", "2", "--keep", "all", "-q", "-o", path]) == 0
    )
    return path


@pytest.fixture
def rows(tmp_path: Path) -> str:
    return str(write_rows(tmp_path / "rows.jsonl", [{"review": "a fine film"}]))


def printed(words: list[str], capsys: Captured) -> tuple[str, str]:
    assert run(words) == 0
    return capsys.readouterr()


def test_an_option_under_its_former_name_does_the_same(memory: str, rows: str, capsys: Captured) -> None:
    now, notes = printed(["predict", memory, rows, "--at", "1", "-q"], capsys)
    before, others = printed(["predict", memory, rows, "--iteration", "1", "-q"], capsys)
    assert (now, notes) == (before, others)
    assert printed(["predict", memory, rows, "--iteration=1", "-q"], capsys)[0] == now
    assert printed(["predict", memory, rows, "-q"], capsys)[0] != now


def test_a_note_says_the_present_name_unless_quiet(memory: str, rows: str, capsys: Captured) -> None:
    _, notes = printed(["predict", memory, rows, "--iteration", "1"], capsys)
    assert notes.startswith("--iteration is now called --at\n")


def test_so_do_a_variable_and_a_configuration_file(
    memory: str, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    now, _ = printed(["predict", memory, rows, "--at", "1", "-q"], capsys)
    config = tmp_path / "options.yaml"
    config.write_text("iteration: 1\n")
    out, notes = printed(["predict", memory, rows, "--config", str(config)], capsys)
    assert out == now
    assert f"{config}:1: iteration is now called at\n" in notes
    monkeypatch.setenv("DEEPTHINK_ITERATION", "1")
    out, notes = printed(["predict", memory, rows], capsys)
    assert out == now
    assert "DEEPTHINK_ITERATION is now called DEEPTHINK_AT\n" in notes


def test_a_mistake_names_the_variable_that_was_set(
    memory: str, rows: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for name in ("DEEPTHINK_ITERATION", "DEEPTHINK_AT"):
        monkeypatch.setenv(name, "7")
        assert run(["predict", memory, rows, "-q"]) == 2
        assert f"deepthink: {name}=7: " in capsys.readouterr().err
        monkeypatch.delenv(name)


def test_both_names_at_once_are_refused(
    memory: str, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run(["predict", memory, rows, "--iteration", "1", "--at", "2"]) == 2
    assert "--iteration: the former name of --at, which is given too; omit --iteration" in capsys.readouterr().err
    assert run(["run", "--out", "a", "-o", "b"]) == 2
    assert "--out: the former name of -o, which is given too; omit --out" in capsys.readouterr().err
    monkeypatch.setenv("DEEPTHINK_ITERATION", "1")
    monkeypatch.setenv("DEEPTHINK_AT", "1")
    assert run(["predict", memory, rows]) == 2
    assert "DEEPTHINK_ITERATION: the former name of DEEPTHINK_AT, which is set too" in capsys.readouterr().err


def test_a_value_is_no_option(memory: str, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "--iteration").write_text('{"review": "a fine film"}\n')
    words = ["predict", memory, "--format", "jsonl", "-q", "--", str(tmp_path / "--iteration")]
    assert printed(words, capsys)[0].count("\n") == 1


def test_a_configuration_file_may_have_options_of_other_commands(
    memory: str, rows: str, tmp_path: Path, capsys: Captured
) -> None:
    config = tmp_path / "shared.toml"
    config.write_text('eta = 0.02\nfolds = 5\nmethod = "ct-kv"\n')
    assert printed(["predict", memory, rows, "-q", "--config", str(config)], capsys)[0].count("\n") == 1


def test_a_study_has_its_fields_under_both_names(tmp_path: Path) -> None:
    text = "name: films\ntasks: [sst2]\n{}: [deep-thinking, repeat-2]\n{}: dev\nscales: {{small: {{{}: ct-kv}}}}\n"
    opened = []
    for names in (("techniques", "choose_on"), ("methods", "select")):
        path = tmp_path / f"{names[0]}.yaml"
        path.write_text(text.format(*names, names[0]))
        opened.append(open_study(str(path), "small"))
    new, old = opened
    assert new.study.model_copy(update={"scales": {}}) == old.study.model_copy(update={"scales": {}})
    assert (new.study.techniques, new.study.choose_on) == (("ct-kv",), "dev")
    assert new.notes == []
    assert old.notes == [
        f"{tmp_path / 'methods.yaml'}:3: methods is now called techniques",
        f"{tmp_path / 'methods.yaml'}:4: select is now called choose_on",
        f"{tmp_path / 'methods.yaml'}:5: methods is now called techniques",
    ]


def test_a_study_with_a_field_under_both_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text("tasks: [sst2]\nmethods: [ct-kv]\ntechniques: [ct-kv]\n")
    with pytest.raises(InputError, match=r"both\.yaml:2: methods: the former name of techniques; omit it"):
        open_study(str(path))


def test_so_has_python_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="method is now called demos_by"):
        former: Any = SelectOptions(method="herding", shots=4)  # type: ignore[arg-type]
    assert former == SelectOptions(demos_by="herding", shots=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SelectOptions(demos_by="herding", shots=4)


def test_no_command_has_an_option_and_another_one_that_was_called_so() -> None:
    for command in commands_of(program()):
        flags = {name for parameter in command.params for name in parameter.opts}
        former = former_flags(command)
        assert not flags & former.keys()
        assert set(former.values()) <= flags


def test_no_two_options_differ_by_a_plural_alone() -> None:
    names = {str(parameter.opts[0]) for command in commands_of(program()) for parameter in command.params}
    both = {name for name in names if f"{name}s" in names}
    assert both == {"--seed"}  # --seeds counts seeds, or lists several

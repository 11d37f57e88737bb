"""`deepthink export`: what it writes and says, and one line for everything that cannot be exported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import Models, write_reviews
from helpers.llama_states import state
from helpers.said import Captured

from deepthink_cli import load_memory
from deepthink_cli.artifact.format import read_header, summary
from deepthink_cli.cli.main import run


@pytest.fixture(scope="module")
def folder(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a memory of a tiny Llama that keeps T = 1 and 3, and a state of llama.cpp after its tokens."""
    folder = tmp_path_factory.mktemp("export")
    rows = write_reviews(folder / "rows.jsonl")
    words = f"think {rows} -m {models('llama')} -T 3 --eta 0.5 -q --keep"
    assert run([*words.split(), "1,3", "-o", str(folder / "mem")]) == 0
    assert run([*words.split(), "3", "-o", str(folder / "last")]) == 0
    first = load_memory(folder / "mem", 1)
    (folder / "saved").write_bytes(state(first, first.provenance.demonstrations.token_ids))
    return folder


def exported(folder: Path, memory: str, to: str, output: Path, *more: str) -> int:
    """Run the command on a memory of the folder."""
    return run(["export", str(folder / memory), "--to", to, "-o", str(output), *more])


def test_an_adapter_is_written_and_described(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    assert exported(folder, "mem", "peft", tmp_path / "adapter") == 0
    assert "adapter: prefix adapter of 74 tokens, T = 3, for " in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


@pytest.mark.parametrize(("to", "more"), [("peft", []), ("llama.cpp", ["--state"])])
def test_a_stored_correction_is_stated_and_not_applied(
    to: str, more: list[str], folder: Path, tmp_path: Path, capsys: Captured
) -> None:
    stored = tmp_path / "stored"
    assert run(["calibrate", str(folder / "mem"), "-q", "-o", str(stored)]) == 0
    assert read_header(stored).metadata.calibrated is not None
    of_memory = json.loads(json.dumps(summary(read_header(stored))["calibrated"]))
    words = [*more, *([str(folder / "saved")] if more else [])]
    assert run(["export", str(stored), "--to", to, "-o", str(tmp_path / "out"), "--json", *words]) == 0
    assert run(["export", str(folder / "mem"), "--to", to, "-o", str(tmp_path / "plain"), "-q", *words]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out.splitlines()[0])
    assert values["calibrated"] == {**of_memory, "bias": of_memory["bias"]["3"]}
    assert err.count("stores a correction, which other programs do not apply to scores") == 1
    if to == "peft":
        assert [f.read_bytes() for f in sorted((tmp_path / "out").iterdir())] == [
            f.read_bytes() for f in sorted((tmp_path / "plain").iterdir())
        ]
    else:
        assert (tmp_path / "out").read_bytes() == (tmp_path / "plain").read_bytes()


def test_the_chosen_iteration_is_written(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    for iteration in ("1", "3", "last"):
        assert exported(folder, "mem", "peft", tmp_path / iteration, "--at", iteration, "--json") == 0
    numbers = [json.loads(line)["iteration"] for line in capsys.readouterr().out.splitlines()]
    assert numbers == [1, 3, 3]
    first, third, last = ((tmp_path / each / "adapter_model.safetensors").read_bytes() for each in ("1", "3", "last"))
    assert first != third == last


@pytest.mark.parametrize("memory", ["mem", "last"])
def test_a_state_holds_the_memory_afterwards(memory: str, folder: Path, tmp_path: Path, capsys: Captured) -> None:
    saved = str(folder / "saved")
    assert exported(folder, memory, "llama.cpp", tmp_path / "state", "--state", saved) == 0
    out, err = capsys.readouterr()
    assert "the state's own keys differ from one reading by 0.0e+00" in out
    assert ("does not keep T = 1 (deepthink think --keep 1,... does): reading the demonstrations once" in err) == (
        memory == "last"
    )
    third = load_memory(folder / "mem", 3)
    expected = state(third, third.provenance.demonstrations.token_ids)
    assert (tmp_path / "state").read_bytes() == expected


def test_the_report_has_the_differences(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    words = ["--state", str(folder / "saved"), "--json"]
    assert exported(folder, "mem", "llama.cpp", tmp_path / "state", *words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["format"], answer["iteration"], answer["tokens"], answer["layers"]) == ("llama.cpp", 3, 74, 2)
    assert answer["state_differs_from_one_reading"] == {"keys": 0.0, "values": 0.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("mem --to onnx -o x", "'onnx' is not one of 'llama.cpp', 'mlx', 'peft'"),
        ("mem --to peft -o x --at all", "--at all: one iteration is needed; give its number, or last"),
        ("mem --to peft -o x --at 2", "--at 2: "),
        ("mem --to peft -o x --state saved", "--state saved: only with --to llama.cpp; omit it"),
        ("mem --to peft -o x -m pocket", "-m pocket: only with --to llama.cpp or mlx; omit it"),
        ("mem --to peft -o .", "-o .: holds files, as last; name a new folder"),
        ("mem --to peft -o saved", "-o saved: a file, not a folder; name a new folder"),
        ("mem --to llama.cpp -o x", "--to llama.cpp needs --state FILE"),
        ("mem --to llama.cpp -o x --state absent", "--state absent: cannot be read: No such file or directory"),
        ("mem --to llama.cpp -o x --state mem", "--state mem: not a sequence state of llama.cpp"),
        ("mem --to llama.cpp -o mem --state saved", "-o mem: the same file as mem, which this command reads"),
        ("mem --to mlx -o x -m pocket -q", "mem: made by another model"),
        ("last --to llama.cpp -o x --state saved -m pocket -q", "last: made by another model"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    words: str, message: str, folder: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run(["export", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert message in err
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_state_may_be_replaced_in_place_only_by_another_name(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    assert exported(folder, "mem", "llama.cpp", folder / "saved", "--state", str(folder / "saved")) == 2
    assert "the same file as" in capsys.readouterr().err


def test_exporting_to_peft_needs_no_peft(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    assert exported(folder, "mem", "peft", tmp_path / "adapter") == 0

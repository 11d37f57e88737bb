"""A memory, a model or an input file runs no code, and nothing is fetched that was not asked for."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Models, write_reviews, write_rows
from helpers.foreign_code import bring_code, changed
from helpers.forks import Forks
from helpers.said import Captured
from helpers.soak import with_soak
from helpers.tiny import tiny_task
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from deepthink_cli import load_model
from deepthink_cli.cli.main import run
from deepthink_cli.errors import InputError
from deepthink_cli.io.processes import exceeds
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

pytestmark = pytest.mark.usefixtures("loaded_anew")


class Bomb:
    """What makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.path}'",)


@pytest.fixture
def model(models: Models, tmp_path: Path) -> Path:
    """A copy of a tiny model, to be spoiled."""
    return Path(shutil.copytree(models("llama"), tmp_path / "model"))


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file that is there once foreign code has run."""
    return tmp_path / "ran"


def pickled(model: Path, content: Any = None) -> Path:
    """Make a model's weights a pickle: its own tensors, or something else."""
    weights = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    torch.save(weights if content is None else content, model / "pytorch_model.bin")
    return model


def refused(arguments: list[str], capsys: Captured, *codes: int) -> str:
    """The one line on stderr of a command that must fail."""
    capsys.readouterr()
    quiet = [] if arguments[0] == "tasks" else ["-q"]
    assert run([*arguments, *quiet]) in (codes or (1, 2))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def think(model: Path | str, demos: Path, *more: str) -> list[str]:
    return ["think", str(demos), "-m", str(model), "-T", "1", "-o", str(demos.parent / "mem.safetensors"), *more]


def test_pickled_weights_are_read_with_a_note_and_give_the_same(
    models: Models, model: Path, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    inputs = str(write_rows(tmp_path / "in.jsonl", [{"review": "x"}]))
    memory = str(tmp_path / "mem.safetensors")
    found = []
    for source in (models("llama"), pickled(model)):
        capsys.readouterr()
        assert run(think(source, demos)) == 0
        assert run(["predict", memory, inputs]) == 0
        found.append(capsys.readouterr())
    assert found[0].out == found[1].out
    assert "safe loader" not in found[0].err
    assert found[1].err.count("its weights are a pickle, read with torch's safe loader") == 2
    assert run(think(model, demos, "-q")) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("shape", ["bare", "among tensors", "without torch"])
def test_a_pickle_that_would_run_code_runs_none(
    shape: str, model: Path, ran: Path, demos: Path, capsys: Captured
) -> None:
    weights = load_file(model / "model.safetensors")
    pickled(model, Bomb(ran) if shape == "bare" else {**weights, "bomb": Bomb(ran)})
    if shape == "without torch":
        (model / "pytorch_model.bin").write_bytes(pickle.dumps({"bomb": Bomb(ran)}))
    err = refused(think(model, demos), capsys, 1)
    assert "torch's safe loader refuses" in err
    assert not ran.exists()


def test_the_bomb_of_these_tests_would_go_off(model: Path, ran: Path) -> None:
    pickled(model, Bomb(ran))
    torch.load(model / "pytorch_model.bin", weights_only=False)
    assert ran.exists()


def test_pickles_that_are_not_the_weights_are_left_alone(model: Path, ran: Path, demos: Path) -> None:
    for name in (
        "training_args.bin",
        "pytorch_model.bin",
        "vocab.pkl",
        "tokenizer.pkl",
        ".metadata",
        "adapter_model.bin",
    ):
        (model / name).write_bytes(pickle.dumps(Bomb(ran)))
    assert run(think(model, demos)) == 0
    assert not ran.exists()


def test_an_adapters_pickle_runs_nothing_either(model: Path, ran: Path, demos: Path, capsys: Captured) -> None:
    (model / "adapter_model.bin").write_bytes(pickle.dumps(Bomb(ran)))
    changed(model, transformers_weights="adapter_model.bin")
    refused(think(model, demos), capsys, 1)
    assert not ran.exists()


def test_no_thread_converts_pickled_weights_behind_ones_back(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISABLE_SAFETENSORS_CONVERSION", raising=False)
    load, values = AutoModelForCausalLM.from_pretrained, []

    def noted(*arguments: Any, **named: Any) -> Any:
        values.append(os.environ["DISABLE_SAFETENSORS_CONVERSION"])
        return load(*arguments, **named)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", noted)
    load_model(str(pickled(model)))
    assert values == ["1"]


DAMAGED = [b"", b"x", b"\x80\x04.", b"PK\x03\x04" + bytes(40), b"\xff" * 100, b"\x10" + bytes(30)]
PICKLES, TENSORS = "pytorch_model.bin", "model.safetensors"
TRIED = [*product([PICKLES], DAMAGED[2:4]), *product([TENSORS], DAMAGED[4:]), (TENSORS, b"")]


@pytest.mark.parametrize(("weights", "content"), with_soak(product([PICKLES, TENSORS], DAMAGED), TRIED))
def test_damaged_weights_are_one_line(
    weights: str, content: bytes, model: Path, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    assert run(think(model, demos)) == 0
    (model / "model.safetensors").unlink()
    (model / weights).write_bytes(content)
    inputs = str(write_rows(tmp_path / "in.jsonl", [{"review": "x"}]))
    assert str(model) in refused(think(model, demos), capsys, 1)
    assert str(tmp_path) in refused(["predict", str(tmp_path / "mem.safetensors"), inputs], capsys)


@pytest.fixture
def code(model: Path, ran: Path) -> Path:
    """A model that brings its own code."""
    return bring_code(model, ran)


def test_a_models_code_is_not_run_without_the_flag(code: Path, ran: Path, demos: Path, capsys: Captured) -> None:
    err = refused(think(code, demos), capsys, 2)
    assert "contains custom code" in err
    assert "allow it with --trust-remote-code" in err
    assert not ran.exists()


def test_a_models_code_is_run_with_the_flag(code: Path, ran: Path, demos: Path) -> None:
    run(think(code, demos, "--trust-remote-code"))
    assert ran.exists()


def test_a_known_model_with_code_is_read_without_it(code: Path, ran: Path, demos: Path) -> None:
    changed(code, model_type="llama")
    changed(code, "tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_evil.T", "tokenization_evil.T"]})
    assert run(think(code, demos)) == 0
    assert not ran.exists()


def test_a_tokenizers_code_is_not_run_without_the_flag(code: Path, ran: Path, demos: Path, capsys: Captured) -> None:
    names = {"AutoTokenizer": ["tokenization_evil.T", "tokenization_evil.T"]}
    changed(changed(code, model_type="opt"), "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map=names)
    run(think(code, demos))
    assert "Traceback" not in capsys.readouterr().err
    assert not ran.exists()


def test_nobody_is_asked_whether_code_may_run(code: Path, ran: Path, demos: Path, forks: Forks) -> None:
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"y\ny\n")
    exit_code, said = forks.run(think(code, demos), stdin=terminal)
    os.close(keyboard)
    os.close(terminal)
    assert exit_code == 2
    assert "[y/N]" not in said
    assert not ran.exists()


def test_attention_code_from_the_hub_is_refused(model: Path, demos: Path, capsys: Captured) -> None:
    for name in ("attn_implementation", "_attn_implementation"):
        changed(model, **{name: "team/kernel"})
        assert "asks for team/kernel, attention code from the hub" in refused(think(model, demos), capsys, 2)


def test_a_chat_template_is_never_filled(model: Path, ran: Path, demos: Path) -> None:
    evil = "{{ ''.__class__.__mro__[1].__subclasses__() }}{{ raise_exception('no') }}"
    evil += "{% for i in range(10**12) %}{% endfor %}"
    (model / "chat_template.jinja").write_text(evil)
    changed(model, "tokenizer_config.json", chat_template=evil)
    assert run(think(model, demos)) == 0


@pytest.mark.parametrize(
    ("template", "seconds", "limit"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", 1, "1 seconds"),
        ("{{ 'x' * 10**10 }}", 10, "1 GiB of memory"),
        ("{{ 'x' * 10**8 }}", 10, "1048576 characters"),
    ],
    ids=["time", "memory", "size"],
)
def test_a_chat_template_without_end_is_one_line(
    template: str, seconds: int, limit: str, model: Path, demos: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepthink_cli.engine.opening.load_network", None)  # it ends before weights are loaded
    monkeypatch.setattr("deepthink_cli.model.chat.exceeds", partial(exceeds, seconds=seconds))
    (model / "chat_template.jinja").write_text(template)
    said = f"takes more than {limit} for this conversation; omit --chat"
    assert said in refused(think(model, demos, "--chat"), capsys, 2)


LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"num_hidden_layers": 10**10}),
    ("gpt_neo", {"attention_types": [[["global", "local"], 10**10]]}),
    ("llama", {"text_config": {"num_hidden_layers": 1_000_000}}),
]


@pytest.mark.parametrize(("family", "fields"), LAYERS, ids=str)
def test_more_layers_than_any_model_has_are_refused_at_once(
    family: str, fields: dict[str, Any], models: Models, demos: Path, tmp_path: Path, capsys: Captured
) -> None:
    model = changed(Path(shutil.copytree(models(family), tmp_path / family)), **fields)
    assert "a model has at most 1000 layers: correct it" in refused(think(model, demos), capsys, 2)


ODD: list[dict[str, Any]] = [
    {"model_type": 5},
    {"model_type": ["llama"]},
    {"hidden_size": "32"},
    {"num_attention_heads": 0},
    {"num_hidden_layers": "two"},
    {"vocab_size": None},
    {"architectures": 5},
    {"max_position_embeddings": "512"},
    {"auto_map": 5},
    {"rope_parameters": 5},
    {"layer_types": [[]]},
    {"get_text_config": "x"},
    {"quantization_config": {"quant_method": "x"}},
    {"transformers_weights": 5},
    {"transformers_weights": "../x.safetensors"},
    {"torch_dtype": "os"},
    {"attn_implementation": 5},
    {"head_dim": 0},
]


@pytest.mark.parametrize("fields", ODD, ids=json.dumps)
@pytest.mark.parametrize("more", [[], pytest.param(["--dry-run"], marks=pytest.mark.soak)], ids=["read", "plan"])
def test_odd_configurations_are_one_line_or_work(
    fields: dict[str, Any], more: list[str], model: Path, demos: Path, capsys: Captured
) -> None:
    code = run(think(changed(model, **fields), demos, "-q", *more))
    err = capsys.readouterr().err
    assert code in (0, 1, 2)
    assert err.count("\n") == (code != 0)


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"]
)
@pytest.mark.parametrize(
    "content", ["", "[]", "5", '"x"', "{}", "null", "{" * 5000, '{"a": NaN}', "\udcff", '{"weight_map": 5}']
)
def test_model_files_that_are_no_such_files_are_one_line(
    file: str, content: str, model: Path, demos: Path, capsys: Captured
) -> None:
    (model / file).write_bytes(content.encode(errors="surrogateescape"))
    if "index" in file:
        (model / "model.safetensors").unlink()
    code = run(think(model, demos, "-q"))
    err = capsys.readouterr().err
    assert code in (0, 1, 2)
    assert err.count("\n") == (code != 0)


@pytest.mark.parametrize("shard", ["../outside.safetensors", "{outside}", "a/../../outside.safetensors"])
@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_an_index_does_not_lead_out_of_the_models_folder(shard: str, index: str, model: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.safetensors"
    (model / "model.safetensors").rename(outside)
    names = load_file(outside)
    content = {"metadata": {}, "weight_map": dict.fromkeys(names, shard.format(outside=outside))}
    (model / index).write_text(json.dumps(content))
    with pytest.raises(InputError, match="which are outside the model's folder"):
        open_model(ModelOptions(model=str(model)))


def test_a_model_in_shards_is_read(models: Models, model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, model / file, metadata={"format": "pt"})
    placed = {name: file for file, own in parts.items() for name in own}
    (model / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    assert load_model(str(model)).identity.weights_sha256 == load_model(str(models("llama"))).identity.weights_sha256


def test_what_the_fingerprint_covers_is_what_is_loaded(models: Models, model: Path) -> None:
    """A configuration may name its weights, and a folder may hold more than one model's."""
    weights = load_file(model / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in weights.items()}, model / "other.safetensors", {"format": "pt"})
    plain = load_model(str(model)).identity.weights_sha256
    changed(model, transformers_weights="other.safetensors")
    assert load_model(str(model)).identity.weights_sha256 != plain
    shutil.copy(model / "other.safetensors", model / "shard-00001-model-00001-of-00001.safetensors")
    with pytest.raises(InputError, match="part of a distributed checkpoint"):
        load_model(str(model))


def test_a_loop_of_links_is_no_model(model: Path, demos: Path, capsys: Captured) -> None:
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        (model / file).unlink()
        (model / file).symlink_to(model / file)
        refused(think(model, demos), capsys)


YAML = [
    '!!python/object/apply:os.system ["touch {ran}"]',
    "!!python/name:os.system",
    'a: !!python/object/new:os.system ["touch {ran}"]',
    "- !!python/tuple [1]",
    "[" * 1000,
    "&a [*a]",
]


@pytest.mark.parametrize("text", YAML, ids=range(len(YAML)))
def test_yaml_makes_no_python_objects(text: str, demos: Path, ran: Path, capsys: Captured) -> None:
    path = demos.parent / "file.yaml"
    path.write_text(text.replace("{ran}", str(ran)))
    for arguments in (["tasks", str(path)], ["think", str(demos), "--config", str(path)]):
        assert str(path) in refused(arguments, capsys, 2)
    assert not ran.exists()


def test_a_tasks_words_are_not_a_program(tmp_path: Path, ran: Path, capsys: Captured) -> None:
    for changes in ({"template": "{text.__class__} {kind}"}, {"template": "{text!r} {kind}"}):
        task, _ = tiny_task(tmp_path / str(len(str(changes))), **changes)
        assert "is not a field name" in refused(["tasks", str(task)], capsys, 2)


def test_a_memory_gets_no_code_run(model: Path, ran: Path, demos: Path, tmp_path: Path, capsys: Captured) -> None:
    assert run(think(model, demos)) == 0
    bring_code(model, ran)
    assert "custom code" in refused(["predict", str(tmp_path / "mem.safetensors"), str(demos)], capsys, 2)
    assert not ran.exists()


# What opens a connection or looks a name up fails at once, and is noted where no library can hide it.
NO_NETWORK = """
import contextlib, io, json, socket, sys
asked = []
def refuse(*arguments, **more):
    asked.append(repr(arguments))
    raise OSError("no network in this test")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.gethostbyname = refuse
from deepthink_cli.cli.main import run
results = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        results.append([run(command), said.getvalue()])
print("\\n" + json.dumps([results, asked]))
"""


@pytest.fixture(scope="module")
def offline(
    models: Models, libraries: Forks, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[int, list[str]]]:
    """Commands with --offline, in a process of their own that opens no socket: exit codes and lines on stderr."""
    folder = tmp_path_factory.mktemp("offline")
    model = Path(shutil.copytree(models("llama"), folder / "model"))
    demos, memory = write_reviews(folder / "demos.jsonl"), str(folder / "mem.safetensors")
    used = {"predict": ["predict", memory, str(demos)], "eval": ["eval", memory, str(demos)]}
    commands = {
        "think with the built-in model": think("pocket", demos),
        **used,
        "think with a model in a folder": think(pickled(model), demos),
        **{f"{name} with a model in a folder": words for name, words in used.items()},
        "a model of the hub": think("team/model", demos),
        "a task of the hub": ["think", "--task", "sst2"],
    }
    done = libraries.program(NO_NETWORK, [json.dumps([[*command, "--offline"] for command in commands.values()])])
    results, asked = json.loads(done.stdout.splitlines()[-1])
    assert asked == []
    return {name: (code, said.splitlines()) for name, (code, said) in zip(commands, results, strict=True)}


def test_nothing_is_fetched_offline(offline: dict[str, tuple[int, list[str]]]) -> None:
    here = {name: code for name, (code, _) in offline.items() if "hub" not in name}
    assert list(here.values()) == [0] * 6


def test_what_is_not_here_is_an_error_offline(offline: dict[str, tuple[int, list[str]]]) -> None:
    (model_code, model_lines), (task_code, task_lines) = offline["a model of the hub"], offline["a task of the hub"]
    assert (model_code, len(model_lines), task_code, len(task_lines)) == (1, 1, 1, 1)
    reason = "not in the cache, and --offline forbids downloads; omit --offline, or give"
    assert model_lines == [f"deepthink: -m team/model: {reason} a local directory"]
    assert f": {reason} --data-dir DIR" in task_lines[0]


def test_a_download_is_announced_first(demos: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def unreachable(options: ModelOptions) -> None:
        raise InputError("asked")

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("deepthink_cli.engine.opening.open_model", unreachable)
    assert run(think("no-such-owner/no-such-model", demos)) == 2
    assert capsys.readouterr().err.splitlines() == [
        "no-such-owner/no-such-model is not in the cache; asking the hub, to download it",
        "deepthink: asked",
    ]

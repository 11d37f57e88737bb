"""LoRA adapters: merged exactly, part of the model's identity, and never applied unless they are asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import write_rows
from helpers.families import build_tokenizer, write_model
from helpers.soak import with_soak
from helpers.tiny import tiny_task
from helpers.tiny_gguf import write_gguf
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from deepthink_cli import load_memory, load_model
from deepthink_cli.cli.main import run
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.experiments.results import read_results
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions

peft = pytest.importorskip("peft", reason="peft is not installed")

Models = Callable[[str], Path]
ROUNDING = 1e-4  # logits of peft in float32 and float64 differ by up to 9e-5 here
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "LoRA": ("llama", {}),
    "rank-stabilised": ("llama", {"use_rslora": True}),
    "DoRA": ("llama", {"use_dora": True}),
    "of biases": ("qwen2", {"bias": "lora_only", "target_modules": ["q_proj", "v_proj"]}),
    "with a saved head": ("llama", {"modules_to_save": ["lm_head"]}),
    "with saved embeddings": ("llama", {"modules_to_save": ["embed_tokens"]}),
    "of embeddings": ("llama", {"target_modules": ["embed_tokens", "lm_head"]}),
    "of every linear layer": ("qwen3", {"target_modules": "all-linear", "rank_pattern": {"q_proj": 3}}),
    "of transposed weights": ("gpt2", {"target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}),
}


def write_adapter(base: Path, folder: Path, seed: int = 0, config: Any = None, **fields: Any) -> Path:
    """Save a random adapter of a model as peft writes it; by default LoRA of queries, values and down projections."""
    torch.manual_seed(seed)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"], "task_type": "CAUSAL_LM"}
    network = AutoModelForCausalLM.from_pretrained(base)
    adapted = peft.get_peft_model(network, config or peft.LoraConfig(**{**settings, **fields}))
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    adapted.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def adapter(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter of the tiny Llama."""
    return write_adapter(models("llama"), tmp_path_factory.mktemp("adapter") / "lora")


def opened(**options: Any) -> Any:
    return open_model(ModelOptions.checked(**options))


def thought(words: list[str], demos: Path, memory: Path) -> int:
    return run(["think", str(demos), *words, "-T", "2", "-q", "-o", str(memory)])


def logits(network: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = network.eval()(torch.arange(1, 60)[None]).logits
    return result


SHORT = ("LoRA", "DoRA", "of biases", "with a saved head", "of embeddings", "of transposed weights")


@pytest.mark.parametrize("kind", with_soak(KINDS, SHORT))
def test_a_merged_adapter_computes_what_peft_computes_beside_the_model(
    models: Models, tmp_path: Path, kind: str
) -> None:
    family, fields = KINDS[kind]
    base = models(family)
    folder = write_adapter(base, tmp_path / "lora", **fields)
    expected = logits(peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder))
    engine = load_model(str(base), adapter=str(folder))
    assert torch.allclose(logits(engine.model.network), expected, atol=ROUNDING)
    assert not torch.allclose(logits(AutoModelForCausalLM.from_pretrained(base)), expected, atol=1e-2)
    assert engine.description.startswith("packed")


def test_scores_are_those_of_peft(models: Models, adapter: Path, demos: Path, tmp_path: Path) -> None:
    base, memory = str(models("llama")), tmp_path / "mem.safetensors"
    rows = write_rows(tmp_path / "in.jsonl", [{"review": "a wise film"}])
    words = ["think", str(demos), "-m", base, "--adapter", str(adapter), "-T", "1", "-q", "-o", str(memory)]
    assert run(words) == 0
    assert run(["predict", str(memory), str(rows), "-q", "-o", str(tmp_path / "out.jsonl")]) == 0
    (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    made_by = load_memory(memory).provenance
    assert made_by is not None
    network = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
    tokenizer, scores = build_tokenizer(), {}
    for label in made_by.demonstrations.labels:
        text = "Review: a wise film\nSentiment:"
        query = tokenizer(text, add_special_tokens=False).input_ids
        answer = tokenizer(f"{text} {label}", add_special_tokens=False).input_ids[len(query) :]
        ids = torch.tensor([[*made_by.demonstrations.token_ids, *query, *answer]])
        with torch.no_grad():
            steps = network(ids).logits[0].log_softmax(-1)[-len(answer) - 1 : -1]
        scores[label] = float(steps.gather(1, torch.tensor(answer)[:, None]).sum())
    assert row["scores"] == pytest.approx(scores, abs=1e-4)


def test_an_adapter_is_merged_into_a_gguf_model(models: Models, adapter: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="gguf is not installed")
    file = write_gguf(models("llama"), tmp_path / "x.gguf")
    plain = load_model(str(models("llama")), adapter=str(adapter)).model.network
    assert torch.allclose(
        logits(load_model(str(file), adapter=str(adapter)).model.network), logits(plain), atol=ROUNDING
    )


def test_an_adapter_works_in_bfloat16(models: Models, adapter: Path) -> None:
    engine = load_model(str(models("llama")), adapter=str(adapter), dtype="bfloat16")
    assert {weight.dtype for weight in engine.model.network.parameters()} == {torch.bfloat16}


def test_the_identity_covers_the_adapters_contents_and_not_its_name(
    models: Models, adapter: Path, tmp_path: Path
) -> None:
    base = str(models("llama"))
    plain, with_it = opened(model=base).identify(), opened(model=base, adapter=str(adapter)).identify()
    assert plain.differences(with_it) == with_it.differences(plain) == ["adapter"]
    copy = Path(shutil.copytree(adapter, tmp_path / "copy"))
    assert not opened(model=base, adapter=str(copy)).identify().differences(with_it)
    weights = load_file(copy / "adapter_model.safetensors")
    save_file({name: weight * 1.0001 for name, weight in weights.items()}, copy / "adapter_model.safetensors")
    assert opened(model=base, adapter=str(copy)).identify().differences(with_it) == ["adapter"]
    shutil.copy(adapter / "adapter_model.safetensors", copy)
    fields = json.loads((copy / "adapter_config.json").read_text())
    fields |= {"base_model_name_or_path": "elsewhere", "target_modules": fields["target_modules"][::-1]}
    (copy / "adapter_config.json").write_text(json.dumps(fields))
    assert not opened(model=base, adapter=str(copy)).identify().differences(with_it)
    (copy / "adapter_config.json").write_text(json.dumps({**fields, "lora_alpha": 9}))
    assert opened(model=base, adapter=str(copy)).identify().differences(with_it) == ["adapter"]


def test_a_memory_is_refused_without_its_adapter_and_with_another_one(
    models: Models, adapter: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, memory = str(models("llama")), tmp_path / "mem.safetensors"
    other = write_adapter(models("llama"), tmp_path / "other", seed=1)
    assert thought(["-m", base, "--adapter", str(adapter)], demos, memory) == 0
    assert run(["predict", str(memory), str(demos), "-q"]) == 0
    assert run(["eval", str(memory), str(demos), "-q", "-m", base, "--adapter", str(adapter)]) == 0
    for words in (["-m", base], ["--adapter", str(other)]):
        capsys.readouterr()
        assert run(["predict", str(memory), str(demos), "-q", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"adapter differ; it was made by {base} with --adapter {adapter}" in line
    assert thought(["-m", base], demos, memory) == 0
    assert run(["predict", str(memory), str(demos), "-q", "--adapter", str(adapter)]) == 2


def test_a_base_that_the_adapter_names_by_another_path_is_no_other_model(
    models: Models,
    adapter: Path,
    demos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    base = Path(shutil.copytree(models("llama"), tmp_path / "base"))
    other = Path(shutil.copytree(adapter, tmp_path / "lora"))
    fields = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**fields, "base_model_name_or_path": "./base"}))
    monkeypatch.chdir(tmp_path)
    assert run(["think", str(demos), "-m", str(base), "--adapter", str(other), "-T", "1", "-o", "mem.safetensors"]) == 0
    assert "made for" not in capsys.readouterr().err


def test_metadata_name_the_adapter_only_where_there_is_one(
    models: Models, adapter: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, memory = str(models("llama")), tmp_path / "mem.safetensors"
    for words in ([], ["--adapter", str(adapter)]):
        assert thought(["-m", base, *words], demos, memory) == 0
        capsys.readouterr()
        assert run(["inspect", str(memory), "--json"]) == 0
        stored = json.loads(capsys.readouterr().out)["model"]
        assert stored.get("adapter", {}).get("id") == (str(adapter) if words else None)
        assert run(["inspect", str(memory)]) == 0
        assert (f"with {adapter}" in capsys.readouterr().out) is bool(words)


def test_result_rows_are_those_of_another_model_with_an_adapter(models: Models, adapter: Path, tmp_path: Path) -> None:
    digests = {}
    task, data = tiny_task(tmp_path)
    for name, options in {"plain": {}, "adapted": {"adapter": str(adapter)}}.items():
        fields = {"models": {"model": str(models("llama")), **options}, "tasks": str(task), "data_dir": str(data)}
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**fields, "iterations": 1}))
        assert run(["study", "run", str(tmp_path / f"{name}.yaml"), "-q", "-o", str(tmp_path / name)]) == 0
        (row,) = read_results(tmp_path / name)
        digests[name] = row.setting.model_sha256
        assert (str(adapter) in row.setting.model) is bool(options)
    assert digests["plain"] != digests["adapted"]


def test_an_adapter_in_the_hubs_cache_is_reopened_at_its_commit(
    models: Models, adapter: Path, demos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, commit, memory = tmp_path / "models--team--lora", "1" * 40, tmp_path / "mem.safetensors"
    shutil.copytree(adapter, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for name in ("huggingface_hub.constants", "huggingface_hub.file_download.constants"):
        monkeypatch.setattr(f"{name}.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words = ["-m", str(models("llama")), "--adapter", "team/lora", "--offline"]
    assert thought(words, demos, memory) == 0
    (repository / "refs" / "main").unlink()
    assert run(["predict", str(memory), str(demos), "-q", "--offline"]) == 0
    stored = load_memory(memory).provenance.model.adapter  # type: ignore[union-attr]
    assert str(stored) == f"team/lora@{commit}"
    with pytest.raises(DeepThinkError, match=r"adapter team/absent: not in the cache, and offline .*; omit offline"):
        opened(model=str(models("llama")), adapter="team/absent", offline=True)


def test_an_adapter_beside_a_model_is_applied_only_if_asked_for(
    models: Models, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = Path(shutil.copytree(models("llama"), tmp_path / "both"))
    other = write_adapter(models("llama"), tmp_path / "other", seed=1)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(adapter / name, both)
    with pytest.raises(InputError, match=r"holds an adapter beside the model .*; name it as the adapter, too"):
        opened(model=str(both))
    for asked in (both, other):
        one, two = (load_model(str(folder), adapter=str(asked)) for folder in (both, models("llama")))
        assert torch.equal(logits(one.model.network), logits(two.model.network))
    with pytest.raises(InputError, match=r"an adapter, not a model; use model .*llama, with this as its adapter"):
        opened(model=str(adapter))


def test_another_base_than_the_adapter_names_is_a_note(
    adapter: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_model(tmp_path / "base", "llama")
    words = f"think {demos} -m {base} --adapter {adapter} -v -o {tmp_path}/m.safetensors"
    assert run(words.split()) == 0
    err = capsys.readouterr().err
    assert f"--adapter {adapter}: made for " in err
    assert f"with {adapter} merged" in err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 64}, "size mismatch for .*; use an adapter that was trained on this model"),
        ({"num_hidden_layers": 3}, "made for a model with other layers: 6 weights do not fit, such as"),
        ({"num_hidden_layers": 1}, "made for a model with other layers: 6 weights do not fit, such as"),
    ],
)
def test_an_adapter_of_another_model_is_refused_in_one_line(
    adapter: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    base = write_model(tmp_path / "base", "llama", **changes)
    with pytest.raises(InputError, match=message) as caught:
        load_model(str(base), adapter=str(adapter))
    assert len(caught.value.messages) == 1


def test_an_adapter_of_tied_embeddings_is_refused(tmp_path: Path) -> None:
    base = write_model(tmp_path / "base", "llama", tie_word_embeddings=True)
    folder = write_adapter(base, tmp_path / "lora", target_modules=["q_proj", "lm_head"])
    with pytest.raises(InputError, match="changes one of two embeddings that share their weights"):
        load_model(str(base), adapter=str(folder))


def test_saved_embeddings_of_a_model_that_ties_them_are_exact(tmp_path: Path) -> None:
    base = write_model(tmp_path / "base", "llama", tie_word_embeddings=True)
    folder = write_adapter(base, tmp_path / "lora", modules_to_save=["embed_tokens"])
    expected = logits(peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder))
    assert torch.allclose(logits(load_model(str(base), adapter=str(folder)).model.network), expected, atol=ROUNDING)


def test_a_resized_embedding_is_refused(models: Models, tmp_path: Path) -> None:
    wider = write_model(tmp_path / "wider", "llama", vocab_size=400)
    folder = write_adapter(wider, tmp_path / "lora", modules_to_save=["embed_tokens", "lm_head"])
    with pytest.raises(InputError, match="size mismatch") as caught:
        load_model(str(models("llama")), adapter=str(folder))
    assert len(caught.value.messages) == 1


def test_adapters_that_are_not_lora_are_refused_by_name(models: Models, tmp_path: Path) -> None:
    kinds = {
        "PREFIX_TUNING: adds tokens of its own": peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2),
        "PROMPT_TUNING: adds tokens of its own": peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2),
        "IA3: not LoRA": peft.IA3Config(task_type="CAUSAL_LM"),
    }
    for number, (message, config) in enumerate(kinds.items()):
        folder = write_adapter(models("llama"), tmp_path / str(number), config=config)
        with pytest.raises(InputError, match=message):
            opened(model=str(models("llama")), adapter=str(folder))


def test_what_does_not_fit_is_refused_with_a_hint(models: Models, adapter: Path, tmp_path: Path) -> None:
    base, names = str(models("llama")), {"task_type": "SEQ_CLS", "alora_invocation_tokens": [5], "new_idea": {"a": 1}}
    for name, value in names.items():
        copy = Path(shutil.copytree(adapter, tmp_path / name))
        fields = json.loads((copy / "adapter_config.json").read_text())
        (copy / "adapter_config.json").write_text(json.dumps({**fields, name: value}))
    (tmp_path / "empty").mkdir()
    shutil.copytree(adapter, tmp_path / "broken")
    (tmp_path / "broken" / "adapter_config.json").write_text("{")
    shutil.copytree(adapter, tmp_path / "unweighted")
    (tmp_path / "unweighted" / "adapter_model.safetensors").unlink()
    refusals = {
        "task_type": "an adapter for SEQ_CLS, not for a causal language model",
        "alora_invocation_tokens": "uses alora_invocation_tokens, which cannot be merged into the weights",
        "new_idea": "uses new_idea, which cannot be merged",
        "empty": "no adapter_config.json in this directory",
        "broken": "its adapter_config.json is not JSON",
        "unweighted": "no adapter_model.safetensors in this directory",
        "absent": "no such directory; check the path, or give a hub id",
    }
    for name, message in refusals.items():
        with pytest.raises(InputError, match=message) as caught:
            opened(model=base, adapter=str(tmp_path / name))
        assert len(caught.value.messages) == 1
    with pytest.raises(InputError, match="pocket has no adapters; name the adapter's base model with model"):
        opened(adapter=str(adapter))


def test_options_and_packages_that_an_adapter_excludes_are_named(
    models: Models, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ModelOptions.checked(model=str(models("llama")), adapter=str(adapter))
    monkeypatch.setattr("deepthink_cli.model.opening._check_extras", lambda options: None)  # bitsandbytes is not here
    with pytest.raises(InputError, match="which quantize 8bit rounds; omit quantize"):
        open_model(options.model_copy(update={"quantize": "8bit"}))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"peft is not installed; in a checkout of deepthink: pip install '\.\[adapter\]'"
    ):
        open_model(options)


def test_an_output_never_replaces_a_file_of_the_adapter(
    models: Models, adapter: Path, demos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = adapter / "adapter_model.safetensors"
    assert thought(["-m", str(models("llama")), "--adapter", str(adapter)], demos, weights) == 2
    assert str(weights) in capsys.readouterr().err

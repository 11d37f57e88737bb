"""Iterative vectors: the command's vectors and scores are those of hooks on whole prompts, in float64."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Models, write_rows
from helpers.families import FAMILIES, OF_EACH_KIND, random_network
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured, json_of, refused
from helpers.tiny import BAD, GOOD
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from deepthink_cli import DemonstrationSet, Example, load_model, predict, save_memory, think, tokenize_demonstrations
from deepthink_cli.artifact.opening import open_for_scoring
from deepthink_cli.cli.main import run
from deepthink_cli.engine.decoding import Decoding, Prompt
from deepthink_cli.errors import InputError
from deepthink_cli.method import Method
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.plugins.vectors.file import VectorsFile, open_vectors, read_vectors, save_vectors
from deepthink_cli.plugins.vectors.make import VectorsPlan, plan_vectors
from deepthink_cli.plugins.vectors.options import AddedOptions, VectorOptions
from deepthink_cli.plugins.vectors.passes import output_projections
from deepthink_cli.selection.pool import pool_of_file

LABELS = ("negative", "positive")
EPISODES, ALPHA = 12, 0.3  # the vectors that are added change after episodes 1 and 11
OPTIONS = {"episodes": EPISODES, "shots": 2, "seed": 3, "extraction_alpha": ALPHA, "alpha": 0.7}
TEXTS = ["a warm play", "a flat and cold film", "kind"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Reviews with their labels."""
    words = [*((word, LABELS[1]) for word in GOOD), *((word, LABELS[0]) for word in BAD)]
    return write_rows(tmp_path / "rows.jsonl", [{"review": f"a {word} film", "label": label} for word, label in words])


@pytest.fixture(params=["llama", "gpt2"])
def family(request: pytest.FixtureRequest) -> str:
    """A family of models."""
    return str(request.param)


@pytest.fixture
def model(family: str, models: Models) -> Path:
    """A random model."""
    return models(family)


@pytest.fixture
def vectors(rows: Path, model: Path, tmp_path: Path) -> Path:
    """The file that the command writes."""
    path = tmp_path / "vectors.safetensors"
    options = [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert run(["vectors", str(rows), "-m", str(model), *options, "-q", "-o", str(path)]) == 0
    return path


@pytest.fixture
def plan(rows: Path, model: Path) -> VectorsPlan:
    """The episodes that the command draws."""
    return plan_vectors(
        pool_of_file(str(rows)), ModelOptions.checked(model=str(model)), VectorOptions.checked(**OPTIONS)
    )


class WholePrompts:
    """transformers' own forward over whole prompts in float64, with hooks on the attention projections."""

    def __init__(self, folder: Path) -> None:
        self.network: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder).double().eval()
        body: Any = self.network.base_model
        blocks = body.layers if hasattr(body, "layers") else body.h
        self.projections = [
            each.self_attn.o_proj if hasattr(each, "self_attn") else each.attn.c_proj for each in blocks
        ]

    @torch.no_grad()
    def __call__(self, ids: Sequence[int], edits: Mapping[int, Tensor]) -> tuple[Tensor, Tensor]:
        """Log-probabilities (S, V), and the projections' outputs (layers, S, W), with vectors (layers, W) added."""
        outputs: list[Tensor] = []

        def hook(_: Any, __: Any, output: Tensor) -> Tensor:
            changed = output.clone()
            for place, of_layers in edits.items():
                changed[0, place] = changed[0, place] + of_layers[len(outputs)]
            outputs.append(changed[0])
            return changed

        handles = [each.register_forward_hook(hook) for each in self.projections]
        logits = self.network(input_ids=torch.tensor([list(ids)])).logits[0]
        for handle in handles:
            handle.remove()
        return logits.log_softmax(-1), torch.stack(outputs)


def extracted_by_hand(whole: WholePrompts, plan: VectorsPlan) -> Tensor:
    """v_l(y), one row for each label and the query's last: (layers, 3, W)."""
    differences: dict[int, list[Tensor]] = defaultdict(list)
    added: dict[int, Tensor] = {}
    for number, episode in enumerate(plan.episodes):
        rows = (*episode.classes, len(LABELS))
        edits = {place: ALPHA * added[row] for place, row in zip(episode.places, rows, strict=True)} if added else {}
        _, together = whole(episode.ids, edits)
        _, alone = whole(episode.alone, {})
        for row in range(len(LABELS) + 1):
            places = [place for place, each in zip(episode.places, rows, strict=True) if each == row]
            differences[row].append(together[:, places].mean(1) - alone[:, -1])
        if number in (0, 10, EPISODES - 1):
            added = {row: torch.stack(each).mean(0) for row, each in differences.items()}
    return torch.stack([added[row] for row in range(len(LABELS) + 1)], dim=1)


def scored_by_hand(whole: WholePrompts, file: VectorsFile, plan: VectorsPlan, text: str) -> dict[str, float]:
    """The log-probability of each label after the demonstrations and a text, with the vectors added."""
    demonstrations, vectors = plan.prompt.demonstrations, OPTIONS["alpha"] * file.tensor.double()
    prompt, before = list(demonstrations.token_ids), f"Review: {text}\nLabel:"
    prefix = plan.spec.tokenizer.encode(before, add_special_tokens=False)
    edits = {place: vectors[:, LABELS.index(each.label)] for place, each in examples_at_places(plan)}
    edits[len(prompt) + len(prefix) - 1] = vectors[:, -1]
    scores = {}
    for label in LABELS:
        ids = plan.spec.tokenizer.encode(f"{before} {label}", add_special_tokens=False)
        log_probabilities, _ = whole([*prompt, *ids], edits)
        places = range(len(prompt) + len(prefix), len(prompt) + len(ids))
        scores[label] = sum(float(log_probabilities[place - 1, ([*prompt, *ids])[place]]) for place in places)
    return scores


def examples_at_places(plan: VectorsPlan) -> Iterable[tuple[int, Example]]:
    """Every demonstration with the token before its label, found by the characters of the whole text."""
    demonstrations = plan.prompt.demonstrations
    text, ends = "", []
    for each in demonstrations.examples:
        text += f"Review: {each.text}\nLabel:"
        ends.append(len(text))
        text += f" {each.label}\n\n"
    offsets = plan.spec.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    places = [max(place for place, (_, stop) in enumerate(offsets) if stop <= end) for end in ends]
    return zip(places, demonstrations.examples, strict=True)


def test_the_vectors_are_those_of_the_equation_in_float64(vectors: Path, plan: VectorsPlan, model: Path) -> None:
    expected = extracted_by_hand(WholePrompts(model), plan)
    torch.testing.assert_close(read_vectors(vectors).tensor.double(), expected, rtol=1e-4, atol=1e-5)


def test_an_episode_is_rows_of_every_label_and_another_row(plan: VectorsPlan) -> None:
    texts = set()
    for episode in plan.episodes:
        assert sorted(episode.classes) == [0, 0, 1, 1]
        text = plan.spec.tokenizer.decode(list(episode.ids), skip_special_tokens=True)
        *solved, asked = text.split("\n\n")
        assert [LABELS.index(each.rpartition(" ")[2]) for each in solved] == list(episode.classes)
        assert len({each.partition("\n")[0] for each in (*solved, asked)}) == 5
        assert plan.spec.tokenizer.decode(list(episode.alone), skip_special_tokens=True) == asked
        texts.add(text)
    assert len(texts) == EPISODES


def test_the_query_of_an_episode_is_no_demonstration_with_another_label(model: Path, tmp_path: Path) -> None:
    texts = [{"review": word, "label": label} for word in ("warm", "dull", "kind") for label in LABELS]
    options = {"episodes": 30, "shots": 1, "seed": 1}
    plan = plan_vectors(
        pool_of_file(str(write_rows(tmp_path / "both.jsonl", texts))),
        ModelOptions.checked(model=str(model)),
        VectorOptions.checked(**options),
    )
    tokenizer = plan.spec.tokenizer
    for episode in plan.episodes:
        asked = tokenizer.decode(episode.alone, skip_special_tokens=True).strip()
        assert tokenizer.decode(episode.ids, skip_special_tokens=True).count(asked) == 1


def test_labels_begin_after_their_places(plan: VectorsPlan) -> None:
    assert plan.prompt.places == tuple(place for place, _ in examples_at_places(plan))


@pytest.mark.parametrize("engine", ["packed", "padded"])
def test_scores_are_those_of_whole_prompts_in_float64(
    engine: str, vectors: Path, plan: VectorsPlan, model: Path, tmp_path: Path
) -> None:
    inputs, labels = write_rows(tmp_path / "inputs.jsonl", [{"review": text} for text in TEXTS]), tmp_path / "out.jsonl"
    assert run(["predict", str(vectors), str(inputs), "--engine", engine, "-q", "-o", str(labels)]) == 0
    whole, file = WholePrompts(model), read_vectors(vectors)
    for text, line in zip(TEXTS, labels.read_text().splitlines(), strict=True):
        expected = scored_by_hand(whole, file, plan, text)
        assert json.loads(line)["scores"] == pytest.approx(expected, abs=2e-4)


def test_vectors_of_zeros_or_with_factor_zero_are_plain_in_context_learning(
    vectors: Path, plan: VectorsPlan, model: Path, tmp_path: Path
) -> None:
    engine, file, zeros = load_model(str(model)), read_vectors(vectors), tmp_path / "zeros.safetensors"
    save_vectors(file.metadata, torch.zeros(file.shape), zeros)
    demonstrations = tokenize_demonstrations(
        engine.tokenizer, DemonstrationSet.of(plan.prompt.demonstrations.examples, file.metadata.template, LABELS)
    )
    plain = [each.scores for each in predict(engine, list(think(engine, demonstrations, Method(1))), TEXTS)]
    for opened in (open_vectors(zeros), open_vectors(vectors, options=AddedOptions(alpha=0.0))):
        found = [each.scores for each in predict(engine, opened.read_by(engine), TEXTS)]
        assert found == [pytest.approx(each, abs=1e-4) for each in plain]
    steered = [each.scores for each in predict(engine, open_vectors(vectors).read_by(engine), TEXTS)]
    assert steered[0] != pytest.approx(plain[0], abs=1e-3)


def test_the_same_command_writes_the_same_bytes_and_the_file_holds_what_was_written(
    vectors: Path, rows: Path, model: Path, tmp_path: Path
) -> None:
    file, copy = read_vectors(vectors), tmp_path / "copy.safetensors"
    again = save_vectors(file.metadata, file.tensor, copy)
    assert copy.read_bytes() == vectors.read_bytes()
    assert again.metadata == file.metadata
    assert {name: getattr(file.metadata, name) for name in OPTIONS} == OPTIONS
    assert (file.metadata.source, file.metadata.rows) == (str(rows), len(GOOD + BAD))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a changed vector": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "a missing end": lambda data: data[:-4],
    "more at its end": lambda data: data + b"0000",
    "another seed": lambda data: data.replace(b'\\"seed\\":3', b'\\"seed\\":4'),
    "a text for a factor": lambda data: data.replace(b'\\"alpha\\":0.7', b'\\"alpha\\":nan'),
    "another label": lambda data: data.replace(b'\\"labels\\":[\\"negative\\"', b'\\"labels\\":[\\"negativa\\"', 1),
    "another shape": lambda data: data.replace(b'"shape":[2,3,32]', b'"shape":[3,2,32]'),
    "another tensor": lambda data: data.replace(b'"vectors":', b'"vektors":'),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_a_damaged_file_is_refused_by_name(damage: str, vectors: Path, rows: Path, capsys: Captured) -> None:
    data = DAMAGES[damage](vectors.read_bytes())
    assert data != vectors.read_bytes()
    vectors.write_bytes(data)
    for words in (["predict", str(vectors), str(rows)], ["inspect", str(vectors), "--verify"]):
        line = refused(capsys, *words)
        assert f"{vectors}: damaged" in line


REFUSED = (
    "calibrate {}",
    "quantize {} -o {}.int8",
    "export {} --to peft -o {}.adapter",
    "diff {}",
    "serve {}",
    "chat {}",
    "generate {} {}.rows",
    "push {} me/memory --dry-run",
    "predict {} {}.rows --workers 2",
    "predict {} {}.rows --ensemble {}",
)


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_what_needs_a_memory_refuses_vectors_by_name(words: str, vectors: Path, rows: Path, capsys: Captured) -> None:
    Path(f"{vectors}.rows").write_bytes(rows.read_bytes())
    assert run(words.replace("{}", str(vectors)).split()) == 2
    assert f"{vectors}: holds iterative vectors, not a memory" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_vectors_of_another_model_are_refused(vectors: Path, rows: Path, models: Models, capsys: Captured) -> None:
    assert f"{vectors}: made by another model" in refused(capsys, "eval", vectors, rows, "-m", str(models("qwen3")))


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_vectors_of_other_sizes_are_refused(vectors: Path, model: Path, tmp_path: Path) -> None:
    file, engine = read_vectors(vectors), load_model(str(model))
    layers, rows, width = file.shape
    for shape in ((layers + 1, rows, width), (layers, rows, width + 1)):
        save_vectors(file.metadata, torch.zeros(shape), path := tmp_path / "other.safetensors")
        with pytest.raises(InputError, match=r"other\.safetensors: Llama"):
            open_vectors(path).read_by(engine)


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_a_memory_with_vectors_is_for_scores_alone(vectors: Path, model: Path, tmp_path: Path) -> None:
    engine = load_model(str(model))
    (memory,) = open_vectors(vectors).read_by(engine)
    with pytest.raises(InputError, match="which its file would not hold"):
        save_memory(memory, tmp_path / "mem.safetensors")
    with pytest.raises(InputError, match="queries with candidates alone"):
        engine.generate(memory, [Prompt((5, 6), 0)], Decoding())
    with pytest.raises(InputError, match="only predict and evaluate"):
        open_vectors(vectors).memories()


def test_a_factor_without_vectors_is_refused(thought_of: Callable[..., Path], rows: Path, tmp_path: Path) -> None:
    memory = thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1")
    with pytest.raises(InputError, match="holds a memory, and no iterative vectors; omit it"):
        open_for_scoring(memory, given={"alpha": 1.0})
    for more in ([], ["--workers", "2"]):
        assert run(["predict", str(memory), str(rows), "--alpha", "1", *more]) == 2


@pytest.mark.parametrize(
    ("shots", "message"), [("9", "has 8 rows with the label 'negative'"), ("8", "has no other input for the query")]
)
def test_too_few_rows_are_refused_by_their_label(
    shots: str, message: str, rows: Path, models: Models, capsys: Captured
) -> None:
    words = ["vectors", str(rows), "-m", str(models("llama")), "--shots", shots, "-o", str(rows.parent / "v")]
    assert run(words) == 2
    assert f"--shots {shots}" in (error := capsys.readouterr().err)
    assert message in error


@pytest.mark.parametrize("family", ["llama"], indirect=True)
def test_eval_and_inspect_say_what_the_file_is(vectors: Path, rows: Path, capsys: Captured) -> None:
    assert (
        run(["eval", str(vectors), str(rows), "--alpha", "0.5", "--calibrate", "none,contextual", "--json", "-q"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["n"] == len(GOOD + BAD)
    assert "iterative-vectors alpha=0.5" in found["memory"]["technique"]
    assert json_of(capsys, "inspect", vectors, "--json")["shape"] == [2, 3, 32]
    assert not modules_after(["inspect", "--verify", str(vectors)]) & HEAVY


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_the_attention_of_every_family_is_known(name: str) -> None:
    network = random_network(name.removesuffix("-alibi"), **{**FAMILIES[name], "vocab_size": 16, "pad_token_id": None})
    assert len(output_projections(network)) == network.config.get_text_config().num_hidden_layers


def test_a_network_whose_attention_is_not_known_is_refused_by_name(models: Models) -> None:
    network = deepcopy(load_model(str(models("llama"))).model.network)
    network.base_model.layers[1].self_attn = torch.nn.Identity()
    with pytest.raises(InputError, match="LlamaForCausalLM: 1 known output projections of attention in 2 layers"):
        output_projections(network)

"""lm-evaluation-harness: T = 1 is its own model, and every context is read once."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import Models
from helpers.harness_tasks import ROWS, SHAPES, harness_task, write_data
from helpers.soak import with_soak
from transformers import AutoTokenizer

from deepthink_cli.errors import InputError

pytest.importorskip("lm_eval", reason="lm-eval is not installed")

import lm_eval.models
import pytest
from lm_eval import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from deepthink_cli import Engine, Gate, Method, think
from deepthink_cli.data.examples import Example
from deepthink_cli.data.template import Template
from deepthink_cli.engine import opening as workflows
from deepthink_cli.model.tokens import TokenizedQuery
from deepthink_cli.plugins.harnesses.lm_eval.contexts import SplitContext, split_in_turn
from deepthink_cli.plugins.harnesses.lm_eval.model import DeepThinkLM
from deepthink_cli.plugins.harnesses.lm_eval.tasks import prepared_tasks
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.scoring.likelihood import score

assert lm_eval.models  # registers the harness's own models
CHAT = Path(__file__).resolve().parents[2] / "chat_templates" / "qwen2.5.jinja"
# An index without the tasks of the harness, whose thousands of files take it a quarter of a minute.
EXTRA = {"bootstrap_iters": 0, "task_manager": TaskManager(include_defaults=False)}
# The shapes that depend on the tokenizer or on the turns of a chat.
FEW = ("fixed-words", "several-inputs", "no-demonstrations", "beginning-of-the-answer", "written-after-demonstrations")
Samples = dict[str, list[Any]]


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Models are loaded once, and the harness does not describe the machine, which takes it seconds."""
    with pytest.MonkeyPatch.context() as patch:
        engines: dict[str, Engine] = {}
        plain = workflows.load

        def load(spec: Any, tell: Any) -> Engine:
            if spec.id not in engines:
                engines[spec.id] = plain(spec, tell)
            return engines[spec.id]

        patch.setattr(workflows, "load", load)
        patch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
        patch.setattr("lm_eval.evaluator.get_git_commit_hash", lambda: None)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the rows of the tasks."""
    folder = tmp_path_factory.mktemp("harness")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def chatting(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model with a chat template."""
    folder = tmp_path_factory.mktemp("chatting") / "llama"
    shutil.copytree(models("llama"), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": []})
    tokenizer.chat_template = CHAT.read_text()
    tokenizer.save_pretrained(folder)
    return folder


def ours(folder: Path, **arguments: Any) -> DeepThinkLM:
    return DeepThinkLM(str(folder), device="cpu", **{"dtype": "float32", "iterations": 1, **arguments})


def theirs(folder: Path) -> HFLM:
    return HFLM(str(folder), dtype="float32", device="cpu", batch_size=4)


def responses(model: Any, tasks: Sequence[Any], exact: bool = True, **options: Any) -> Samples:
    """What a model answers to each request of each row of each task."""
    if exact:
        with prepared_tasks():
            results = simple_evaluate(model=model, tasks=list(tasks), **EXTRA, **options)
    else:
        results = simple_evaluate(model=model, tasks=list(tasks), **EXTRA, **options)
    return {task: [each["resps"] for each in samples] for task, samples in results["samples"].items()}


def assert_same(left: Any, right: Any) -> None:
    """Numbers within 1e-4, everything else equal, however deep."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        left, right = list(left.values()), [right[key] for key in left]
    if isinstance(left, list | tuple):
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            assert_same(*pair)
    else:
        assert left == (pytest.approx(right, abs=1e-4) if type(left) is float else right)


@pytest.fixture(scope="module")
def answers(models: Models, data: Path) -> Callable[[str, str], Samples]:
    """What the harness's model and ours answer, all shapes at once."""

    @cache
    def of(family: str, kind: str) -> Samples:
        tasks = [harness_task(data, shape) for shape in SHAPES]
        model = theirs(models(family)) if kind == "hf" else ours(models(family))
        return responses(model, tasks)

    return of


@pytest.mark.parametrize("family", with_soak(["llama", "gpt2"], ["llama"]))
@pytest.mark.parametrize("shape", SHAPES)
def test_one_reading_gives_the_numbers_of_the_harness(
    family: str, shape: str, answers: Callable[[str, str], Samples]
) -> None:
    expected = answers(family, "hf")[shape]
    assert len(expected) == ROWS
    assert_same(answers(family, "ours")[shape], expected)


@pytest.mark.parametrize("multiturn", [True, False])
def test_one_reading_gives_the_numbers_of_the_harness_in_a_chat(multiturn: bool, chatting: Path, data: Path) -> None:
    options = {"apply_chat_template": True, "fewshot_as_multiturn": multiturn, "system_instruction": "Be brief."}
    tasks = [harness_task(data, shape) for shape in FEW]
    model = ours(chatting)
    assert_same(responses(model, tasks, **options), responses(theirs(chatting), tasks, **options))


def test_prompts_that_are_too_long_are_cut_as_the_harness_cuts_them(models: Models, data: Path) -> None:
    tasks = [
        harness_task(data, shape, num_fewshot=8)
        for shape in ("fixed-words", "own-candidates", "written-after-demonstrations")
    ]
    short = HFLM(str(models("llama")), dtype="float32", device="cpu", max_length=60)
    assert_same(responses(ours(models("llama"), max_length=60), tasks), responses(short, tasks))


class Counting:
    """Counts the contexts that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        plain = think

        def counted(engine: Any, demonstrations: Any, method: Any) -> Any:
            self.texts.append(demonstrations.examples[0].text)
            return plain(engine, demonstrations, method)

        monkeypatch.setattr("deepthink_cli.thinking.think", counted)


def test_every_distinct_context_is_read_once(models: Models, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, contexts = Counting(monkeypatch), set()
    tasks = [harness_task(data, shape) for shape in SHAPES if not shape.startswith("written")]
    model = ours(models("llama"), iterations=2)
    plain = model._split

    def seen(requests: Sequence[Any]) -> list[SplitContext]:
        split = plain(requests)
        contexts.update(prompt.context for prompt in split if prompt.context)
        return split

    monkeypatch.setattr(model, "_split", seen)
    responses(model, tasks)
    assert sorted(reading.texts) == sorted(contexts)
    assert model.memories.readings == len(contexts) > ROWS


def test_the_context_is_what_precedes_the_query(models: Models, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Counting(monkeypatch)
    model = ours(models("llama"), iterations=2)
    shapes = ["fixed-words", "several-inputs", "delimiters", "description-alone", "blank-line-in-the-query"]
    responses(model, [harness_task(data, shape, num_fewshot=0 if "alone" in shape else 1) for shape in shapes])
    assert reading.texts == [
        "Review: a dull train 0\nSentiment: negative\n\n",
        "It was a dull train 0 and then it ended.\n\n",
        "Review: a dull train 0\nSentiment:\nnegative\n###\n",
        "Say what the reviewer felt.\n\n",
        "Review:\n\na dull train 0\n\nSentiment: negative\n\n",
    ]


def test_several_readings_score_as_a_memory_of_the_same_tokens(models: Models, data: Path) -> None:
    model = ours(models("llama"), iterations=4, eta=0.3)
    (row, *_) = responses(model, [harness_task(data, "fixed-words")])["fixed-words"]
    (task,) = [harness_task(data, "fixed-words")]
    from helpers.harness_tasks import rows

    shown = [f"Review: {row['text']}\nSentiment:" for row in [*rows("train", 3), *rows("test", 1)]]
    labels = ["negative", "positive", "negative"]
    context = "".join(f"{text} {label}\n\n" for text, label in zip(shown, labels, strict=False))
    prompt = model.tokenizer.encode(context + shown[3])
    ids = model.tokenizer.encode(context)
    start = next(n for n, pair in enumerate(zip(ids, prompt, strict=False)) if len(set(pair)) > 1)
    whole = TokenizedDemonstrations((Example("", ""),), Template("{a}{b}"), (), token_ids=tuple(prompt[:start]))
    *_, memory = think(model.engine, whole, Method(4, Gate(0.3)))
    added = [
        tuple(model.tokenizer.encode(f"{context}{shown[3]} {word}")[len(prompt) :]) for word in task["doc_to_choice"]
    ]
    (expected,) = score(model.engine, memory, [TokenizedQuery(tuple(prompt[start:]), tuple(added))])
    assert [value for ((value, _),) in row] == pytest.approx(expected.sums, abs=1e-4)
    once = responses(ours(models("llama")), [harness_task(data, "fixed-words")])["fixed-words"][0]
    assert [value for ((value, _),) in once] != pytest.approx(expected.sums, abs=1e-3)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the package logs for the harness."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("lm_eval.models.deepthink")
    monkeypatch.setattr(logger, "level", logging.INFO)  # the harness sets those of its loggers, and disables them
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger.manager, "disable", 0)
    logger._cache.clear()  # type: ignore[attr-defined]
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def test_demonstrations_of_each_row_are_warned_of(models: Models, data: Path, logged: list[str]) -> None:
    lm_eval.models  # noqa: B018
    task = [harness_task(data, "drawn-for-each-row")]
    model = ours(models("llama"), iterations=5)
    responses(model, task)
    assert model.memories.readings == ROWS
    told = f"task drawn-for-each-row: {ROWS} distinct contexts for {ROWS} prompts, each read 5 times"
    assert f"{told}; demonstrations=fixed draws them once" in logged


@pytest.mark.parametrize("shape", ["drawn-for-each-row", "from-the-tested-rows"])
def test_fixed_demonstrations_are_drawn_once_and_never_hold_the_row_itself(
    shape: str, models: Models, data: Path, logged: list[str]
) -> None:
    model = ours(models("llama"), iterations=2, demonstrations="fixed")
    task = harness_task(data, shape, fewshot_config=None, num_fewshot=2)
    with prepared_tasks():
        results = simple_evaluate(model=model, tasks=[task], **EXTRA)
    prompts = [SplitContext(each["arguments"][0][0]) for each in results["samples"][shape]]
    assert all(
        prompt.count(str(each["doc"]["text"])) == 1
        for prompt, each in zip(prompts, results["samples"][shape], strict=True)
    )
    assert model.memories.readings == (1 if shape == "drawn-for-each-row" else 3)
    assert not [line for line in logged if "draws them once" in line]


@pytest.mark.parametrize("arguments", [{"demonstrations": "fixed"}, {"iterations": 2}])
def test_fixed_demonstrations_and_several_readings_need_prepared_tasks(
    arguments: dict[str, Any], models: Models, data: Path
) -> None:
    model = ours(models("llama"), **arguments)
    with pytest.raises(InputError, match=r"task drawn-for-each-row: .* tasks must be prepared .* `deepthink harness`"):
        responses(model, [harness_task(data, "drawn-for-each-row")], exact=False)


def test_the_caches_of_the_harness_are_refused(models: Models, data: Path, tmp_path: Path) -> None:
    tasks = [harness_task(data, "drawn-for-each-row")]
    with pytest.raises(InputError, match="--use_cache: its keys are the prompt alone, without T and eta"):
        responses(ours(models("llama")), tasks, use_cache=str(tmp_path / "cache"))
    with pytest.raises(InputError, match="--cache_requests: its key does not name the demonstrations"):
        responses(ours(models("llama"), demonstrations="fixed"), tasks, cache_requests=True)


def test_a_context_that_is_too_long_is_refused_before_anything_is_read(
    models: Models, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ours(models("llama"), iterations=2)
    tasks = [harness_task(data, "fixed-words"), harness_task(data, "own-candidates", num_fewshot=12)]
    short = model.engine.limits.__class__(positions=300, keys=None, relative=False)
    monkeypatch.setitem(model.engine.model.__dict__, "limits", short)
    with pytest.raises(InputError, match=r"task own-candidates, row 0: its context is too long: L = \d+ tokens"):
        responses(model, tasks)
    assert model.memories.readings == 0


def test_generation_arguments_that_are_not_supported_are_named(models: Models, data: Path) -> None:
    model = ours(models("llama"))
    task = harness_task(data, "written", generation_kwargs={"until": ["\n"], "max_gen_toks": 2, "num_beams": 4})
    with pytest.raises(InputError, match="task written: generation argument num_beams=4 is not supported"):
        responses(model, [task])
    sampled = {"until": ["\n"], "max_gen_toks": 2, "do_sample": True, "temperature": 0.7, "top_p": 0.9}
    assert responses(model, [harness_task(data, "written", generation_kwargs=sampled)])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"etta": 0.1}, "--model_args etta: no such argument; did you mean eta?"),
        ({"eta": 7}, r"--model_args eta=7.*: the gate is a number in \(0, 1\]"),
        ({"iterations": 0}, "--model_args iterations=0: T counts readings"),
        ({"demonstrations": "some"}, "--model_args demonstrations=some: is not 'per-doc' or 'fixed'"),
        ({"max_length": 0}, "--model_args max_length=0: must be 2 or more"),
        ({"pretrained": "/nowhere/at-all"}, "/nowhere/at-all"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        DeepThinkLM(**{"pretrained": "pocket", **arguments})


@pytest.mark.parametrize(
    ("content", "written", "start"),
    [
        ("shots query", "<u>shots query</u>", 9),
        (" shots query", "<u>shots query</u>", 9),  # the template strips the turn
        ("query then more", "<u>query then more</u>", None),
        ("shots query", "<u>other</u>", None),
    ],
)
def test_a_turn_is_split_before_its_query_if_it_ends_with_it(content: str, written: str, start: int | None) -> None:
    split = split_in_turn(content, "query", written)
    assert split == written
    assert (split.start if isinstance(split, SplitContext) else None) == start

"""Tasks of the harness, prepared: their prompts carry where the query begins, and their demonstrations may be fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from deepthink_cli.errors import InputError
from deepthink_cli.integrations.lm_eval.contexts import SplitContext, Turns, before_query, split_in_turn

Task = Any  # lm_eval.api.task.Task, which is not typed


class PreparesTasks(Protocol):
    """A model of the harness that wants its tasks prepared."""

    def prepare(self, tasks: Mapping[str, Task]) -> None:
        """Prepare the tasks, by name, before their prompts are written."""

    def split_turns(self, turns: Turns, written: str) -> str:
        """A written conversation, split before its query."""


@contextmanager
def prepared_tasks() -> Iterator[None]:
    """Within the block, the harness prepares the tasks of a model that wants it: their contexts are split exactly."""
    from lm_eval import evaluator

    plain = evaluator.evaluate

    def evaluate(lm: Any, task_dict: Any, *arguments: Any, **options: Any) -> Any:
        if hasattr(lm, "split_turns"):
            lm.prepare(task_dict["tasks"])
        return plain(lm, task_dict, *arguments, **options)

    evaluator.evaluate = evaluate
    try:
        yield
    finally:
        evaluator.evaluate = plain


def carry_splits(task: Task, model: PreparesTasks) -> None:
    """Make the prompts of a task carry where the query begins.

    What the task does not write with its turns, as no task of the harness does, stays unsplit.
    """
    plain: Callable[..., Any] = task.fewshot_context

    def fewshot_context(*arguments: Any, **options: Any) -> Any:
        conversations: list[Turns] = []
        template = options.get("chat_template")
        if template is not None:
            options["chat_template"] = partial(_recorded, template, conversations)
        with _recording(task) as turns:
            context = plain(*arguments, **options)
        several = isinstance(context, list)
        contexts = context if several else [context]
        asked = turns[-len(contexts) :]
        if len(asked) < len(contexts):
            return context
        talks: Sequence[Turns | None] = conversations if len(conversations) == len(contexts) else [None] * len(contexts)
        split = [_split(model, *each) for each in zip(contexts, asked, talks, strict=True)]
        return split if several else split[0]

    task.fewshot_context = fewshot_context


def _recorded(template: Callable[..., str], conversations: list[Turns], turns: Turns, **options: Any) -> str:
    conversations.append(turns)
    return template(turns, **options)


@contextmanager
def _recording(task: Task) -> Iterator[list[list[Any]]]:
    """The turns that the task writes within the block, one list for every question."""
    turns: list[list[Any]] = []
    plain = getattr(task, "build_qa_turn", None)
    if plain is None:
        yield turns
        return

    def build_qa_turn(*arguments: Any, **options: Any) -> Any:
        turns.append(plain(*arguments, **options))
        return turns[-1]

    task.build_qa_turn = build_qa_turn
    try:
        yield turns
    finally:
        del task.build_qa_turn


def _split(model: PreparesTasks, context: str, asked: Sequence[Any], turns: Turns | None) -> str:
    """A prompt with its split, from the turns of its query; unsplit if these are not at its end."""
    if turns is None:
        query = "".join(turn.to_text() for turn in asked)
        return SplitContext(context, len(context) - len(query)) if context.endswith(query) else context
    rest = turns[len(before_query(turns)) :]
    content = rest[0]["content"] if rest else ""
    if content == asked[0].content:
        return model.split_turns(turns, context)
    return split_in_turn(content, asked[0].content, context)


def fix_demonstrations(task: Task) -> None:
    """Make a task draw its demonstrations once, for all of its rows.

    A row that is among them gets one more of the draw in its place, so that it never sees its own answer.
    """
    from lm_eval.api.samplers import FirstNSampler

    sampler = getattr(task, "sampler", None)
    if sampler is None or isinstance(sampler, FirstNSampler):
        return
    draw: Callable[..., Sequence[Any]] = sampler.sample
    drawn: dict[int, list[Any]] = {}

    def sample(n: int, eval_doc: Any = None, **options: Any) -> Sequence[Any]:
        if n not in drawn:
            spare = int(eval_doc is not None and len(sampler.df) > n)
            drawn[n] = list(draw(n + spare, **options))
        rows = [row for row in drawn[n] if eval_doc is None or row != eval_doc][:n]
        return rows if len(rows) == n else draw(n, eval_doc=eval_doc, **options)

    sampler.sample = sample


def refuse_cached_prompts(task: Task) -> None:
    """Make a task with fixed demonstrations raise InputError for prompts of the harness's cache."""
    plain: Callable[..., None] = task.build_all_requests

    def build_all_requests(*arguments: Any, **options: Any) -> None:
        if options.get("cache_requests"):
            raise InputError(
                "--cache_requests: its key does not name the demonstrations, so that demonstrations=fixed would read "
                "prompts with others; omit one of the two"
            )
        plain(*arguments, **options)

    task.build_all_requests = build_all_requests

"""Texts that a task asks the model to write, after the memory of their context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import InputError
from deepthink_cli.integrations.lm_eval.contexts import SplitContext
from deepthink_cli.integrations.lm_eval.requests import Request, request_of
from deepthink_cli.integrations.lm_eval.scoring import checked_groups, memory_of

if TYPE_CHECKING:
    from deepthink_cli.engine.decoding import Decoding
    from deepthink_cli.integrations.lm_eval.model import DeepThinkLM

MAX_NEW = 256  # tokens that the harness's own model writes where a task does not say
_OF_SAMPLING = {"top_k", "min_p", "typical_p"}  # without effect on greedy decoding
_NEUTRAL: dict[str, Any] = {"num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "use_cache": True}


@dataclass(frozen=True)
class Wanted:
    """How a prompt is to be continued: `stop` are the strings at which the text ends."""

    decoding: Decoding
    stop: tuple[str, ...]


def generated(
    model: DeepThinkLM, contexts: Sequence[SplitContext], options: Sequence[Mapping[str, Any]], quiet: bool
) -> list[str]:
    """What the model writes after every prompt, by the generation arguments of its task.

    Raises InputError for arguments that are not supported, and for a prompt that is too long.
    """
    from tqdm import tqdm

    from deepthink_cli.engine.decoding import Prompt
    from deepthink_cli.generation.continuation import continuations

    wanted = [_wanted(model, *each) for each in zip(contexts, options, strict=True)]
    requests = [_request(model, *each) for each in zip(contexts, wanted, strict=True)]
    texts = [""] * len(requests)
    with tqdm(total=len(requests), disable=quiet, desc=f"Generating, T = {model.memories.method.iterations}") as bar:
        for group in checked_groups(model.memories, requests):
            memory = memory_of(model.memories, requests, group)
            by_wanted: dict[Wanted, list[int]] = {}
            for number in group.numbers:
                by_wanted.setdefault(wanted[number], []).append(number)
            for each, numbers in by_wanted.items():
                prompts = [Prompt(requests[n].prompt[group.start :], n, requests[n].where) for n in numbers]
                written = continuations(model.engine, memory, prompts, each.decoding)
                for number, continuation in zip(numbers, written, strict=True):
                    texts[number] = _text(model, continuation.token_ids, each.stop)
                bar.update(len(numbers))
    return texts


def _wanted(model: DeepThinkLM, context: SplitContext, options: Mapping[str, Any]) -> Wanted:
    from lm_eval.models.utils import handle_stop_sequences, normalize_gen_kwargs

    from deepthink_cli.engine.decoding import Decoding

    values: dict[str, Any] = {**normalize_gen_kwargs(dict(options), MAX_NEW)}
    end = model.tokenizer.decode([model.eot_token_id], skip_special_tokens=False)
    stop = tuple(filter(None, handle_stop_sequences(list(values.pop("until")), eos=end)))
    new = values.pop("max_gen_toks")
    sampled = bool(values.pop("do_sample"))
    temperature, top_p = float(values.pop("temperature", 0.0)), float(values.pop("top_p", 1.0))
    for name, value in values.items():
        if _NEUTRAL.get(name, ...) != value and (sampled or name not in _OF_SAMPLING):
            raise InputError(
                f"task {context.where[0]}: generation argument {name}={value} is not supported; "
                "texts are written greedily, or sampled with temperature and top_p"
            )
    decoding = Decoding.checked(
        temperature=temperature if sampled else 0.0, top_p=top_p if sampled else 1.0, max_new_tokens=new, stop=stop
    )
    return Wanted(decoding, stop)


def _request(model: DeepThinkLM, context: SplitContext, wanted: Wanted) -> Request:
    """The prompt, cut on the left so that the new tokens fit the model."""
    remaining = model.max_length - wanted.decoding.max_new_tokens
    task = context.where[0]
    if remaining < 1:
        raise InputError(
            f"task {task}: {wanted.decoding.max_new_tokens} new tokens, the model holds {model.max_length}; "
            "use --gen_kwargs max_gen_toks=N with a smaller N"
        )
    prompt = model.prompt_ids(context) or [model.prefix_token_id]
    alone = model.prompt_ids(context.context) if context.start else []
    return request_of(context, alone, prompt, (), remaining)


def _text(model: DeepThinkLM, ids: Sequence[int], stop: Sequence[str]) -> str:
    from lm_eval.models.utils import postprocess_generated_text

    text = model.tokenizer.decode(list(ids), skip_special_tokens=True)
    return str(postprocess_generated_text(generation=text, stop=list(stop), think_end_token=None))

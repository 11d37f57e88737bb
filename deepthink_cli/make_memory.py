"""Make memories: the workflow of `deepthink think`, and many together, as many as fit the device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deepthink_cli.advice import few_demonstrations, strong_bias
from deepthink_cli.artifact.format import Header
from deepthink_cli.artifact.metadata import rule_as_json
from deepthink_cli.calibration.basis import check_inputs
from deepthink_cli.calibration.calibrator import calibrated_by_texts
from deepthink_cli.calibration.notes import check_storable
from deepthink_cli.calibration.registry import CorrectionOptions
from deepthink_cli.data.examples import DemonstrationSet
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.errors import DeepThinkError, InputError, ran_out_of_memory
from deepthink_cli.events import Progress, Tell, Warn, silent
from deepthink_cli.meaning import check_meaning
from deepthink_cli.method import MethodOptions
from deepthink_cli.model.families import windowed_layers
from deepthink_cli.model.limits import SHARE, check_fit, count_tokens, last_of, max_demonstrations
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import tokenize_demonstrations
from deepthink_cli.provenance import RecordedTechnique, TokenizedDemonstrations
from deepthink_cli.scoring.extended_labels import check_labels, other_score
from deepthink_cli.scoring.scoring import PLAIN
from deepthink_cli.techniques.base import Technique, Trained
from deepthink_cli.techniques.registry import DEEP_THINKING, TechniqueOptions

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory
    from deepthink_cli.thinking import Thought

Result = TypeVar("Result")


@dataclass(frozen=True)
class Origin:
    """The origin of demonstrations: the task whose rows they are, and the seed that drew them."""

    task: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class ThinkPlan:
    """A checked plan for making a memory, before the weights are loaded.

    `technique` is set if it is not Deep-Thinking alone, `tuning` if the memory is
    trained, `calibrate` if a correction by this calibration is stored.
    """

    spec: ModelSpec
    demonstrations: TokenizedDemonstrations
    options: MethodOptions
    origin: Origin
    technique: RecordedTechnique | None = None
    tuning: Trained | None = None
    calibrate: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values, sizes in bytes."""
        spec, method, length = self.spec, self.options.method, len(self.demonstrations.token_ids)
        memory_bytes, window = spec.memory_bytes(length), windowed_layers(spec.config.get_text_config(decoder=True))
        return {
            "model": spec.id,
            "architecture": spec.architecture,
            "dtype": str(spec.dtype).removeprefix("torch."),
            "device": "several (auto)" if spec.options.device_map else str(spec.device),
            "demonstrations": len(self.demonstrations.examples),
            "labels": list(self.demonstrations.labels),
            "tokens": length,
            "tokens_attended": length if method.iterations == 1 else 2 * length,
            "largest": spec.limits.largest(method.positions, method.iterations),
            "context": spec.limits.max_tokens(),
            "window": window and dict(zip(("tokens", "layers", "of_layers"), window, strict=True)),
            "passes": method.iterations,
            **rule_as_json(method.update),
            "positions": method.positions,
            "kept": list(self.options.kept),
            "technique": str(self.technique or DEEP_THINKING),
            "memory_bytes": memory_bytes,
            "file_bytes": memory_bytes * len(self.options.kept),
        }


@dataclass(frozen=True)
class ThinkResult:
    """A stored memory: the header of its file, and the time of the readings in seconds.

    `advice` has a sentence for each sign: too few demonstrations of a label, a strong bias toward a label.
    """

    header: Header
    seconds: float
    advice: list[str] = field(default_factory=list)


def plan_thinking(
    demonstrations: DemonstrationSet,
    model: ModelOptions,
    method: MethodOptions,
    technique: TechniqueOptions | None = None,
    correction: CorrectionOptions | None = None,
    origin: Origin | None = None,
    tell: Tell = silent,
) -> ThinkPlan:
    """Find the model and check that T readings of the demonstrations fit it, without loading its weights.

    A `technique` changes the demonstrations; if the changed ones do not all fit, the first are left out, with a
    warning. Raises InputError for demonstrations that do not fit unchanged, or that cannot be changed or trained on,
    for label words with the same tokens, for unknown tokens, for options without meaning beside the technique, and for
    a `correction` that is estimated from rows or that the demonstrations do not support.
    """
    options = technique or TechniqueOptions.checked()
    given = [*method.model_fields_set, *options.model_fields_set]
    check_meaning("think", given, {**method.model_dump(), **options.model_dump()})
    used = options.chosen
    calibrate = None if correction is None else correction.of_texts
    if demonstrations.template.label_separator is not None and (used.other_words or isinstance(used, Trained)):
        raise InputError.of("technique", used.name, "is of rows with one label; omit it for rows with several")
    used.change(demonstrations)  # raises, before the model is looked for, if it cannot change them
    spec = find_model(model, tell)
    check_fit(spec.limits, spec.tokenizer, demonstrations, method.iterations, method.positions, spec.id)
    demonstrations = _fitting(spec, used, demonstrations, method, tell)
    tokenized = tokenize_demonstrations(spec.tokenizer, demonstrations)
    spec.check_ids(tokenized.token_ids, "demonstrations")
    if demonstrations.labels:
        text, other = demonstrations.examples[0].text, other_score(PLAIN, "deepthink predict {option} {name}")
        labelled = check_labels(spec.tokenizer, tokenized, PLAIN, text, demonstrations.labels, tell, options=other)
        spec.check_ids(labelled.ids, labelled.where)
    used.check(spec, tokenized, tell)
    tuning = used if isinstance(used, Trained) else None
    recorded = used.recorded(demonstrations.words)
    if calibrate is not None:
        check_storable(calibrate, tokenized, "the memory")
        check_inputs([calibrate], tokenized, spec)
    return ThinkPlan(spec, tokenized, method, origin or Origin(), recorded, tuning, calibrate)


def _fitting(
    spec: ModelSpec, technique: Technique, given: DemonstrationSet, method: MethodOptions, tell: Tell
) -> DemonstrationSet:
    """The demonstrations that a technique reads: all of the given ones, or as many as fit, as in a run."""
    changed = technique.change(given)
    if changed is given:
        return given

    @cache
    def tokens(number: int) -> int:
        reading = technique.change(last_of(given, number))
        return count_tokens(spec.tokenizer, reading, reading.examples)

    name, count, limits = technique.name, len(given.examples), (spec.limits, method.positions, method.iterations)
    if max_demonstrations(*limits, tokens, count) == count:
        return changed
    fit = max_demonstrations(*limits, tokens, count, SHARE)
    if not fit:
        raise InputError.of(
            "technique",
            name,
            f"none of the demonstrations fits: the last has {tokens(1)} tokens, {spec.id} holds "
            f"{spec.limits.largest(method.positions, method.iterations)} in T = {method.iterations} readings, "
            "and a query needs some of its context; use another technique, or shorter demonstrations",
        )
    tell(Warn(f"{fit} of {count} demonstrations fit {spec.id} with {name}; the first {count - fit} are left out"))
    return technique.change(last_of(given, fit))


def think_and_save(plan: ThinkPlan, output: str | Path, tell: Tell = silent) -> ThinkResult:
    """Load the model, think, and write the kept iterations to a file, with a correction if the plan has one."""
    from deepthink_cli.artifact.files import save_memory
    from deepthink_cli.artifact.format import check_replaceable

    check_replaceable(output)
    engine = load(plan.spec, tell)
    engine.check_ids(plan.demonstrations.token_ids, "demonstrations")
    started = time.perf_counter()
    if plan.tuning is None:
        memories = _kept(engine, plan, started, tell)
    else:
        training, steps = plan.tuning.training(engine, plan.demonstrations), plan.tuning.steps
        tell(Progress("tuning", 0, steps, {"loss": "", "speed": ""}))
        for step, loss in enumerate(training, start=1):
            speed = f"{(time.perf_counter() - started) / step:.2f} s/step"
            tell(Progress("tuning", step, steps, {"loss": f"loss {loss:.4f}", "speed": speed}))
        memories = [training.memory]
    seconds = time.perf_counter() - started
    memories = [memory.recorded(**vars(plan.origin), technique=plan.technique) for memory in memories]
    if plan.calibrate is not None:
        correction = calibrated_by_texts(engine, memories, plan.calibrate)
        memories = [
            memory.recorded(calibrated=correction) for memory in memories if memory.iteration in plan.options.kept
        ]
    header, last = save_memory(memories, output), memories[-1]
    # From the demonstrations, and from the memory's answers to texts without content.
    advice = few_demonstrations(plan.demonstrations.label_counts)
    one = plan.demonstrations.template.label_separator is None
    if plan.demonstrations.labels and plan.calibrate is None and one:
        with suppress(DeepThinkError):  # such texts do not fit every template, nor long labels every model
            check_inputs(["contextual"], plan.demonstrations, plan.spec)
            bias = calibrated_by_texts(engine, [last], "contextual").bias[str(last.iteration)].compared
            advice += strong_bias({label: math.exp(value) for label, value in bias.items()}, str(output))
    return ThinkResult(header, seconds, advice)


def _kept(engine: Engine, plan: ThinkPlan, started: float, tell: Tell) -> list[Memory]:
    """The memories to store; for a correction, also T = 1, with which others are compared."""
    from deepthink_cli.thinking import think

    memories = []
    total = plan.options.iterations
    tell(Progress("reading", 0, total, {"drift": "", "speed": ""}))
    for memory in think(engine, plan.demonstrations, plan.options.method):
        if memory.iteration in plan.options.kept or (plan.calibrate is not None and memory.iteration == 1):
            memories.append(memory)
        speed = memory.iteration * memory.length / (time.perf_counter() - started)
        drift = memory.drift[-1] if memory.drift else None
        changes = f"drift K {drift.mean_keys:.2%} V {drift.mean_values:.2%}" if drift else "first reading"
        tell(Progress("reading", memory.iteration, total, {"drift": changes, "speed": f"{speed:,.0f} tokens/s"}))
    return memories


COPIES = 3  # maximum number of float32 copies of a memory: history, present and the state of the update rule


def think_in_batches(
    engine: Engine, thoughts: Sequence[Thought], use: Callable[[Sequence[int], list[Memory]], Iterator[Result]]
) -> Iterator[Result]:
    """Make as many memories together as fit the device's free memory, and yield the results of `use` for every reading.

    `use` gets the indices of a batch of thoughts and their memories after a reading. If a batch runs out of memory,
    each half of it starts again: `use` may see a reading twice.
    """
    longest = max(len(demonstrations.token_ids) for demonstrations, _ in thoughts)
    most = max(1, engine.tokens_held(COPIES) // longest)
    for start in range(0, len(thoughts), most):
        yield from _batch(engine, thoughts, range(start, min(start + most, len(thoughts))), use)


def _batch(
    engine: Engine,
    thoughts: Sequence[Thought],
    numbers: Sequence[int],
    use: Callable[[Sequence[int], list[Memory]], Iterator[Result]],
) -> Iterator[Result]:
    from deepthink_cli.thinking import think_together

    try:
        for memories in think_together(engine, [thoughts[number] for number in numbers]):
            yield from use(numbers, memories)
            memories.clear()  # frees memory for the next reading
        return
    except Exception as error:
        if len(numbers) == 1 or not ran_out_of_memory(error):
            raise
    # Not inside the handler, which keeps the tensors of the failed pass alive.
    memories = []
    half = len(numbers) // 2
    yield from _batch(engine, thoughts, numbers[:half], use)
    yield from _batch(engine, thoughts, numbers[half:], use)

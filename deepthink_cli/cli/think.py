"""`deepthink think`: read demonstrations T times and store the memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli.console import note, progress, size, write_json
from deepthink_cli.cli.data_options import DataDir, DrawingArguments, PromptArguments, ProtocolName, TaskName
from deepthink_cli.cli.grouped import Without, grouped
from deepthink_cli.cli.method_options import MethodArguments
from deepthink_cli.cli.options import OUTPUT, CommonArguments, ModelArguments
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.tasking import draw, given_demonstrations, only_with_task, source_of
from deepthink_cli.cli.values import label_list, pattern, unescaped
from deepthink_cli.errors import InputError, Problems

if TYPE_CHECKING:
    from deepthink_cli.data.examples import DemonstrationSet
    from deepthink_cli.engine.network import LanguageModel
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.spec import ModelSpec
    from deepthink_cli.options import MethodOptions, ModelOptions, TaskOptions
    from deepthink_cli.provenance import TokenizedDemonstrations
    from deepthink_cli.tasks.sources import Source

Demos = Annotated[
    str | None,
    typer.Argument(
        metavar="[DEMOS]",
        help="Solved examples: JSON Lines, CSV, TSV or Parquet; - for JSON Lines on stdin. "
        "With --task they may be left out.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", rich_help_panel=OUTPUT, help="Where the memory goes.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", rich_help_panel=OUTPUT, help="Print the plan; load no weights, write nothing.")
]


@dataclass(frozen=True)
class Origin:
    """The task and the seed that a memory's demonstrations come from; `typed` is the value of --task."""

    task: str | None = None
    seed: int | None = None
    typed: str | None = None


@grouped
def think(
    demos: Demos = None,
    output: Output = Path("memory.safetensors"),
    *,
    model: Annotated[ModelArguments, Without("batch_tokens")],
    method: MethodArguments,
    prompt: PromptArguments,
    task: TaskName = None,
    drawing: DrawingArguments,
    protocol: ProtocolName = "official",
    data_dir: DataDir = None,
    dry_run: DryRun = False,
    common: CommonArguments,
) -> None:
    """Read solved examples T times and store what the model remembers of them as a file."""
    from deepthink_cli.workflows.outputs import check_apart

    problems = Problems()
    with problems.collected():
        read = read_by(
            demos, model=model.model, template=prompt.template, task=task, data_dir=data_dir, config=common.config
        )
        check_apart(output, read)
    with problems.collected():
        model_options = model.checked()
    with problems.collected():
        method_options = method.checked()
        kept = method_options.kept
    with problems.collected():
        task_options = drawing.checked()
    with problems.collected():
        only_with_task(task, **asdict(drawing))
    with problems.collected():
        source = source_of(data_dir, model.offline)
    if task is None:
        with problems.collected():
            demonstration_set = _from_rows(demos, prompt)
        problems.raise_any()
        origin = Origin()
    else:
        with problems.collected():
            _only_without_task(**asdict(prompt))
        problems.raise_any()
        demonstration_set, origin = _from_task(task, demos, protocol, source, task_options, common.quiet)

    spec, demonstrations = _prepare(model_options, method_options, demonstration_set, common.quiet)
    if dry_run:
        _show_plan(_plan(spec, demonstrations, method_options, output), common.json)
        return
    _think(spec, demonstrations, method_options, kept, origin, output, common)


def _from_rows(demos: str | None, prompt: PromptArguments) -> DemonstrationSet:
    from deepthink_cli.data.examples import read_demonstrations
    from deepthink_cli.data.template import SEPARATOR

    if demos is None:
        raise InputError("DEMOS: no demonstrations; give a file of solved examples, or --task NAME")
    separator = SEPARATOR if prompt.separator is None else unescaped(prompt.separator)
    return read_demonstrations(
        demos, pattern(prompt.template), prompt.label_field, label_list(prompt.labels), separator
    )


def _from_task(
    name: str, demos: str | None, protocol: str, source: Source, options: TaskOptions, quiet: bool
) -> tuple[DemonstrationSet, Origin]:
    from deepthink_cli.tasks.catalogue import find_task

    task = find_task(name)
    if demos is not None:
        return given_demonstrations(task, demos), Origin(task.name, None, name)
    return draw(task, protocol, source, options, quiet).demonstrations, Origin(task.name, options.seed, name)


def _only_without_task(**values: str | None) -> None:
    for name, value in values.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} {value}: the task has its own; omit it, or write a task file")


def _prepare(
    options: ModelOptions, method: MethodOptions, untokenized: DemonstrationSet, quiet: bool
) -> tuple[ModelSpec, TokenizedDemonstrations]:
    """Everything that can be checked before the weights are loaded."""
    from deepthink_cli.cli.recall import find_model
    from deepthink_cli.model.fitting import check_fit
    from deepthink_cli.model.tokens import tokenize_demonstrations, tokenize_queries

    spec = find_model(options, quiet)
    check_fit(spec.limits, spec.tokenizer, untokenized, method.iterations, method.positions, spec.id)
    demonstrations = tokenize_demonstrations(spec.tokenizer, untokenized)
    spec.check_ids(demonstrations.token_ids, "demonstrations")
    if untokenized.labels:
        from deepthink_cli.data.examples import Query

        probe = Query(untokenized.examples[0].text, untokenized.labels, where="--labels")
        (labelled,) = tokenize_queries(spec.tokenizer, untokenized.template, [probe])
        spec.check_ids(labelled.ids, probe.where)
    return spec, demonstrations


def _think(
    spec: ModelSpec,
    demonstrations: TokenizedDemonstrations,
    method: MethodOptions,
    kept: Sequence[int],
    origin: Origin,
    output: Path,
    common: CommonArguments,
) -> None:
    from deepthink_cli.artifact.files import save_memory
    from deepthink_cli.cli.recall import load, say_loaded

    model = load(spec, common.quiet)
    say_loaded(model, common.quiet, common.verbose)
    model.check_ids(demonstrations.token_ids, "demonstrations")
    started = time.perf_counter()
    quiet = common.quiet or common.json
    memories = [_with_origin(memory, origin) for memory in _read(model, demonstrations, method, kept, quiet)]
    seconds = time.perf_counter() - started
    header = save_memory(memories, output)
    if common.json:
        from deepthink_cli.artifact.format import summary

        write_json({**summary(header), "seconds": seconds})
    for line in _closing(demonstrations, method, origin, str(output), header.size, seconds):
        note(line, common.quiet)


def _with_origin(memory: Memory, origin: Origin) -> Memory:
    assert memory.provenance is not None
    return replace(memory, provenance=replace(memory.provenance, task=origin.task, seed=origin.seed))


def _read(
    model: LanguageModel,
    demonstrations: TokenizedDemonstrations,
    method: MethodOptions,
    kept: Sequence[int],
    quiet: bool,
) -> list[Memory]:
    from deepthink_cli.thinking import think as readings

    memories = []
    with progress(quiet, "drift", "speed") as shown:
        task = shown.add_task("reading", total=method.iterations, drift="", speed="")
        started = time.perf_counter()
        for memory in readings(model, demonstrations, method.iterations, method.eta, method.momentum, method.positions):
            if memory.iteration in kept:
                memories.append(memory)
            speed = memory.iteration * memory.length / (time.perf_counter() - started)
            drift = memory.drift[-1] if memory.drift else None
            changes = f"drift K {drift.mean_keys:.2%} V {drift.mean_values:.2%}" if drift else "first reading"
            shown.update(task, advance=1, drift=changes, speed=f"{speed:,.0f} tokens/s")
    return memories


def _plan(
    spec: ModelSpec, demonstrations: TokenizedDemonstrations, method: MethodOptions, output: Path
) -> dict[str, Any]:
    length = len(demonstrations.token_ids)
    memory_bytes = spec.memory_bytes(length)
    return {
        "model": spec.id,
        "architecture": spec.architecture,
        "dtype": str(spec.dtype).removeprefix("torch."),
        "device": "several (auto)" if spec.options.device_map else str(spec.device),
        "demonstrations": len(demonstrations.examples),
        "labels": list(demonstrations.labels),
        "tokens": length,
        "tokens_attended": length if method.iterations == 1 else 2 * length,
        "largest": spec.limits.largest(method.positions, method.iterations, length),
        "context": spec.limits.most_tokens(length),
        "passes": method.iterations,
        **method.model_dump(exclude={"iterations", "keep"}),
        "kept": list(method.kept),
        "memory_bytes": memory_bytes,
        "file_bytes": memory_bytes * len(method.kept),
        "file": str(output),
    }


def _show_plan(plan: dict[str, Any], json: bool) -> None:
    if json:
        write_json(plan)
        return
    from deepthink_cli.cli.console import report

    largest = "no limit" if plan["largest"] is None else f"at most {plan['largest']}"
    labels = ", ".join(plan["labels"]) or "per input"
    stored = f"{len(plan['kept'])} kept, about {size(plan['file_bytes'])} on disk"
    report(
        f"model      {plan['model']} ({plan['architecture']}, {plan['dtype']} on {plan['device']})",
        f"read       {plan['demonstrations']} demonstrations, L = {plan['tokens']} tokens ({largest}), labels {labels}",
        f"attention  up to {plan['tokens_attended']} tokens, context {plan['context'] or 'without limit'}",
        f"passes     {plan['passes']} (eta {plan['eta']}, momentum {plan['momentum']}, {plan['positions']} positions)",
        f"memory     {size(plan['memory_bytes'])} an iteration, {stored}",
        f"file       {plan['file']} (not written: this is a dry run)",
    )


def _closing(
    demonstrations: TokenizedDemonstrations,
    method: MethodOptions,
    origin: Origin,
    output: str,
    written: int,
    seconds: float,
) -> list[str]:
    length = len(demonstrations.token_ids)
    speed = method.iterations * length / seconds
    kept = ", ".join(map(str, method.kept))
    evaluate = f"deepthink eval {output} --task {origin.typed}" if origin.task else f"deepthink eval {output} LABELLED"
    return [
        f"read {len(demonstrations.examples)} demonstrations ({length} tokens) {method.iterations} times "
        f"in {seconds:.1f} s, {speed:,.0f} tokens/s",
        f"wrote {output} ({size(written)}, iteration {kept})",
        f"next: deepthink predict {output} INPUTS    or: {evaluate}",
    ]

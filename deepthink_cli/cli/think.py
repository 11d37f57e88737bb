"""`deepthink think`: read demonstrations T times and store the memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepthink_cli.cli import options
from deepthink_cli.cli.console import note, progress, size, write_json
from deepthink_cli.cli.reads import read_by
from deepthink_cli.cli.tasking import draw, given_demonstrations, only_with_task, source_of, task_options
from deepthink_cli.cli.values import label_list, model_options, pattern, unescaped
from deepthink_cli.errors import InputError, Problems

if TYPE_CHECKING:
    from deepthink_cli.data.examples import DemonstrationSet
    from deepthink_cli.engine.base import Engine
    from deepthink_cli.memory import Memory
    from deepthink_cli.model.spec import ModelSpec
    from deepthink_cli.options import MethodOptions, ModelOptions, TaskOptions
    from deepthink_cli.provenance import TokenizedDemonstrations
    from deepthink_cli.tasks.sources import Source

Demos = Annotated[
    str | None,
    typer.Argument(
        metavar="[DEMOS]",
        help="Solved examples: JSON Lines, CSV, TSV or Parquet; - for JSON Lines on stdin. With --task they may be left out.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", rich_help_panel=options.OUTPUT, help="Where the memory goes.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", rich_help_panel=options.OUTPUT, help="Print the plan; load no weights, write nothing."),
]


@dataclass(frozen=True)
class Named:
    """The task and the seed that a memory's demonstrations come from; `typed` is what --task was given."""

    task: str | None = None
    seed: int | None = None
    typed: str | None = None


def think(
    demos: Demos = None,
    output: Output = Path("memory.safetensors"),
    model: options.Model = None,
    revision: options.Revision = None,
    dtype: options.Dtype = options.DtypeName.auto,
    device: options.Device = "auto",
    device_map: options.DeviceMap = None,
    quantize: options.Quantize = None,
    offline: options.Offline = False,
    trust_remote_code: options.TrustRemoteCode = False,
    iterations: options.Iterations = "5",
    eta: options.Eta = "0.01",
    momentum: options.Momentum = "0",
    positions: options.Positions = options.PositionsName.continued,
    keep: options.Keep = "last",
    template: options.TemplateText = None,
    label_field: options.LabelField = None,
    labels: options.Labels = None,
    separator: options.Separator = None,
    task: options.TaskName = None,
    shots: options.Shots = None,
    seed: options.Seed = None,
    order_seed: options.OrderSeed = None,
    sampling: options.SamplingChoice = None,
    protocol: options.ProtocolName = "official",
    data_dir: options.DataDir = None,
    dry_run: DryRun = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    config: options.Config = None,
) -> None:
    """Read solved examples T times and store what the model remembers of them as a file."""
    from deepthink_cli.options import MethodOptions
    from deepthink_cli.workflows.outputs import check_apart

    problems = Problems()
    with problems.collected():
        check_apart(output, read_by(demos, model=model, template=template, task=task, data_dir=data_dir, config=config))
    with problems.collected():
        chosen = model_options(model, revision, dtype, device, device_map, quantize, offline, trust_remote_code)
    with problems.collected():
        method = MethodOptions.checked(
            iterations=iterations, eta=eta, momentum=momentum, positions=positions.value, keep=keep
        )
        kept = method.kept
    with problems.collected():
        drawing = task_options(shots, seed, order_seed, sampling)
    with problems.collected():
        only_with_task(task, shots=shots, seed=seed, order_seed=order_seed, sampling=sampling)
    with problems.collected():
        source = source_of(data_dir, offline)
    if task is None:
        with problems.collected():
            given = _from_rows(demos, template, label_field, labels, separator)
        problems.raise_any()
        provenance = Named()
    else:
        with problems.collected():
            _only_without_task(template=template, label_field=label_field, labels=labels, separator=separator)
        problems.raise_any()
        given, provenance = _from_task(task, demos, protocol, source, drawing, quiet)

    spec, demonstrations = _prepare(chosen, method, given, quiet)
    if dry_run:
        _show_plan(_plan(spec, demonstrations, method, output), json)
        return
    _think(spec, demonstrations, method, kept, provenance, output, json, quiet, verbose)


def _from_rows(
    demos: str | None, template: str | None, label_field: str | None, labels: str | None, separator: str | None
) -> DemonstrationSet:
    from deepthink_cli.data.examples import read_demonstrations
    from deepthink_cli.data.template import SEPARATOR

    if demos is None:
        raise InputError("DEMOS: no demonstrations; give a file of solved examples, or --task NAME")
    between = SEPARATOR if separator is None else unescaped(separator)
    return read_demonstrations(demos, pattern(template), label_field, label_list(labels), between)


def _from_task(
    name: str, demos: str | None, protocol: str, source: Source, options: TaskOptions, quiet: bool
) -> tuple[DemonstrationSet, Named]:
    from deepthink_cli.tasks.catalogue import find_task

    task = find_task(name)
    if demos is not None:
        return given_demonstrations(task, demos), Named(task.name, None, name)
    return draw(task, protocol, source, options, quiet).demonstrations, Named(task.name, options.seed, name)


def _only_without_task(**given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"--{name.replace('_', '-')} {value}: the task has its own; leave it away, or write a task file"
            )


def _prepare(
    chosen: ModelOptions, method: MethodOptions, given: DemonstrationSet, quiet: bool
) -> tuple[ModelSpec, TokenizedDemonstrations]:
    """Everything that can be checked before the weights are loaded."""
    from deepthink_cli.cli.recall import find_model
    from deepthink_cli.model.fitting import check_fit
    from deepthink_cli.model.tokens import tokenize_demonstrations, tokenize_queries

    spec = find_model(chosen, quiet)
    check_fit(spec.limits, spec.tokenizer, given, method.iterations, method.positions, spec.id)
    demonstrations = tokenize_demonstrations(spec.tokenizer, given)
    spec.check_ids(demonstrations.token_ids, "demonstrations")
    if given.labels:
        from deepthink_cli.data.examples import Query

        probe = Query(given.examples[0].text, given.labels, where="--labels")
        (labelled,) = tokenize_queries(spec.tokenizer, given.template, [probe])
        spec.check_ids(labelled.ids, probe.where)
    return spec, demonstrations


def _think(
    spec: ModelSpec, demonstrations: TokenizedDemonstrations, method: MethodOptions, kept: Sequence[int],
    named: Named, output: Path, json: bool, quiet: bool, verbose: bool,
) -> None:  # fmt: skip
    from deepthink_cli.artifact.files import save_memory
    from deepthink_cli.cli.recall import load, say_loaded

    model = load(spec, quiet)
    say_loaded(model, quiet, verbose)
    model.check_ids(demonstrations.token_ids, "demonstrations")
    started = time.perf_counter()
    memories = [_named(memory, named) for memory in _read(model, demonstrations, method, kept, quiet or json)]
    seconds = time.perf_counter() - started
    header = save_memory(memories, output)
    if json:
        from deepthink_cli.artifact.format import summary

        write_json({**summary(header), "seconds": seconds})
    for line in _closing(demonstrations, method, named, str(output), header.size, seconds):
        note(line, quiet)


def _named(memory: Memory, named: Named) -> Memory:
    assert memory.provenance is not None
    return replace(memory, provenance=replace(memory.provenance, task=named.task, seed=named.seed))


def _read(
    engine: Engine,
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
        for memory in readings(engine, demonstrations, method.method):
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
    one = spec.memory_bytes(length)
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
        "eta": method.eta,
        "momentum": method.momentum,
        "positions": method.positions,
        "kept": list(method.kept),
        "memory_bytes": one,
        "file_bytes": one * len(method.kept),
        "file": str(output),
    }


def _show_plan(plan: dict[str, Any], json: bool) -> None:
    if json:
        write_json(plan)
        return
    from deepthink_cli.cli.console import report

    largest = "no limit" if plan["largest"] is None else f"at most {plan['largest']}"
    report(
        f"model      {plan['model']} ({plan['architecture']}, {plan['dtype']} on {plan['device']})",
        f"read       {plan['demonstrations']} demonstrations, L = {plan['tokens']} tokens ({largest}), labels {', '.join(plan['labels']) or 'per input'}",
        f"attention  up to {plan['tokens_attended']} tokens, context {plan['context'] or 'without limit'}",
        f"passes     {plan['passes']} (eta {plan['eta']}, momentum {plan['momentum']}, {plan['positions']} positions)",
        f"memory     {size(plan['memory_bytes'])} an iteration, {len(plan['kept'])} kept, about {size(plan['file_bytes'])} on disk",
        f"file       {plan['file']} (not written: this is a dry run)",
    )


def _closing(
    demonstrations: TokenizedDemonstrations,
    method: MethodOptions,
    named: Named,
    output: str,
    written: int,
    seconds: float,
) -> list[str]:
    length = len(demonstrations.token_ids)
    speed = method.iterations * length / seconds
    kept = ", ".join(map(str, method.kept))
    evaluate = f"deepthink eval {output} --task {named.typed}" if named.task else f"deepthink eval {output} LABELLED"
    return [
        f"read {len(demonstrations.examples)} demonstrations ({length} tokens) {method.iterations} times in {seconds:.1f} s, {speed:,.0f} tokens/s",
        f"wrote {output} ({size(written)}, iteration {kept})",
        f"next: deepthink predict {output} INPUTS    or: {evaluate}",
    ]

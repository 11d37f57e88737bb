"""`deepthink eval`: how well a memory labels rows whose labels are known."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from deepthink_cli.cli import options
from deepthink_cli.cli.console import bar, json_line, note, progress, report, table, write_json
from deepthink_cli.cli.inputs import check_inputs, check_tokens, output_row
from deepthink_cli.cli.predict import MemoryFile
from deepthink_cli.cli.values import model_options
from deepthink_cli.errors import BelowThreshold, InputError, Problems

if TYPE_CHECKING:
    from deepthink_cli.artifact import Header
    from deepthink_cli.blueprint import Blueprint
    from deepthink_cli.evaluation import Evaluation

Labelled = Annotated[
    str, typer.Argument(metavar="LABELLED", help="Rows with their true labels: JSON Lines, CSV, TSV or Parquet.")
]
Samples = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        metavar="FILE",
        rich_help_panel=options.OUTPUT,
        help="Also write one JSON line for each input and iteration.",
    ),
]
FailUnder = Annotated[
    str | None,
    typer.Option(
        "--fail-under",
        metavar="SHARE",
        rich_help_panel=options.OUTPUT,
        help="Exit with 3 where the last iteration's accuracy is below this share, as in 0.8.",
    ),
]


def evaluate(
    memory: MemoryFile,
    labelled: Labelled,
    samples: Samples = None,
    fail_under: FailUnder = None,
    iteration: options.IterationChoice = "all",
    model: options.Model = None,
    revision: options.Revision = None,
    dtype: options.Dtype = options.DtypeName.auto,
    device: options.Device = "auto",
    device_map: options.DeviceMap = None,
    quantize: options.Quantize = None,
    offline: options.Offline = False,
    trust_remote_code: options.TrustRemoteCode = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    config: options.Config = None,
) -> None:
    """Accuracy of a memory on labelled rows, next to plain in-context learning (T = 1) and the majority class."""
    from deepthink_cli.atomic import check_output
    from deepthink_cli.cli.recall import chosen_iterations, memory_options, open_its_model, open_memory

    problems = Problems()
    with problems.collected():
        typed = model_options(model, revision, dtype, device, device_map, quantize, offline, trust_remote_code)
    with problems.collected():
        if samples is not None:
            check_output(samples, "--samples")
    with problems.collected():
        threshold = _share(fail_under)
    if labelled == "-":
        problems.messages.append("LABELLED -: evaluation reads its rows twice; give a file")
    header = None
    with problems.collected():
        header = open_memory(memory)
        iterations = list(chosen_iterations(header, iteration))
    count = check_inputs(header, labelled, problems, labelled=True) if header and labelled != "-" else None
    problems.raise_any()
    assert header is not None
    assert count is not None
    blueprint = open_its_model(header, memory_options(header, typed, model), quiet)
    check_tokens(header, blueprint, labelled)
    started = time.perf_counter()
    evaluation = _evaluate(header, blueprint, labelled, iterations, samples, count, quiet or json, verbose)
    _show(header, evaluation, labelled, time.perf_counter() - started, json)
    if threshold is not None and evaluation.last.accuracy < threshold:
        raise BelowThreshold(f"accuracy {evaluation.last.accuracy:.4f} is below --fail-under {fail_under}")


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"--fail-under {text}: a share between 0 and 1, as in 0.8")
    return share


def _evaluate(
    header: Header, blueprint: Blueprint, labelled: str, iterations: list[int], samples: Path | None, count: int,
    quiet: bool, verbose: bool,
) -> Evaluation:  # fmt: skip
    from deepthink_cli.evaluation import Evaluator, with_first_reading
    from deepthink_cli.examples import read_queries
    from deepthink_cli.model import load_model
    from deepthink_cli.prediction import predict
    from deepthink_cli.store import check_fit, read_memories

    stored = read_memories(header, iterations)
    model = load_model(blueprint)
    check_fit(header.metadata.origin(), model.identity, header.path)
    memories = with_first_reading(model, stored)
    if verbose:
        note(
            f"loaded {model.identity.id}, {model.identity.dtype} on {model.device}; iterations {[m.iteration for m in memories]}"
        )
    queries = read_queries(labelled, header.metadata.template, header.metadata.labels, labelled=True)
    evaluator = Evaluator([one.iteration for one in memories], header.metadata.labels)
    with ExitStack() as stack:
        out = stack.enter_context(_samples_file(samples))
        shown = stack.enter_context(progress(quiet))
        task = shown.add_task("evaluating", total=count)
        for number, prediction in enumerate(predict(model, memories, queries)):
            evaluator.add(prediction)
            if out is not None:
                row = output_row(number // len(memories), prediction, several=True)
                out.write(json_line({**row, "gold": prediction.query.gold}))
            if (number + 1) % len(memories) == 0:
                shown.advance(task)
    return evaluator.result()


def _samples_file(samples: Path | None) -> AbstractContextManager[TextIO | None]:
    from deepthink_cli.atomic import writing

    return nullcontext(None) if samples is None else writing(samples, "--samples")


def _show(header: Header, evaluation: Evaluation, labelled: str, seconds: float, json: bool) -> None:
    metadata = header.metadata
    if json:
        memory = {
            "file": header.path, "model": metadata.model.id, "eta": metadata.eta, "momentum": metadata.momentum,
            "positions": metadata.positions, "iterations": metadata.iterations, "kept": metadata.kept,
            "shots": metadata.shots, "sha256": metadata.sha256,
        }  # fmt: skip
        write_json({"task": metadata.task, "split": labelled, **evaluation.as_json(), "memory": memory,
                    "seconds": seconds, "inputs_per_second": evaluation.n / seconds})  # fmt: skip
        return
    last = max(evaluation.results)
    report(
        f"{header.path}: {metadata.shots} demonstrations, {metadata.model.id}, eta {metadata.eta}, momentum {metadata.momentum}",
        f"{labelled}: {evaluation.n} inputs, {seconds:.1f} s with loading",
        "",
        _curve(evaluation),
        "",
        *_baselines(evaluation),
    )
    if evaluation.confusion:
        report("", f"T = {last}, true label first:", _confusion(evaluation))


def _curve(evaluation: Evaluation) -> Any:
    """A row an iteration; the bars share one scale, from the lowest accuracy to the highest."""
    shares = [metrics.accuracy for metrics in evaluation.results.values()]
    low, high = max(0.0, min(shares) - 0.02), max(shares)
    rows = []
    for iteration, metrics in evaluation.results.items():
        f1 = "" if metrics.macro_f1 is None else f"{metrics.macro_f1:.3f}"
        interval = f"{metrics.ci95[0]:.1%} to {metrics.ci95[1]:.1%}"
        rows.append([str(iteration), f"{metrics.accuracy:.1%}", f"{metrics.stderr:.1%}", interval,
                     f"{metrics.accuracy_mean_per_token:.1%}", f1, str(metrics.ties), bar(metrics.accuracy, low, high)])  # fmt: skip
    names = ("T", "accuracy", "stderr", "95 % interval", "mean/token", "macro-F1", "ties", f"{low:.0%} to {high:.1%}")
    return table(*names, rows=rows)


def _baselines(evaluation: Evaluation) -> list[str]:
    first, last = evaluation.results[1], evaluation.last
    lines = [
        f"T = 1 is plain in-context learning: {first.accuracy:.1%}; thinking changes it by {100 * (last.accuracy - first.accuracy):+.1f} points"
    ]
    if evaluation.majority is not None:
        label, share = evaluation.majority
        lines.append(f"always answering {label!r}: {share:.1%}")
    else:
        lines.append(f"guessing among the candidates: {evaluation.chance:.1%}")
    return lines


def _confusion(evaluation: Evaluation) -> Any:
    labels = list(evaluation.confusion)
    per_label = evaluation.last.per_label
    rows = []
    for gold in labels:
        found = per_label.get(gold)
        scores = [f"{found.precision:.3f}", f"{found.recall:.3f}", f"{found.f1:.3f}"] if found else ["", "", ""]
        rows.append([gold, *(str(evaluation.confusion[gold][guess]) for guess in labels), *scores])
    return table("", *labels, "precision", "recall", "F1", rows=rows)

"""Label inputs with a memory, or with several that answer together: what `deepthink predict` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from deepthink_cli.artifact.opening import OpenedMemory, find_its_model, opened
from deepthink_cli.calibration.basis import check_inputs
from deepthink_cli.calibration.calibrator import Calibrator, RowCalibrator
from deepthink_cli.calibration.extended_labels import ExtendedLabels, check_labels
from deepthink_cli.calibration.notes import CheckRow, OneLabelWarning, check_supported, row_check, tell_of_bias
from deepthink_cli.calibration.notes import skipping as skipping_bad_rows
from deepthink_cli.calibration.stored import in_use
from deepthink_cli.data.examples import Query, Skipped, queries_or_skipped, read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, Problems, option
from deepthink_cli.events import Note, Progress, Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.multilabel import has_several
from deepthink_cli.options import Keep, ScoreName
from deepthink_cli.prediction.labeller import LabelRows, RowLabeller
from deepthink_cli.prediction.rows import by_first
from deepthink_cli.provenance import TokenizedDemonstrations, check_model
from deepthink_cli.scoring.inputs import CheckedRows, check_rows, check_tokens
from deepthink_cli.scoring.nearest import nearest_parts
from deepthink_cli.scoring.pipeline import CHUNK, Part, predicted, predictions
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.probe import Probed
from deepthink_cli.scoring.truncation import truncated
from deepthink_cli.tasks.rows import in_columns

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


def predict(
    engine: Engine,
    memory: Memory | Sequence[Memory],
    inputs: Iterable[Query | str | Mapping[str, str]],
    chunk: int = CHUNK,
    score: ScoreName = "sum",
    calibrate: Sequence[str] = (),
    reread: int = 1,
    nearest: int | None = None,
) -> Iterator[Prediction]:
    """Yield a prediction for every input, in order; with several memories, one after another for each input.

    Inputs are queries, or texts (strings, or the template's named fields) to be labelled with the memory's label words.
    `score` is what is compared of a candidate's log-probabilities: their sum, their mean per token, or their sum
    with that of the label's end. Label and probability are those by the first of the calibrations, or by the
    correction that the memory stores; the scores are the model's. Each query is written `reread` times before its
    candidates, and attends to the `nearest` demonstrations of a composed memory if that is set. A thread tokenises
    `chunk` inputs at a time while the previous ones are scored; at most three chunks are in memory. Raises
    InputError for an input that does not fit the template, the candidates or the model's context, and for a
    calibration that does not fit the memory.
    """
    from deepthink_cli.memory import Memory

    used = opened([memory] if isinstance(memory, Memory) else memory).asked_again(reread).attending_to(nearest)
    memories, names = used.read_by(engine), in_use(calibrate, [used], score)
    check_model(used.provenance, engine.identity, used.name)
    check_supported(names, used, None)
    labels = used.provenance.demonstrations.labels
    queries = (each if isinstance(each, Query) else Query(each, labels) for each in inputs)
    parts = predictions(engine, [memories], queries, size=chunk, score=score)
    for part in Calibrator(engine, [memories], names, score).corrected(parts):
        yield from (by_first(prediction, names) for prediction in predicted(part))


def tell_of_several(memory: OpenedMemory, tell: Tell) -> None:
    """Note what gives labels where rows may have several and the memory stores no thresholds."""
    if has_several(memory.provenance) and memory.provenance.thresholds is None:
        tell(
            Note(
                f"{memory.name} stores no thresholds: a row gets the labels with a share above 1 / C; store a "
                f"threshold for each with deepthink calibrate {memory.name} ROWS"
            )
        )


@dataclass(frozen=True)
class Prompt:
    """What a model reads for a row: the text of its tokens up to the label, and what each candidate adds.

    `memory` and `query` are the numbers of tokens of the demonstrations, and of the row up to the candidates.
    """

    text: str
    candidates: dict[str, str]
    memory: int
    query: int


def first_prompt(
    memory: OpenedMemory, source: RowSource, options: ModelOptions | None, score: ScoreName, tell: Tell
) -> Prompt:
    """What the model reads for the first row; loads the tokenizer and no weights. Raises InputError for a bad row."""
    demonstrations = memory.provenance.demonstrations
    tokenizer = find_its_model(memory, options, tell).tokenizer
    query = next(read_queries(source, demonstrations.template, demonstrations.labels))
    (tokenized,) = query_tokenizer(tokenizer, demonstrations, score)([query])

    def text(ids: Iterable[int]) -> str:
        return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    texts = demonstrations.texts
    (places,) = nearest_parts(demonstrations, [tokenized])
    read = list(chain.from_iterable(texts[place] for place in places or range(len(texts))))
    asked = [*read, *tokenized.prefix]
    shared = text(asked)
    wholes = [text([*asked, *answer]) for answer in tokenized.answers]
    added = dict(zip(query.candidates, (whole.removeprefix(shared) for whole in wholes), strict=True))
    return Prompt(shared, added, len(read), len(tokenized.prefix))


def open_ensemble(
    memory: OpenedMemory, ensemble: Sequence[str | Path | OpenedMemory], iteration: int | str = "last"
) -> tuple[OpenedMemory, ...]:
    """The memories that are averaged with `memory`; raises InputError, all at once, for those that do not fit it."""
    others, problems = list[OpenedMemory](), Problems()
    if ensemble and has_several(memory.provenance):
        raise InputError.of("ensemble", None, f"the rows of {memory.name} may have several labels; omit it")
    if ensemble and memory.nearest is not None:
        raise InputError.of("ensemble", None, f"not with {option('nearest')}, which is of one memory; omit one of them")
    for each in ensemble:
        with problems.collected():
            other = opened(each, iteration).asked_again(memory.reread)
            _check_together(memory, other)
            if other.sha256 is not None and other.sha256 in {named.sha256 for named in (memory, *others)}:
                raise InputError.of("ensemble", other.name, "the same memory as another one; name each once")
            others.append(other)
    problems.raise_any()
    return tuple(others)


def _check_together(memory: OpenedMemory, other: OpenedMemory) -> None:
    """Raise InputError, naming the difference, unless both answer the same questions."""
    ours, theirs = memory.provenance.demonstrations, other.provenance.demonstrations
    different = [
        *memory.provenance.model.differences(other.provenance.model),
        *(["template"] if ours.template != theirs.template else []),
        *(["labels"] if set(ours.labels) != set(theirs.labels) else []),
        *(["label words"] if ours.words != theirs.words else []),
        *(["chat"] if ours.chat != theirs.chat else []),
    ]
    if different:
        raise InputError.of(
            "ensemble",
            other.name,
            f"differs from {memory.name} in its {' and '.join(different)}; use memories of one model with the "
            "same template and labels",
        )
    if other.iterations != memory.iterations:
        raise InputError.of(
            "ensemble",
            other.name,
            f"its iterations are {_listed(other)}, those of {memory.name} {_listed(memory)}; choose one that "
            f"all have with {option('iteration')}",
        )


def _listed(memory: OpenedMemory) -> str:
    return ", ".join(map(str, memory.iterations))


def predict_file(
    memory: str | Path | OpenedMemory,
    inputs: str | RowSource,
    *,
    iteration: int | str = "last",
    options: ModelOptions | None = None,
    checked: CheckedRows | None = None,
    chunk: int = CHUNK,
    calibrate: Sequence[str] = (),
    ensemble: Sequence[str | Path | OpenedMemory] = (),
    score: ScoreName = "sum",
    skip: bool = False,
    same_labels: bool = False,
    start: int = 0,
    before: Iterable[Sequence[Prediction]] = (),
    truncate: Keep | None = None,
    flush: bool = False,
    loaded: RowLabeller | None = None,
    elsewhere: LabelRows | None = None,
    measured: Callable[[Probed], None] | None = None,
    tell: Tell = silent,
) -> Iterator[list[Prediction | Skipped]]:
    """Yield a list of predictions for every `chunk` of rows in a file, or on standard input (`-`).

    For each row, one prediction for each iteration, by the mean log-probability over the memory and the `ensemble`;
    `score` is as in `predict`, with a warning for labels that it never chooses. Rows are checked before the model is
    loaded, unless the caller has `checked` them. Each is corrected by the calibrations in `calibrate`, or by what the
    memory stores if there are none; a bias of the rows is that of all rows up to the end of the chunk. The first
    `start` rows are left out; `before` holds their predictions in chunks. `loaded` is the model with the memories, if
    it is loaded already; with `elsewhere`, that labels the rows, and no weights are loaded here. With
    `measured`, a sample of a file is labelled in place of its rows; it is called with what the sample says of all.

    With `skip`, a row that cannot be used is replaced by `Skipped`; otherwise, and for memories that do not fit, raises
    InputError: with every mistake in a file, or at the first bad row of standard input. `same_labels` refuses rows with
    other candidates than the labels. `truncate` says what is read of a text that is too long for the model. With
    `flush`, a chunk ends where no row follows at once.
    """
    memory = opened(memory, iteration)
    tell_of_several(memory, tell)
    others, source = open_ensemble(memory, ensemble, iteration), in_columns(memory, inputs)
    calibrate = in_use(calibrate, [memory, *others], score)
    demonstrations = memory.provenance.demonstrations
    checked = _checked(memory, source, skip) if checked is None else checked
    check_supported(calibrate, memory, None if skip else checked)
    spec = find_its_model(memory, options, tell) if loaded is None else loaded.spec
    check_inputs(calibrate, demonstrations, spec, score)
    for each in () if skip or truncate else (memory, *others):
        check_tokens(each.provenance.demonstrations, spec, source, checked, score)
    extended = _warn_of_extended(spec, source, demonstrations, checked, score, calibrate, tell)
    if elsewhere is None:
        loaded = loaded or RowLabeller(memory, others, spec, calibrate, score, skip, tell)
        elsewhere = partial(loaded, size=chunk, flush=flush)
        if measured is not None:
            assert checked is not None  # the rows of standard input cannot be read twice
            elsewhere = partial(loaded.probed, count=checked.count, measured=measured)

    check = row_check(calibrate, demonstrations, spec.tokenizer, spec.limits, spec.id, score, same_labels)
    rows: Iterator[Query | Skipped] = islice(_rows(source, demonstrations, skip, check, checked, extended), start, None)
    if truncate is not None:
        longest = max((each.provenance.demonstrations for each in (memory, *others)), key=_length)
        rows = truncated(rows, spec.tokenizer, spec.limits, longest, truncate, score, tell)
    progress = Progress("predicting", start, None if checked is None else checked.count)
    parts = elsewhere(rows, progress=progress, tell=tell)
    yield from _watched(parts, before, memory, calibrate, checked is None, tell)


def _watched(
    parts: Iterator[Part],
    before: Iterable[Sequence[Prediction]],
    memory: OpenedMemory,
    calibrate: Sequence[str],
    streams: bool,
    tell: Tell,
) -> Iterator[Part]:
    """The chunks with the corrections that are estimated from rows; then tells of a bias, those `before` included."""
    labels = memory.provenance.demonstrations.labels
    told = silent if calibrate or has_several(memory.provenance) else tell
    calibrator = RowCalibrator(calibrate, labels)
    warning, last = OneLabelWarning(labels, memory.corrected_in, told, streams), list[Prediction]()
    for earlier in before:
        calibrator.count(earlier)
        warning.add(earlier)
    for part in calibrator.corrected(parts):
        yield part
        last = predicted(part)
        warning.add(last)
    warning.end()
    tell_of_bias(last, calibrate, labels, tell)


def _length(demonstrations: TokenizedDemonstrations) -> int:
    return len(demonstrations.token_ids)


def _checked(memory: OpenedMemory, source: RowSource, skip: bool) -> CheckedRows | None:
    problems = Problems()
    checked = check_rows(memory.provenance.demonstrations, source, problems, skip=skip)
    problems.raise_any()
    return checked


def _warn_of_extended(
    spec: ModelSpec,
    source: RowSource,
    demonstrations: TokenizedDemonstrations,
    checked: CheckedRows | None,
    score: ScoreName,
    calibrate: Sequence[str],
    tell: Tell,
) -> ExtendedLabels | None:
    """Warn of labels that the score never chooses, and of such candidates of the rows of a file."""
    extended = check_labels(spec.tokenizer, demonstrations, score, calibrate, tell)
    if extended and checked is not None and checked.own_candidates:
        rows = queries_or_skipped(source, demonstrations.template, demonstrations.labels)
        extended.check_rows(rows, demonstrations.labels)
    return extended


def _rows(
    source: RowSource,
    demonstrations: TokenizedDemonstrations,
    skip: bool,
    check: CheckRow,
    checked: CheckedRows | None,
    extended: ExtendedLabels | None,
) -> Iterator[Query | Skipped]:
    """The rows of the inputs; those that cannot be used are skipped or raise InputError.

    Rows that were `checked` must be the same again; others are watched by `extended`.
    """
    prompt = (demonstrations.template, demonstrations.labels)
    if checked is not None:
        same = checked.digest.same(queries_or_skipped(source, *prompt), source.name)
        return skipping_bad_rows(same, check) if skip else same
    rows: Iterator[Query | Skipped]
    if skip:
        rows = skipping_bad_rows(queries_or_skipped(source, *prompt), check)
    else:
        rows = _passing(read_queries(source, *prompt), check)
    return rows if extended is None else extended.watched(rows, demonstrations.labels)


def _passing(queries: Iterator[Query], check: CheckRow) -> Iterator[Query]:
    for query in queries:
        check(query)
        yield query

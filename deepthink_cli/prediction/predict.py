"""Label inputs with a memory, or with an ensemble of memories: the work of `deepthink predict`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from deepthink_cli.calibration.calibrator import RowCalibrator
from deepthink_cli.calibration.notes import CheckRow, OneLabelWarning, check_supported, tell_of_bias
from deepthink_cli.calibration.notes import skipping as skipping_bad_rows
from deepthink_cli.data.examples import Query, Skipped, queries_or_skipped, read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import Engine
from deepthink_cli.events import Note, Progress, Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.prediction.rows import by_first
from deepthink_cli.prediction.scorer import LabelRows, Loaded, Scorer
from deepthink_cli.provenance import check_model
from deepthink_cli.scoring.inputs import CheckedRows, check_rows
from deepthink_cli.scoring.pipeline import CHUNK, EVERY_REASON, NO_REASON, Part, predicted
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.probe import Probed
from deepthink_cli.scoring.scoring import PLAIN, Scoring
from deepthink_cli.tasks.rows import in_columns

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


def predict(
    engine: Engine,
    memory: Memory | Sequence[Memory],
    inputs: Iterable[Query | str | Mapping[str, str]],
    chunk: int = CHUNK,
    scoring: Scoring = PLAIN,
    calibrate: Sequence[str] = (),
) -> Iterator[Prediction]:
    """Yield a prediction for every input, in order; with several memories, a prediction by each, input by input.

    Inputs are queries, or texts (strings, or the template's named fields) to be labelled with the memory's label words.
    The first calibration, or the correction that the memory stores, gives the label and its probability; the scores are
    the model's. A thread tokenises the next `chunk` inputs while the previous ones are scored; at most three chunks are
    in memory. Raises InputError for an input that does not fit the template, the candidates or the model's context, and
    for a scoring or a calibration that does not fit the memory.
    """
    from deepthink_cli.memory import Memory

    memories = [memory] if isinstance(memory, Memory) else list(memory)
    scorer = Scorer.open(memories, scoring=scoring, calibrate=calibrate)
    check_model(scorer.memory.provenance, engine.identity, scorer.memory.name)
    loaded, labels = Loaded(scorer, engine, [memories]), scorer.demonstrations.labels
    queries = (each if isinstance(each, Query) else Query(each, labels) for each in inputs)
    for part in RowCalibrator(scorer.calibrate, labels).corrected(loaded(queries, size=chunk)):
        yield from (by_first(prediction, scorer.calibrate) for prediction in predicted(part))


@dataclass(frozen=True)
class Labelling:
    """Rows that are to be labelled, with all checks done that need no weights. Made by `of`.

    With `skip`, a row that cannot be used is replaced by `Skipped`. `check` refuses rows that the calibrations do not
    support.
    """

    scorer: Scorer
    source: RowSource
    spec: ModelSpec
    checked: CheckedRows | None
    skip: bool
    check: CheckRow
    tell: Tell

    @classmethod
    def of(
        cls,
        scorer: Scorer,
        inputs: str | RowSource,
        *,
        options: ModelOptions | None = None,
        checked: CheckedRows | None = None,
        skip: bool = False,
        same_labels: bool = False,
        tell: Tell = silent,
    ) -> Labelling:
        """Find the model, and check the rows of a file with its tokenizer; rows of a stream are checked as they come.

        With `checked`, the caller's check replaces the first one. `same_labels` refuses rows whose candidates are not
        the labels. Raises InputError for rows, calibrations and a model that do not fit.
        """
        tell_of_several(scorer, tell)
        source = in_columns(scorer.memory, inputs)
        checked = check_rows(scorer.demonstrations, source, skip=skip) if checked is None else checked
        check_supported(scorer.calibrate, None if skip else checked)
        spec = scorer.find(options, tell).for_rows(None if checked is None else checked.count)
        if not skip:
            scorer.check_tokens(spec, source, checked)
        scorer.check_labels(spec.tokenizer, tell)
        return cls(scorer, source, spec, checked, skip, scorer.row_check(spec, same_labels), tell)

    def here(self, loaded: Loaded | None = None, size: int = CHUNK, flush: bool = False) -> LabelRows:
        """A labeller of the rows in this process, `size` at a time; `flush` is as in `predictions`."""
        loaded = loaded or self.scorer.load(self.spec, self.tell)
        return partial(loaded, size=size, flush=flush, skip=EVERY_REASON if self.skip else NO_REASON)

    def __call__(self, label: LabelRows, start: int = 0, before: Iterable[Sequence[Prediction]] = ()) -> Iterator[Part]:
        """Yield the predictions that `label` gives to the rows, with the corrections that are estimated from rows.

        A bias is estimated from all rows up to the end of the chunk. The first `start` rows are not labelled; `before`
        holds their predictions in chunks.
        """
        progress = Progress("predicting", start, None if self.checked is None else self.checked.count)
        parts = label(islice(self._rows(), start, None), progress=progress, tell=self.tell)
        scorer, labels = self.scorer, self.scorer.demonstrations.labels
        told = silent if scorer.calibrate or scorer.gives_several else self.tell
        calibrator = RowCalibrator(scorer.calibrate, labels)
        warning = OneLabelWarning(labels, scorer.memory.corrected_in, told, streams=self.checked is None)
        truncated, last = 0, list[Prediction]()
        for earlier in before:
            calibrator.count(earlier)
            warning.add(earlier)
        for part in calibrator.corrected(parts):
            yield part
            last = predicted(part)
            warning.add(last)
            truncated += sum(each.query.truncated > 0 for each in last if each.iteration == last[-1].iteration)
        warning.end()
        tell_of_truncated(truncated, self.tell)
        tell_of_bias(last, scorer.calibrate, labels, self.tell)

    def probe(self) -> Probed:
        """The estimate for all rows of a file, from a sample."""
        assert self.checked is not None  # the rows of standard input cannot be read twice
        loaded = self.scorer.load(self.spec, self.tell)
        return loaded.probe(self._rows(), self.checked.count, skip=EVERY_REASON if self.skip else NO_REASON)

    def _rows(self) -> Iterator[Query | Skipped]:
        """The rows of the inputs; rows that cannot be used are skipped or raise InputError.

        Raises DeepThinkError if checked rows have changed.
        """
        demonstrations = self.scorer.demonstrations
        prompt = (demonstrations.template, demonstrations.labels)
        if self.checked is not None:
            rows = self.checked.digest.same(queries_or_skipped(self.source, *prompt), self.source.name)
            return skipping_bad_rows(rows, self.check) if self.skip else rows
        if self.skip:
            return skipping_bad_rows(queries_or_skipped(self.source, *prompt), self.check)
        return _passing(read_queries(self.source, *prompt), self.check)


def _passing(queries: Iterator[Query], check: CheckRow) -> Iterator[Query]:
    for query in queries:
        check(query)
        yield query


def tell_of_truncated(count: int, tell: Tell) -> None:
    """Note how many rows were shortened, if any were."""
    if count:
        tell(Note(f"truncated {count:,} rows: of a text that is too long for the model, a part was read"))


def tell_of_several(scorer: Scorer, tell: Tell) -> None:
    """Note the share that gives a label, if rows may have several labels and the memory stores no thresholds."""
    if scorer.gives_several and scorer.memory.provenance.thresholds is None:
        name = scorer.memory.name
        tell(
            Note(
                f"{name} stores no thresholds: a row gets the labels with a share above 1 / C; store a threshold for "
                f"each with deepthink calibrate {name} ROWS"
            )
        )


@dataclass(frozen=True)
class Prompt:
    """The prompt of a row: the text up to the label, and the tokens of each candidate.

    `memory` and `query` are the numbers of tokens of the demonstrations, and of the row up to the candidates.
    """

    text: str
    candidates: dict[str, str]
    memory: int
    query: int


def first_prompt(scorer: Scorer, source: RowSource, options: ModelOptions | None, tell: Tell) -> Prompt:
    """The prompt of the first row; loads the tokenizer and no weights. Raises InputError for a bad row."""
    demonstrations, spec = scorer.demonstrations, scorer.find(options, tell)
    tokenize = query_tokenizer(spec.tokenizer, demonstrations, scorer.scoring)
    query = next(read_queries(source, demonstrations.template, demonstrations.labels))
    (tokenized,) = tokenize([query])

    def text(ids: Iterable[int]) -> str:
        return str(spec.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    texts = demonstrations.texts
    (places,) = scorer.scoring.attended(demonstrations, [tokenized]) or [()]
    read = list(chain.from_iterable(texts[place] for place in places or range(len(texts))))
    asked = [*read, *tokenized.prefix]
    shared = text(asked)
    wholes = [text([*asked, *answer]) for answer in tokenized.answers]
    added = dict(zip(query.candidates, (whole.removeprefix(shared) for whole in wholes), strict=True))
    return Prompt(shared, added, len(read), len(tokenized.prefix))

"""Label inputs with a memory, or with an ensemble of memories: the work of `deepthink predict`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.notes import CheckRow, OneLabelWarning, tell_of_bias
from deepthink_cli.calibration.notes import skipping as skipping_bad_rows
from deepthink_cli.data.examples import Query, Skipped, queries_of, queries_or_skipped, read_queries
from deepthink_cli.data.source import RowSource
from deepthink_cli.engine.base import Engine
from deepthink_cli.events import Note, Progress, Tell, silent
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer
from deepthink_cli.prediction.rows import answer_of
from deepthink_cli.prediction.scorer import LabelRows, Loaded, Scorer
from deepthink_cli.provenance import check_model
from deepthink_cli.scoring.inputs import CheckedRows
from deepthink_cli.scoring.pipeline import CHUNK, EVERY_REASON, NO_REASON, Part, longest_of, predicted
from deepthink_cli.scoring.prediction import Prediction
from deepthink_cli.scoring.probe import Probed, probe
from deepthink_cli.scoring.scoring import PLAIN, Scoring

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
    for part in Calibrator(scorer.calibrate, labels).corrected(loaded(queries_of(inputs, labels), size=chunk)):
        for prediction in predicted(part):
            answer = answer_of(prediction, scorer.calibrate)
            yield replace(
                prediction,
                label=answer.label,
                probability=answer.probability,
                label_mean_per_token=answer.label_mean_per_token,
                tied=answer.tied,
            )


@dataclass(frozen=True)
class Labelling:
    """Rows that are to be labelled by a scorer, in the columns of its memory.

    `checked` is the check of the rows of a file, None for a stream. With `skip`, a row that cannot be used is replaced
    by `Skipped`. `same_labels` refuses rows whose candidates are not the labels.
    """

    scorer: Scorer
    source: RowSource
    checked: CheckedRows | None = None
    options: ModelOptions | None = None
    skip: bool = False
    same_labels: bool = False

    def __call__(
        self,
        tell: Tell = silent,
        label: LabelRows | None = None,
        *,
        size: int = CHUNK,
        flush: bool = False,
        start: int = 0,
        before: Iterable[Sequence[Prediction]] = (),
    ) -> Iterator[Part]:
        """Yield the predictions that `label`, or the loaded model, gives to the rows, `size` at a time.

        They have the corrections that are estimated from rows: a bias is estimated from all rows up to the end of the
        chunk. The first `start` rows are not labelled; `before` holds their predictions in chunks. `flush` is as in
        `predictions`. Raises InputError for rows, calibrations and a model that do not fit, before anything is yielded.
        """
        spec, rows = self._found(tell)
        if label is None:
            label = partial(self.scorer.load(spec, tell), size=size, flush=flush, skip=self._reasons)
        progress = Progress("predicting", start, None if self.checked is None else self.checked.count)
        return self._corrected(label(islice(rows, start, None), progress=progress, tell=tell), before, tell)

    def _corrected(self, parts: Iterator[Part], before: Iterable[Sequence[Prediction]], tell: Tell) -> Iterator[Part]:
        scorer, labels = self.scorer, self.scorer.demonstrations.labels
        told = silent if scorer.calibrate or scorer.gives_several else tell
        calibrator = Calibrator(scorer.calibrate, labels)
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
        tell_of_truncated(truncated, tell)
        tell_of_bias(last, scorer.calibrate, labels, tell)

    def probe(self, tell: Tell) -> Probed:
        """The estimate of the time that all rows of a file take, from a sample of them."""
        assert self.checked is not None  # the rows of standard input cannot be read twice
        spec, rows = self._found(tell)
        loaded = self.scorer.load(spec, tell)
        found = probe(
            loaded.engine,
            longest_of(loaded.members),
            rows,
            self.checked.count,
            lambda sample: chain.from_iterable(loaded(sample, skip=self._reasons)),
            scoring=self.scorer.scoring,
            skip=self._reasons,
        )
        return replace(found, loading=loaded.loading)

    @property
    def _reasons(self) -> Collection[str]:
        return EVERY_REASON if self.skip else NO_REASON

    def _found(self, tell: Tell) -> tuple[ModelSpec, Iterator[Query | Skipped]]:
        """The model, which needs no weights for its checks, and the rows, those that cannot be used skipped or raised.

        Rows of a stream are checked as they come. Raises DeepThinkError if checked rows have changed.
        """
        scorer, checked, demonstrations = self.scorer, self.checked, self.scorer.demonstrations
        tell_of_several(scorer, tell)
        spec = scorer.find(self.options, tell).for_rows(None if checked is None else checked.count)
        if not self.skip:
            scorer.check_tokens(spec, self.source, checked)
        scorer.check_labels(spec.tokenizer, tell)
        prompt, check = (demonstrations.template, demonstrations.labels), scorer.row_check(spec, self.same_labels)
        if not self.skip and checked is None:
            return spec, _passing(read_queries(self.source, *prompt), check)
        rows = queries_or_skipped(self.source, *prompt)
        if checked is not None:
            rows = checked.same(rows, self.source.name)
        return spec, skipping_bad_rows(rows, check) if self.skip else rows


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


def first_prompt(scorer: Scorer, source: RowSource, options: ModelOptions | None, tell: Tell) -> tuple[str, list[str]]:
    """The prompt of the first row up to the label, and lines about its tokens and those of each candidate.

    Loads the tokenizer and no weights. Raises InputError for a bad row.
    """
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
    shared, about = text(asked), f"{len(read)} tokens of the memory, {len(tokenized.prefix)} of the row; then one of"
    added = [text([*asked, *answer]).removeprefix(shared) for answer in tokenized.answers]
    pairs = zip(query.candidates, added, strict=True)
    return shared, [about, *(f"  {candidate}: {tokens!r}" for candidate, tokens in pairs)]

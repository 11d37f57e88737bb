"""Work on jobs: read their demonstrations in shared passes, score every iteration as it is made, and make the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from deepthink_cli.calibration.calibrator import Calibrator
from deepthink_cli.calibration.labelled import LabelledRows, check_labelled
from deepthink_cli.calibration.registry import of_labelled
from deepthink_cli.data.examples import Query, Skipped
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError, option
from deepthink_cli.evaluation.metrics import Answers
from deepthink_cli.events import Note
from deepthink_cli.experiments.executors.base import InputsScored, JobEvent, JobsDone, RowMade
from deepthink_cli.experiments.jobs import Job, Prepared, parts_of
from deepthink_cli.experiments.results import Corrected, Part, Point, Result, Setting, bits, corrections_of
from deepthink_cli.generation import answered
from deepthink_cli.make_memory import COPIES, think_in_batches
from deepthink_cli.method import Method
from deepthink_cli.provenance import ModelIdentity
from deepthink_cli.scoring.heads import observed_layers
from deepthink_cli.scoring.pipeline import EVALUATED, UNSCORABLE, Chunk, planned, predicted, scored
from deepthink_cli.scoring.prediction import Prediction, averaged
from deepthink_cli.tasks.format import Free
from deepthink_cli.updates import UpdateRule

if TYPE_CHECKING:
    from deepthink_cli.memory import Memory


Wanted = dict[Job, list[Setting]]  # jobs that are read together, with the rows that are to be made of each


def max_tokens_together(engine: Engine) -> int:
    """The most tokens of demonstrations that the engine reads in one pass."""
    return min(engine.tokens_together, engine.tokens_held(COPIES))


def together(jobs: Iterable[Job], most: int) -> Iterator[list[Job]]:
    """Neighbouring jobs of one task whose readings, with every gate, fit one pass of `most` tokens, which is faster.

    Finished jobs keep their group, so that resumed runs are identical to runs that were never stopped.
    """
    for _, of_task in groupby(jobs, key=lambda job: job.task.name):
        group, tokens = list[Job](), 0
        for job in of_task:
            length = len(job.run.options.rules) * sum(len(member.token_ids) for member in job.members)
            if group and tokens + length > most:
                yield group
                group, tokens = [], 0
            group.append(job)
            tokens += length
        yield group


def missing_rows(
    group: Iterable[Job], written: Collection[Prepared], identity: ModelIdentity, done: Collection[str]
) -> Wanted:
    """Jobs that are read together, with the rows that are not `done` of those that are to be `written`."""
    return {
        job: [each for each in job.settings(identity) if each.key not in done] if job in written else []
        for job in group
    }


def work(engine: Engine, wanted: Mapping[Job, Sequence[Setting]], samples: bool = False) -> Iterator[JobEvent]:
    """Read jobs together, and make the rows that are wanted of each; yields nothing if there are none.

    Jobs without any are read all the same: rows do not depend on what is missing. As many memories are made together
    as fit the free memory of the device. Raises InputError for a token of the demonstrations that the model lacks.
    """
    scorers = [JobScorer(engine, job, settings, samples) for job, settings in wanted.items()]
    writing = [scorer for scorer in scorers if scorer.wanted]
    if not writing:
        return
    for job in wanted:
        for member in job.members:
            engine.check_ids(member.token_ids, f"task {job.label}: demonstrations")
    for scorer in writing:  # demonstrations that are drawn were noted before a model was loaded
        if scorer.job.run.options.demos_by and scorer.job.fewer is not None:
            yield Note(scorer.job.fewer)
    yield from _read(engine, [scorer for scorer in scorers if scorer.job.tuning is None])
    for scorer in writing:
        if scorer.job.tuning is not None:
            training = scorer.job.tuning.training(engine, scorer.job.demonstrations)
            for _ in training:
                yield InputsScored(0)  # a step of the training scores none
            yield from scorer.score(0, scorer.wanted[0].gate, training.memory)
    tested = {each.job.label: [row for row in each.made.values() if row.setting.part == "test"] for each in writing}
    yield JobsDone(tested)


def _read(engine: Engine, scorers: Sequence[JobScorer]) -> Iterator[JobEvent]:
    """Think once for every job and gate, in shared passes, and score the iterations as they are made."""
    last = max((setting.iteration for scorer in scorers for setting in scorer.wanted), default=1)
    made = [
        (scorer, member, rule)
        for scorer in scorers
        for rule in scorer.job.run.options.rules
        for member in range(len(scorer.job.members))
    ]

    def score(numbers: Sequence[int], memories: list[Memory]) -> Iterator[JobEvent]:
        for number, memory in zip(numbers, memories, strict=True):
            scorer, member, rule = made[number]
            yield from scorer.score(member, rule, memory)

    if made:
        positions = scorers[0].job.run.options.positions[0]
        thoughts = [(scorer.job.members[member], Method(last, rule, positions)) for scorer, member, rule in made]
        yield from think_in_batches(engine, thoughts, score)


class JobScorer:
    """Scores the memories of one job for the rows that are `wanted`; its queries are tokenised once.

    With `samples`, rows come with their predictions.
    """

    def __init__(self, engine: Engine, job: Job, wanted: Sequence[Setting], samples: bool) -> None:
        self.engine, self.job, self.wanted, self.samples = engine, job, wanted, samples
        self.chunks: dict[Part, list[Chunk]] = {}
        self.skipped: dict[Part, Counter[str]] = {}
        self.unscored: dict[Part, list[int]] = {}
        self.observes = any(each.of_states for each in of_labelled(job.run.options.calibrations))
        self.first: dict[int, dict[Part, list[Prediction]]] = {}  # T = 1 of each member, which all gates share
        self.members: dict[
            Point, dict[int, tuple[Memory, dict[Part, list[Prediction]]]]
        ] = {}  # of an ensemble; else one
        self.made: dict[str, Result] = {}  # by key

    def score(self, member: int, rule: UpdateRule, memory: Memory) -> Iterator[JobEvent]:
        """Score an iteration of a member, made with an update rule; the rows follow the last member.

        A row is made once, also if its memory is made again.
        """
        wanted = [
            setting
            for setting in self.wanted
            if setting.iteration == memory.iteration and setting.gate == rule and setting.key not in self.made
        ]
        measured = self.first.setdefault(member, {}) if memory.iteration == 1 else {}
        for point, of_point in groupby(wanted, key=lambda setting: setting.point):
            settings = list(of_point)
            parts = dict.fromkeys(part for setting in settings for part in parts_of(setting))
            for part in parts:
                if part not in measured:
                    measured[part] = yield from self._measured(part, memory)
            members = self.members.setdefault(point, {})
            members[member] = memory, {part: measured[part] for part in parts}
            if len(members) == len(self.job.members):
                yield from self._rows(self.members.pop(point), settings)

    def _measured(self, part: Part, memory: Memory) -> Generator[JobEvent, None, list[Prediction]]:
        """What a memory predicts of a part, and its hidden states if a correction uses them."""
        predictions = list[Prediction]()
        for of_chunk in self._chunks_measured(part, memory):
            predictions += of_chunk
            yield InputsScored(len(of_chunk))
        return predictions

    def _rows(
        self, members: Mapping[int, tuple[Memory, Mapping[Part, list[Prediction]]]], wanted: Sequence[Setting]
    ) -> Iterator[JobEvent]:
        """The rows of settings that differ in their calibration only."""
        memories, by_member = zip(*(members[number] for number in sorted(members)), strict=True)
        measured = {part: averaged([of_member[part] for of_member in by_member]) for part in by_member[0]}
        part, names = wanted[0].part, [each.calibration for each in wanted if each.calibration is not None]
        predictions, labelled = measured[part], of_labelled(names)
        others = [name for name in names if name not in {each.name for each in labelled}]
        if others:
            one_by_one = [[memory] for memory in memories]
            labels, scoring = self.job.demonstrations.labels, self.job.run.options.scoring
            predictions = Calibrator(others, labels, self.engine, one_by_one, scoring)(predictions)
        if labelled:
            dev = LabelledRows(measured["dev"], self.job.demonstrations)
            for method in labelled:
                check_labelled(method, dev.queries, self.job.demonstrations, f"task {self.job.label}: its dev rows")
            rows = None if part == "dev" else measured[part]
            by_name = {method.name: dev.corrected(method, rows) for method in labelled}
            predictions = [
                replace(each, calibrated={**each.calibrated, **{name: of[place] for name, of in by_name.items()}})
                for place, each in enumerate(predictions)
            ]
        for setting in wanted:
            row = self._row(setting, memories[0], predictions)
            self.made[row.key] = row
            yield RowMade(
                self.job.label, row, [replace(each, states=None) for each in predictions] if self.samples else ()
            )

    def _chunks_measured(self, part: Part, memory: Memory) -> Iterator[list[Prediction]]:
        """What one iteration predicts of every query of a part, a chunk at a time, and hidden states if needed."""
        if self.job.task.free is not None:
            yield from self._answers(self.job.task.free, part, memory)
            return
        placed, layers = self.engine.place(memory), observed_layers(len(memory.keys)) if self.observes else ()
        for chunk in self._chunks(part):
            yield predicted(scored(self.engine, [[placed]], chunk, layers=layers))

    def _answers(self, free: Free, part: Part, memory: Memory) -> Iterator[list[Prediction]]:
        """The generated answers to the queries of a part, each judged."""
        rows = list[Prediction | Skipped]()
        for each in answered(self.engine, [memory], free, self.job.queries(part), self.job.run.options.scoring):
            rows.append(each)
            if not isinstance(each, Skipped):
                yield [each]
        self._note(part, rows)  # the same for every iteration
        if not predicted(rows):
            raise self._nothing_fits()

    def _nothing_fits(self) -> InputError:
        return InputError(
            f"task {self.job.task.name}: no query fits {self.engine.identity.id} after "
            f"{len(self.job.longest.token_ids)} tokens of memory; use fewer {option('shots')}"
        )

    def _chunks(self, part: Part) -> list[Chunk]:
        """The part's queries, tokenised on first use and cached for every iteration and gate."""
        if part not in self.chunks:
            queries, scoring = self.job.queries(part), self.job.run.options.scoring
            demonstrations = self.job.longest
            chunks = list(
                planned(self.engine, demonstrations, queries, size=EVALUATED, scoring=scoring, skip=UNSCORABLE)
            )
            self._note(part, [row for chunk in chunks for row in chunk.rows])
            self.chunks[part] = [chunk for chunk in chunks if chunk.queries]
            if not self.chunks[part]:
                raise self._nothing_fits()
        return self.chunks[part]

    def _note(self, part: Part, rows: Sequence[Prediction | Query | Skipped]) -> None:
        """Note which rows of a part were skipped, and why."""
        before = self.job.evaluated.skipped if part == "test" else {}
        self.skipped[part] = Counter(before) + Counter(row.reason for row in rows if isinstance(row, Skipped))
        self.unscored[part] = [place for place, row in enumerate(rows) if isinstance(row, Skipped)]

    def _row(self, setting: Setting, memory: Memory, predictions: Sequence[Prediction]) -> Result:
        corrections = corrections_of(setting, predictions)
        if corrections is not None:
            predictions = [correction.prediction for correction in corrections]
        answers, demonstrations = Answers(self.job.demonstrations.labels), self.job.demonstrations
        for prediction in predictions:
            answers.add(prediction)
        metrics, majority, corrected = answers.metrics(), answers.majority(), None
        if corrections is not None:
            last = corrections[-1]
            corrected = Corrected(last.inputs, last.counted, (last.bias or None) if demonstrations.labels else None)
        right = [prediction.label == prediction.query.gold for prediction in predictions]
        return Result(
            key=setting.key,
            setting=setting,
            groups=self.job.task.groups,
            shots_used=len(demonstrations.examples),
            length=len(demonstrations.token_ids),
            demonstrations_sha256=self.job.sha256,
            plain_sha256=None if self.job.plain.sha256 == self.job.sha256 else self.job.plain.sha256,
            n=len(answers.gold),
            right=sum(right),
            accuracy=metrics.accuracy,
            accuracy_mean_per_token=metrics.accuracy_mean_per_token,
            macro_f1=metrics.macro_f1,
            ties=metrics.ties,
            majority=None if majority is None else majority[1],
            chance=answers.chance,
            correct=bits(right),
            skipped=dict(sorted(self.skipped[setting.part].items())),
            unscored=self.unscored[setting.part],
            left_out=dict(sorted(self.job.drawn.left_out.items())),
            drift=(memory.drift[-1].mean_keys, memory.drift[-1].mean_values) if memory.drift else None,
            corrected=corrected,
        )

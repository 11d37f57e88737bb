"""Run jobs: read their demonstrations in shared passes, and score every iteration as it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import InputError
from deepthink_cli.evaluation import Evaluator, ScoringChunk, scoring_chunks
from deepthink_cli.memory import Memory
from deepthink_cli.method import Method
from deepthink_cli.prediction import Prediction, predict_plan
from deepthink_cli.runs.in_step import COPIES, think_in_batches
from deepthink_cli.runs.plan import RunJob, RunPlan
from deepthink_cli.runs.results import Part, Result, Setting, bits


@dataclass(frozen=True)
class Step:
    """Progress of a job: the inputs scored since its last step, and a row when one is complete."""

    job: RunJob
    scored: int
    row: Result | None = None
    predictions: Sequence[Prediction] = ()


Work = Sequence[tuple[RunJob, Sequence[Setting]]]  # jobs with the settings of the rows to write


@dataclass(frozen=True, eq=False)
class _Thinking:
    """One memory to make: a job with one method, and the settings whose rows are missing."""

    scorer: _JobScorer
    method: Method
    wanted: Sequence[Setting]

    def settings(self, iteration: int) -> list[Setting]:
        """The missing settings of one iteration."""
        return [
            setting for setting in self.wanted if setting.gate == self.method.update and setting.iteration == iteration
        ]


def together(plan: RunPlan, engine: Engine, work: Work) -> Iterator[Work]:
    """Yield neighbouring jobs of one task whose readings, with every gate, fit one pass, which is faster.

    Finished jobs keep their group, so that resumed runs are identical to runs that were never stopped.
    """
    most = min(engine.tokens_together, engine.tokens_held(COPIES))
    for _, jobs in groupby(work, key=lambda job_and_settings: job_and_settings[0].task.name):
        group, tokens = list[tuple[RunJob, Sequence[Setting]]](), 0
        for job, wanted in jobs:
            length = len(plan.gates) * len(job.demonstrations.token_ids)
            if group and tokens + length > most:
                yield group
                group, tokens = [], 0
            group.append((job, wanted))
            tokens += length
        yield group


def run_jobs(plan: RunPlan, engine: Engine, work: Work) -> Iterator[Step]:
    """Think once for every job and gate, in shared passes, and score the wanted iterations as they are made.

    Yields after every chunk of inputs. T = 1 is the same for every gate and is scored once. As many memories are
    made together as fit the free memory of the device.
    """
    last = max(setting.iteration for _, wanted in work for setting in wanted)
    scorers = [(_JobScorer(plan, job, engine), wanted) for job, wanted in work]
    methods = [Method(last, gate, plan.positions) for gate in plan.gates]
    thinkings = [_Thinking(scorer, method, wanted) for scorer, wanted in scorers for method in methods]
    yield from think_in_batches(
        engine, [(thinking.scorer.job.demonstrations, thinking.method) for thinking in thinkings], _scored(thinkings)
    )


def _scored(thinkings: Sequence[_Thinking]) -> Callable[[Sequence[int], list[Memory]], Iterator[Step]]:
    """Scores the memories of some of the thinkings; a row is scored once, also if its memory is made again."""
    scored: set[str] = set()

    def score(numbers: Sequence[int], memories: list[Memory]) -> Iterator[Step]:
        for number, memory in zip(numbers, memories, strict=True):
            for setting in thinkings[number].settings(memory.iteration):
                if setting.key not in scored:
                    yield from thinkings[number].scorer.score(memory, setting)
                    scored.add(setting.key)

    return score


class _JobScorer:
    """Scores the memories of one job, whose queries are tokenised once."""

    def __init__(self, plan: RunPlan, job: RunJob, engine: Engine) -> None:
        self.plan, self.job, self.engine = plan, job, engine
        self.queries: dict[Part, list[ScoringChunk]] = {}
        self.skipped: dict[Part, Counter[str]] = {"test": Counter(job.evaluated.skipped), "dev": Counter()}
        self.first: dict[Part, Step] = {}

    def score(self, memory: Memory, setting: Setting) -> Iterator[Step]:
        """Score one iteration; the last step carries its row."""
        part = setting.part
        if setting.iteration == 1 and part in self.first:
            yield self._again(self.first[part], setting)
            return
        memory = self.engine.place(memory)
        evaluator = Evaluator([memory.iteration], self.job.demonstrations.labels)
        predictions: list[Prediction] = []
        for chunk in self._queries(part):
            (of_chunk,) = predict_plan(self.engine, [memory], chunk.queries, chunk.plan)
            for prediction in of_chunk:
                evaluator.add(prediction)
            predictions += of_chunk
            yield Step(self.job, len(of_chunk))
        done = Step(self.job, 0, self._row(setting, memory, evaluator, predictions), predictions)
        if setting.iteration == 1:
            self.first[part] = done
        yield done

    def _queries(self, part: Part) -> list[ScoringChunk]:
        """The part's queries, tokenised on first use and cached for every iteration and gate."""
        if part not in self.queries:
            demonstrations, queries = self.job.demonstrations, self.job.queries(self.plan, part)
            self.queries[part] = list(scoring_chunks(self.engine, demonstrations, queries, self.skipped[part]))
            if not self.queries[part]:
                raise InputError(
                    f"task {self.job.task.name}: no query fits {self.engine.identity.id} after "
                    f"{len(demonstrations.token_ids)} tokens of memory; use fewer --shots"
                )
        return self.queries[part]

    def _again(self, step: Step, setting: Setting) -> Step:
        assert step.row is not None
        return replace(step, row=replace(step.row, key=setting.key, setting=setting))

    def _row(self, setting: Setting, memory: Memory, evaluator: Evaluator, predictions: Sequence[Prediction]) -> Result:
        evaluation, demonstrations = evaluator.result(), self.job.demonstrations
        metrics, majority = evaluation.last, evaluation.majority
        right = [prediction.label == prediction.query.gold for prediction in predictions]
        return Result(
            key=setting.key,
            setting=setting,
            groups=self.job.task.groups,
            shots_used=len(demonstrations.examples),
            length=len(demonstrations.token_ids),
            demonstrations_sha256=demonstrations.sha256,
            n=evaluation.n,
            right=sum(right),
            accuracy=metrics.accuracy,
            accuracy_mean_per_token=metrics.accuracy_mean_per_token,
            macro_f1=metrics.macro_f1,
            ties=metrics.ties,
            majority=None if majority is None else majority[1],
            chance=evaluation.chance,
            correct=bits(right),
            skipped=dict(sorted(self.skipped[setting.part].items())),
            left_out=dict(sorted(self.job.drawn.left_out.items())),
            drift=(memory.drift[-1].mean_keys, memory.drift[-1].mean_values) if memory.drift else None,
        )

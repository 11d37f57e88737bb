"""Jobs of a study: think about their demonstrations in step and score every iteration on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from deepthink_cli.errors import InputError
from deepthink_cli.evaluation import Evaluator, Fitting, fitting
from deepthink_cli.memory import Memory
from deepthink_cli.model import LanguageModel
from deepthink_cli.origin import Method
from deepthink_cli.passes import engine_of
from deepthink_cli.prediction import Prediction, predict_plan
from deepthink_cli.results import Part, Result, Setting, bits
from deepthink_cli.study import Job, Plan
from deepthink_cli.thinking import think_each


@dataclass(frozen=True)
class Step:
    """What a trial says while it runs: inputs of a job scored since its last step, and the row when one is done."""

    job: Job
    scored: int
    row: Result | None = None
    predictions: Sequence[Prediction] = ()


Work = Sequence[tuple[Job, Sequence[Setting]]]  # jobs with the settings whose rows are wanted


def together(plan: Plan, model: LanguageModel, work: Work) -> Iterator[Work]:
    """Yield neighbouring jobs of one task whose readings, with every gate, fit one pass: reading them at once pays.

    Jobs of which nothing is wanted are grouped with the others, so that a run that is continued reads as
    one that was never stopped.
    """
    gates, most = len(plan.etas) * len(plan.momentums), engine_of(model).batch_tokens
    for _, jobs in groupby(work, key=lambda one: one[0].task.name):
        group, tokens = list[tuple[Job, Sequence[Setting]]](), 0
        for job, wanted in jobs:
            length = gates * len(job.demonstrations.token_ids)
            if group and tokens + length > most:
                yield group
                group, tokens = [], 0
            group.append((job, wanted))
            tokens += length
        yield group


def run_jobs(plan: Plan, model: LanguageModel, work: Work) -> Iterator[Step]:
    """Think once for every job and gate, in step, and score the wanted iterations as they come.

    Yields after every chunk of inputs. T = 1 is the same for every gate and is scored once.
    """
    last = max(one.iteration for _, wanted in work for one in wanted)
    trials = [(_Trial(plan, job, model), wanted) for job, wanted in work]
    gates = [Method(last, eta, momentum, plan.positions) for eta in plan.etas for momentum in plan.momentums]
    lanes = [(*one, gate) for one in trials for gate in gates]
    for memories in think_each(model, [(trial.job.demonstrations, gate) for trial, _, gate in lanes]):
        for (trial, wanted, gate), memory in zip(lanes, memories, strict=True):
            for one in wanted:
                if (one.eta, one.momentum, one.iteration) == (gate.eta, gate.momentum, memory.iteration):
                    yield from trial.score(memory, one)


class _Trial:
    def __init__(self, plan: Plan, job: Job, model: LanguageModel) -> None:
        self.plan, self.job, self.model = plan, job, model
        self.queries: dict[Part, list[Fitting]] = {}
        self.skipped: dict[Part, Counter[str]] = {"test": Counter(job.evaluated.skipped), "dev": Counter()}
        self.first: dict[Part, Step] = {}

    def score(self, memory: Memory, setting: Setting) -> Iterator[Step]:
        """Score one iteration; the last step carries its row."""
        part = setting.part
        if setting.iteration == 1 and part in self.first:
            yield self._again(self.first[part], setting)
            return
        evaluator = Evaluator([memory.iteration], self.job.demonstrations.labels)
        found: list[Prediction] = []
        for chunk in self._queries(part):
            (predictions,) = predict_plan(self.model, [memory], chunk.queries, chunk.plan)
            for prediction in predictions:
                evaluator.add(prediction)
            found += predictions
            yield Step(self.job, len(predictions))
        done = Step(self.job, 0, self._row(setting, evaluator, found), found)
        if setting.iteration == 1:
            self.first[part] = done
        yield done

    def _queries(self, part: Part) -> list[Fitting]:
        """The part's queries, tokenised when first asked for and kept for every iteration and gate."""
        if part not in self.queries:
            read, given = self.job.demonstrations, self.job.queries(self.plan, part)
            self.queries[part] = list(fitting(self.model, read, given, self.skipped[part]))
            if not self.queries[part]:
                raise InputError(
                    f"task {self.job.task.name}: no query fits {self.model.identity.id} after {len(read.token_ids)} "
                    "tokens of memory; use fewer --shots"
                )
        return self.queries[part]

    def _again(self, step: Step, setting: Setting) -> Step:
        assert step.row is not None
        return replace(step, row=replace(step.row, key=setting.key, setting=setting))

    def _row(self, setting: Setting, evaluator: Evaluator, found: Sequence[Prediction]) -> Result:
        evaluation = evaluator.result()
        metrics, read = evaluation.last, self.job.demonstrations
        right = [prediction.label == prediction.query.gold for prediction in found]
        return Result(
            key=setting.key, setting=setting, groups=self.job.task.groups, shots_used=len(read.examples),
            length=len(read.token_ids), demonstrations_sha256=read.sha256, n=evaluation.n, right=sum(right),
            accuracy=metrics.accuracy, accuracy_mean_per_token=metrics.accuracy_mean_per_token,
            macro_f1=metrics.macro_f1, ties=metrics.ties,
            majority=evaluation.majority[1] if evaluation.majority else None, chance=evaluation.chance,
            correct=bits(right), skipped=dict(sorted(self.skipped[setting.part].items())),
            left_out=dict(sorted(self.job.drawn.left_out.items())),
        )  # fmt: skip

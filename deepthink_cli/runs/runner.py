"""Jobs of a study: think about their demonstrations in step and score every iteration on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from deepthink_cli.engine.choice import engine_of
from deepthink_cli.engine.network import LanguageModel
from deepthink_cli.errors import InputError, ran_out_of_memory
from deepthink_cli.evaluation import Evaluator, ScoringChunk, scoring_chunks
from deepthink_cli.memory import Memory
from deepthink_cli.prediction import Prediction, predict_plan
from deepthink_cli.provenance import Method
from deepthink_cli.runs.plan import RunJob, RunPlan
from deepthink_cli.runs.results import Part, Result, Setting, bits
from deepthink_cli.thinking import think_each


@dataclass(frozen=True)
class Step:
    """What a trial says while it runs: inputs of a job scored since its last step, and the row when one is done."""

    job: RunJob
    scored: int
    row: Result | None = None
    predictions: Sequence[Prediction] = ()


Work = Sequence[tuple[RunJob, Sequence[Setting]]]  # jobs with the settings whose rows are wanted
_COPIES = 3  # float32 memories that a lane holds at most: history, present and the step of the momentum


@dataclass(frozen=True, eq=False)
class _Lane:
    """The making of one memory: a trial with one gate, and the settings whose rows are missing."""

    trial: _Trial
    method: Method
    wanted: Sequence[Setting]

    def of(self, iteration: int) -> list[Setting]:
        """The missing settings of one iteration."""
        asked = (self.method.eta, self.method.momentum, iteration)
        return [one for one in self.wanted if (one.eta, one.momentum, one.iteration) == asked]


def together(plan: RunPlan, model: LanguageModel, work: Work) -> Iterator[Work]:
    """Yield neighbouring jobs of one task whose readings, with every gate, fit one pass, which is faster.

    Finished jobs stay in their group, so that a resumed run is identical to one that was never stopped.
    """
    gates, engine = len(plan.etas) * len(plan.momentums), engine_of(model)
    most = min(engine.batch_tokens, engine.free // _token_bytes(model))
    for _, jobs in groupby(work, key=lambda one: one[0].task.name):
        group, tokens = list[tuple[RunJob, Sequence[Setting]]](), 0
        for job, wanted in jobs:
            length = gates * len(job.demonstrations.token_ids)
            if group and tokens + length > most:
                yield group
                group, tokens = [], 0
            group.append((job, wanted))
            tokens += length
        yield group


def run_jobs(plan: RunPlan, model: LanguageModel, work: Work) -> Iterator[Step]:
    """Think once for every job and gate, in step, and score the wanted iterations as they come.

    Yields after every chunk of inputs. T = 1 is the same for every gate and is scored once. As many memories are
    made together as the free memory of the device holds.
    """
    last = max(one.iteration for _, wanted in work for one in wanted)
    trials = [(_Trial(plan, job, model), wanted) for job, wanted in work]
    gates = [Method(last, eta, momentum, plan.positions) for eta in plan.etas for momentum in plan.momentums]
    lanes = [_Lane(trial, gate, wanted) for trial, wanted in trials for gate in gates]
    longest = max(len(job.demonstrations.token_ids) for job, _ in work)
    most = max(1, engine_of(model).free // (_token_bytes(model) * longest))
    for start in range(0, len(lanes), most):
        yield from _in_step(model, lanes[start : start + most], set())


def _in_step(model: LanguageModel, lanes: Sequence[_Lane], scored: set[str]) -> Iterator[Step]:
    """Think in all lanes at once; where that runs out of memory, in one half of them after the other.

    `scored` holds the keys of the finished rows.
    """
    memory: Memory | None = None
    try:
        for memories in think_each(model, [(lane.trial.job.demonstrations, lane.method) for lane in lanes]):
            for lane, memory in zip(lanes, memories, strict=True):
                for setting in lane.of(memory.iteration):
                    if setting.key not in scored:
                        yield from lane.trial.score(memory, setting)
                        scored.add(setting.key)
            memory = None
            memories.clear()  # frees memory for the next reading
        return
    except Exception as error:
        if len(lanes) == 1 or not ran_out_of_memory(error):
            raise
    # Outside the handler, which keeps the tensors of the failed pass alive.
    memory, memories = None, []
    half = len(lanes) // 2
    yield from _in_step(model, lanes[:half], scored)
    yield from _in_step(model, lanes[half:], scored)


def _token_bytes(model: LanguageModel) -> int:
    """Bytes that a lane needs for one token of demonstrations."""
    return _COPIES * model.token_bytes


class _Trial:
    def __init__(self, plan: RunPlan, job: RunJob, model: LanguageModel) -> None:
        self.plan, self.job, self.model = plan, job, model
        self.queries: dict[Part, list[ScoringChunk]] = {}
        self.skipped: dict[Part, Counter[str]] = {"test": Counter(job.evaluated.skipped), "dev": Counter()}
        self.first: dict[Part, Step] = {}

    def score(self, memory: Memory, setting: Setting) -> Iterator[Step]:
        """Score one iteration; the last step carries its row."""
        part = setting.part
        if setting.iteration == 1 and part in self.first:
            yield self._again(self.first[part], setting)
            return
        memory = memory.to(self.model.layer_devices, self.model.dtype)
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

    def _queries(self, part: Part) -> list[ScoringChunk]:
        """The part's queries, tokenised when first asked for and kept for every iteration and gate."""
        if part not in self.queries:
            read, given = self.job.demonstrations, self.job.queries(self.plan, part)
            self.queries[part] = list(scoring_chunks(self.model, read, given, self.skipped[part]))
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

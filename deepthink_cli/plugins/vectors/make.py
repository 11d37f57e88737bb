"""Extract vectors from labelled rows and store them: the workflow of `deepthink vectors`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepthink_cli.artifact.metadata import StoredDemonstrations, versions
from deepthink_cli.engine.opening import describe_engine, find_model, load
from deepthink_cli.events import Tell, silent
from deepthink_cli.model.limits import check_pass
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.plugins.vectors.episodes import Draws, Episode, Prompt
from deepthink_cli.plugins.vectors.file import VectorsFile, VectorsMetadata, save_vectors
from deepthink_cli.plugins.vectors.options import VectorOptions
from deepthink_cli.selection.pool import PoolRows


@dataclass(frozen=True)
class VectorsPlan:
    """Checked episodes, and the demonstrations of the prompts that vectors are added to, before weights are loaded."""

    spec: ModelSpec
    pool: PoolRows
    options: VectorOptions
    prompt: Prompt
    episodes: tuple[Episode, ...]
    task: str | None = None

    @property
    def tokens(self) -> int:
        """The number of tokens that all passes read."""
        return sum(len(each.ids) + len(each.alone) for each in self.episodes)


def plan_vectors(
    pool: PoolRows, model: ModelOptions, options: VectorOptions, task: str | None = None, tell: Tell = silent
) -> VectorsPlan:
    """Find the model and draw the episodes, without loading its weights.

    Rows that do not fit the model are left out. Raises InputError for too few rows of a label, for an episode that is
    too long for the model, and for labels that the tokenizer does not tell apart.
    """
    spec = find_model(model, tell)
    pool = pool.fitting(spec.tokenizer, spec.limits)
    draws = Draws(pool, options, spec.tokenizer)
    prompt, episodes = draws.prompt(), tuple(draws.episodes())
    for each in episodes:
        check_pass(spec.limits, len(each.ids), 0, 0, spec.id)
    return VectorsPlan(spec, pool, options, prompt, episodes, task)


def extract_and_save(plan: VectorsPlan, output: str | Path, tell: Tell = silent) -> VectorsFile:
    """Load the model, extract the vectors, and write them to a file; returns its header.

    Raises InputError for a model whose attention is not known, and DeepThinkError for values that are not finite.
    """
    from deepthink_cli.plugins.vectors.extraction import extract

    engine = load(plan.spec, tell)
    describe_engine(engine, tell)
    vectors = extract(engine, plan.episodes, plan.options.extraction_alpha, tell)
    demonstrations, pool = plan.prompt.demonstrations, plan.pool
    metadata = VectorsMetadata(
        format_version=1,
        model=engine.identity,
        demonstrations=StoredDemonstrations(
            token_ids=list(demonstrations.token_ids),
            texts=[each.text if isinstance(each.text, str) else dict(each.text) for each in demonstrations.examples],
            labels=[each.label for each in demonstrations.examples],
            sha256=demonstrations.sha256,
        ),
        places=list(plan.prompt.places),
        template=demonstrations.template,
        labels=list(demonstrations.labels),
        **plan.options.model_dump(),
        source=pool.name,
        task=plan.task,
        rows=len(pool.free),
        rows_sha256=pool.sha256,
        versions=dict(versions()),
    )
    return save_vectors(metadata, vectors, output)

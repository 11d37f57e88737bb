"""Extract iterative vectors (Liu and Deng 2025, ICML, PMLR 267:38290) from labelled rows, and store them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from deepthink_cli.artifact.metadata import StoredDemonstrations, versions
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.errors import DeepThinkError
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.model.limits import check_pass
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.plugins.vectors.episodes import Draws, Episode, Prompt
from deepthink_cli.plugins.vectors.file import VectorsFile, VectorsMetadata, save_vectors
from deepthink_cli.plugins.vectors.options import VectorOptions
from deepthink_cli.plugins.vectors.passes import read_adding
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
    engine = load(plan.spec, tell)
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


REFRESHED = 10  # episodes after which the vectors that are added become the mean of all episodes so far


def extract(engine: Engine, episodes: Sequence[Episode], alpha: float, tell: Tell) -> Tensor:
    """The vectors (layers, C + 1, W) in float32: one for each of C labels, and the query's last.

    With a_l(p) the output of layer l's attention at token p, after which a label begins,

        d_l(i) = a_l(p_i) + alpha v_l(y_i) - a'_l,    v_l(y) = mean over episodes of the mean of d_l(i) with y_i = y,

    where alpha v_l(y_i) is added during the pass over demonstrations and query, and a'_l is the output at the end of
    the query that is read alone, without vectors. The query has its own row in the place of y_i. The added v are
    refreshed after the first episode and after every tenth that follows; the first episode adds none. Raises as
    `read_adding`.
    """
    total, vectors = torch.zeros(()), None
    tell(Progress("extracting", 0, len(episodes)))
    for number, episode in enumerate(episodes):
        total = total + _differences(engine, episode, vectors, alpha)
        if number % REFRESHED == 0:
            vectors = total / (number + 1)
        tell(Progress("extracting", number + 1, len(episodes)))
    found = (total / len(episodes)).float()
    if not found.isfinite().all():
        raise DeepThinkError(
            f"the vectors hold NaN or infinite values; nothing was written; {engine.identity.overflow}"
        )
    return found


def _differences(engine: Engine, episode: Episode, vectors: Tensor | None, alpha: float) -> Tensor:
    """The mean of d_l over the demonstrations of each label, and d_l of the query: (layers, C + 1, W), float64."""
    classes = torch.tensor(episode.classes)
    labels = int(classes.max()) + 1  # an episode has every label
    added = None if vectors is None else list(alpha * vectors[:, [*episode.classes, labels]])
    _, together = read_adding(engine, episode.ids, episode.places, added)
    _, alone = read_adding(engine, episode.alone, [len(episode.alone) - 1], None)
    differences = (together - alone).double()
    of_labels = [differences[:, :-1][:, classes == label].mean(1) for label in range(labels)]
    return torch.stack([*of_labels, differences[:, -1]], dim=1)

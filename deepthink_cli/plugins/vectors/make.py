"""Extract iterative vectors (Liu and Deng 2025, ICML, PMLR 267:38290) from labelled rows, and store them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from deepthink_cli.artifact.metadata import StoredDemonstrations, versions
from deepthink_cli.data.examples import DemonstrationSet, example_of
from deepthink_cli.data.same_input import input_groups
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.opening import find_model, load
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.events import Progress, Tell, silent
from deepthink_cli.model.boundary import common_length, demonstration_ids, special_ids
from deepthink_cli.model.limits import check_pass
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.model.tokens import query_tokenizer, solved_texts, tokenize_demonstrations
from deepthink_cli.plugins.vectors.file import VectorsFile, VectorsMetadata, save_vectors
from deepthink_cli.plugins.vectors.options import VectorOptions
from deepthink_cli.plugins.vectors.passes import read_adding
from deepthink_cli.provenance import TokenizedDemonstrations
from deepthink_cli.selection.pool import PoolRows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Prompt:
    """Demonstrations as token ids; their labels begin after the tokens `places`."""

    demonstrations: TokenizedDemonstrations
    places: tuple[int, ...]

    @property
    def classes(self) -> tuple[int, ...]:
        """The number of each demonstration's label."""
        labels = self.demonstrations.labels
        return tuple(labels.index(each.label) for each in self.demonstrations.examples)


@dataclass(frozen=True)
class Episode:
    """A prompt and a query up to its label: `ids` together, and `alone` the query after the tokenizer's special tokens.

    `places` are the tokens of `ids` after which the labels of the demonstrations and of the query begin. `classes` are
    the numbers of the demonstrations' labels.
    """

    ids: tuple[int, ...]
    places: tuple[int, ...]
    classes: tuple[int, ...]
    alone: tuple[int, ...]


def answer_places(tokenizer: PreTrainedTokenizerBase, demonstrations: TokenizedDemonstrations) -> tuple[int, ...]:
    """For each demonstration, the place in `token_ids` of the token after which its label begins.

    As for a query, this is the last token of the common beginning of the text up to the label and of the whole text.
    """
    template, places, before = demonstrations.template, list[int](), ""
    for each, solved in zip(demonstrations.examples, solved_texts(demonstrations), strict=True):
        asked = demonstration_ids(tokenizer, (before + template.query(each.text)).rstrip(" "))
        places.append(common_length(tuple(asked), demonstrations.token_ids) - 1)
        before += solved
    return tuple(places)


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

    An episode is K rows of every label in a random order, and a row with another input as a query; the prompts to which
    vectors are added have K rows of every label that are drawn apart. Rows that do not fit the model are left out.
    Raises InputError for too few rows of a label, for an episode that is too long for the model, and for labels that
    the tokenizer does not tell apart.
    """
    spec = find_model(model, tell)
    pool, tokenizer = pool.fitting(spec.tokenizer, spec.limits), spec.tokenizer
    of_label, input_of = _divided(pool, options.shots)

    def drawn(random: Random) -> tuple[Prompt, set[int]]:
        """A prompt, and the numbers of its inputs."""
        chosen = [place for places in of_label.values() for place in random.sample(places, options.shots)]
        random.shuffle(chosen)
        examples = tuple(example_of(pool.queries[place]) for place in chosen)
        read = tokenize_demonstrations(tokenizer, DemonstrationSet(examples, pool.template, pool.labels))
        return Prompt(read, answer_places(tokenizer, read)), {input_of[place] for place in chosen}

    episodes, random = list[Episode](), Random(f"episodes {options.seed}")
    special, tokenize = special_ids(tokenizer), query_tokenizer(tokenizer, pool.template)
    for _ in range(options.episodes):
        prompt, inputs = drawn(random)
        while input_of[query := random.choice(pool.free)] in inputs:
            pass
        (after,) = query_tokenizer(tokenizer, prompt.demonstrations)([pool.queries[query]])
        (alone,) = tokenize([pool.queries[query]])
        ids = prompt.demonstrations.token_ids + after.prefix
        check_pass(spec.limits, len(ids), 0, 0, spec.id)
        episodes.append(Episode(ids, (*prompt.places, len(ids) - 1), prompt.classes, special + alone.prefix))
    prompt, _ = drawn(Random(f"prompt {options.seed}"))
    return VectorsPlan(spec, pool, options, prompt, tuple(episodes), task)


def _divided(pool: PoolRows, shots: int) -> tuple[dict[str, list[int]], dict[int, int]]:
    """The places of each label's rows, and the number of every row's input; raises InputError if they are too few."""
    name = pool.name
    if not pool.labels:
        raise InputError(f"{name}: every row has candidates of its own; vectors need the same labels for all rows")
    of_label: dict[str, list[int]] = {label: [] for label in pool.labels}
    for place in pool.free:
        of_label.setdefault(str(pool.queries[place].gold), []).append(place)
    for label, places in of_label.items():
        if len(places) < shots:
            reason = f"{name} has {len(places)} rows with the label {label!r}; give more of them, or fewer shots"
            raise InputError.of("shots", shots, reason)
    groups = input_groups([pool.queries[place] for place in pool.free], pool.template, pool.labels)
    if len(set(groups)) <= len(of_label) * shots:
        raise InputError.of("shots", shots, f"{name} has no other input for the query; give more rows")
    return of_label, dict(zip(pool.free, groups, strict=True))


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

"""Find a model, load it, and choose its engine: the requested engine, or the fastest one that a probe finds correct."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter, warn

from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.registry import AUTO, engine_class
from deepthink_cli.errors import DeepThinkError, InputError, Problem, option
from deepthink_cli.events import Detail, Download, Event, Note, Tell, Warn
from deepthink_cli.io.hub import library_errors, without_collection
from deepthink_cli.model.files import kind_of
from deepthink_cli.model.opening import needs_download, open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec, load_network

if TYPE_CHECKING:
    from deepthink_cli.engine.network import LanguageModel


def load_model(model: str | ModelSpec = "pocket", **options: Any) -> Engine:
    """Load a model and choose its engine: `pocket`, a hub id, a local directory or file, or a `ModelSpec`.

    Options are the fields of `ModelOptions`: revision, gguf, dtype, device, device_map, quantize, offline,
    trust_remote_code, batch_tokens, engine. Warns of parts of a file that transformers ignores.
    Raises InputError if the model cannot be found, has no keys and values, or cannot run on the requested engine, and
    DeepThinkError if its weights are incomplete or damaged.
    """
    if isinstance(model, str):
        model = open_model(ModelOptions.checked(model=model, **options))
        if model.warning is not None:
            warn(model.warning, RuntimeWarning, stacklevel=2)
    name = model.options.engine
    if of_spec := getattr(engine_class(name), "of_spec", None):
        engine: Engine = of_spec(model)
        return engine
    return choose_engine(load_language_model(model), name, model.few_rows)


@without_collection()
def load_language_model(spec: ModelSpec) -> LanguageModel:
    """Load a model's weights, without an engine yet; raises as `load_model` does."""
    from deepthink_cli.engine.network import LanguageModel

    network = load_network(spec)
    if network.base_model is network and hasattr(network, "model"):  # Llama 4 calls its text model by another name
        network.base_model_prefix = "model"
    identity = replace(spec.identify(), dtype=str(network.dtype).removeprefix("torch."))
    loaded = LanguageModel(network, spec.tokenizer, identity, spec.limits, spec.options.batch_tokens)
    return loaded if loaded.takes_positions else replace(loaded, limits=replace(loaded.limits, relative=True))


def choose_engine(model: LanguageModel, name: str = AUTO, few_rows: bool = False) -> Engine:
    """The engine called `name`; for `auto` the packed engine, or the padded engine if a probe rejects packing.

    With `few_rows`, weights are not copied for faster products: the copy takes longer than it saves.

    With `auto`, warns if an error, not an unsupported attention, prevents packing. Raises InputError for an unknown
    name, and for `packed` with a network that cannot be packed; raises DeepThinkError if an error prevents `packed`.
    """
    import torch

    from deepthink_cli.engine.budget import KEPT, byte_budget
    from deepthink_cli.engine.packed import PackedEngine
    from deepthink_cli.engine.padded import COST, PaddedEngine
    from deepthink_cli.engine.probe import check_padded, found_before, keep, try_packed
    from deepthink_cli.engine.products import reorder_weights, usual_products_are_slow

    # glibc reuses freed blocks up to the size of the largest one so far. Without this, every pass maps its largest
    # tensors again, with a page fault for every 4 KiB.
    torch.empty(KEPT, dtype=torch.uint8)
    with model.lock:
        verdict = found_before(model)
        if verdict is not None:
            model = replace(model, head_kind=verdict.head)
        named = Problem(f"{model.identity.architecture} cannot read a token")
        with library_errors(named, "choose a model of another architecture, or another version of transformers"):
            _ = model.one_token
        # Before engines, so that engines see the memory that is left. Otherwise every pass converts the embedding.
        if model.head is not None:
            model.head.keep_float32(byte_budget(model.device) // 4)
        slow = not few_rows and usual_products_are_slow()
        fast = slow and bool(reorder_weights(model.network.base_model, byte_budget(model.device) // 2))
        if (kind := engine_class(name)) not in (None, PackedEngine):
            if verdict is None:
                check_padded(model)
            chosen: Engine = kind(model)
            return chosen
        if verdict is None:
            verdict = try_packed(model)
            keep(model, verdict)
        if verdict.reason is None:
            engine = PackedEngine(model)
            engine.description = (
                f"packed engine, {engine.batch_tokens} tokens a pass; in a probe, packed and padded scores differ by "
                f"{verdict.difference:.1e} nats, rounding alone by {verdict.rounding:.1e}"
                f"{'; float32 products by oneDNN' if fast else ''}"
            )
            return engine
        if name == PackedEngine.name:
            error = InputError if verdict.failure is None else DeepThinkError
            raise error.of("engine", "packed", f"{verdict.reason}; use {option('engine')} padded")
        description, told = f"padded engine: {verdict.reason}; {COST}", Note if verdict.failure is None else Warn
        if told is Warn:
            warn(description, RuntimeWarning, stacklevel=3)
        return PaddedEngine(model, description, told)


def find_model(options: ModelOptions, tell: Tell, named_by: str | None = None) -> ModelSpec:
    """Find a model, without its weights; reports a download before it starts, and ignored parts of a file.

    `named_by` is the memory that names the model, if the user does not.
    """
    engine_class(options.engine)
    if needs_download(options):
        text = f"{options.model} is not in the cache; asking the hub, to download it"
        tell(Note(text) if named_by is None else Download(f"{named_by} names its model: {text}"))
    spec = open_model(options)
    if spec.warning is not None:
        tell(Warn(spec.warning) if named_by is None else Detail(spec.warning))  # a warning when the memory was made
    return spec


def load(spec: ModelSpec, tell: Tell) -> Engine:
    """Load a model's weights, choose its engine and tell of both; also tells of pickled weights."""
    with catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # reported below as an event
        engine = load_model(spec)
    if spec.file is None and any(file.suffix != ".safetensors" for file in spec.local_weights()):
        tell(
            Note(
                f"{spec.id}: its weights are a pickle, read with torch's safe loader; safetensors are safer and faster"
            )
        )
    for event in described(engine):
        tell(event)
    return engine


def described(engine: Engine) -> list[Event]:
    """The events that tell users which model was loaded, and which engine was chosen."""
    identity, kind = engine.identity, kind_of(engine.identity.gguf)
    converted = "" if kind is None else f"its weights {kind.converted} to "
    text = f"loaded {identity.id}, {converted}{identity.dtype} on {engine.device}"
    return [Detail(text), engine.told(engine.description)]

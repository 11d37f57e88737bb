"""Find and load a model, and report events."""

from __future__ import annotations

from pathlib import Path
from warnings import catch_warnings, simplefilter

from deepthink_cli.data.chat import Chat
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.choice import load_model
from deepthink_cli.engine.registry import check_engine
from deepthink_cli.errors import option
from deepthink_cli.events import Detail, Download, Note, Tell, Warn
from deepthink_cli.model.adapter import adapter_to_download
from deepthink_cli.model.opening import needs_download, open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.spec import ModelSpec


def find_model(options: ModelOptions, tell: Tell, named_by: str | None = None) -> ModelSpec:
    """Find a model, without its weights; reports a download before it starts, and what is ignored of a GGUF file.

    `named_by` is the memory that names the model, if the user does not.
    """
    check_engine(options.engine)
    tell_of_download(options, tell, named_by)
    spec = open_model(options)
    if spec.warning is not None:
        tell(Warn(spec.warning))
    if spec.adapter is not None and not _is_base(spec.adapter.base, spec, options):
        tell(
            Note(
                f"{option('adapter')} {options.adapter}: made for {spec.adapter.base}, used with "
                f"{option('model')} {options.model}"
            )
        )
    return spec


def tell_of_download(options: ModelOptions, tell: Tell, named_by: str | None = None) -> None:
    """Report what finding and loading a model may download, before it does; `named_by` is as in `find_model`."""
    wanted = [options.model] if needs_download(options) else []
    wanted += [str(options.adapter)] if adapter_to_download(options) else []
    for name in wanted:
        text = f"{name} is not in the cache; asking the hub, to download it"
        tell(Note(text) if named_by is None else Download(f"{named_by} names its model: {text}"))


def _is_base(base: str | None, spec: ModelSpec, options: ModelOptions) -> bool:
    """Whether a model is the base that an adapter names, or could be; a directory may be named by any of its paths."""
    return base in (None, spec.id, options.model) or str(Path(base).expanduser().resolve()) == spec.id


def warn_without_chat(spec: ModelSpec, chat: Chat | None, tell: Tell) -> None:
    """Warn that a model has a chat template which the demonstrations do not use."""
    if chat is None and getattr(spec.tokenizer, "chat_template", None):
        tell(
            Warn(
                f"{spec.id} has a chat template, which only {option('chat')} uses: this model may expect conversations"
            )
        )


def load(spec: ModelSpec, tell: Tell) -> Engine:
    """Load a model's weights and choose its engine; warns of pickled weights."""
    with catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # reported as an event by `describe_engine`
        engine = load_model(spec)
    if spec.options.dtype == "auto" and engine.identity.dtype == "float32" and engine.device == "cpu":
        hint = "`deepthink doctor -m MODEL` measures what --dtype bfloat16 gains"
        tell(Detail(f"float32, as always on a processor unless {option('dtype')} says otherwise; {hint}"))
    if spec.has_pickled_weights():
        tell(
            Note(
                f"{spec.id}: its weights are a pickle, read with torch's safe loader; safetensors are safer and faster"
            )
        )
    return engine


def describe_engine(engine: Engine, tell: Tell, always: bool = False) -> None:
    """Report the loaded model and its engine; the engine as a note if it is not the fastest, or with `always`."""
    identity = engine.identity
    dequantized = "" if identity.gguf is None else "its weights dequantized to "
    adapter = "" if identity.adapter is None else f"with {identity.adapter} merged, "
    tell(Detail(f"loaded {identity.id}, {adapter}{dequantized}{identity.dtype} on {engine.device}"))
    if engine.warning:
        tell(Warn(engine.warning))
    else:
        text = engine.notice or engine.description
        tell(Note(text) if engine.notice or always else Detail(text))

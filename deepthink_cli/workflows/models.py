"""Find and load a model, and report events."""

from __future__ import annotations

from warnings import catch_warnings, simplefilter

from deepthink_cli.data.chat import Chat
from deepthink_cli.engine.base import Engine
from deepthink_cli.engine.choice import load_model
from deepthink_cli.engine.registry import check_engine
from deepthink_cli.model.opening import needs_download, open_model
from deepthink_cli.model.spec import ModelSpec
from deepthink_cli.options import ModelOptions
from deepthink_cli.workflows.events import Detail, Note, Tell, Warn


def find_model(options: ModelOptions, tell: Tell) -> ModelSpec:
    """Find a model, without its weights; reports a download before it starts."""
    check_engine(options.engine)
    if needs_download(options):
        tell(Note(f"downloading {options.model} from the hub"))
    return open_model(options)


def suggest_chat(spec: ModelSpec, chat: Chat | None, tell: Tell) -> None:
    """Report that a model has a chat template which the demonstrations do not use."""
    if chat is None and getattr(spec.tokenizer, "chat_template", None):
        tell(Note(f"{spec.id} has a chat template; --chat writes the demonstrations as the conversations it expects"))


def load(spec: ModelSpec, tell: Tell) -> Engine:
    """Load a model's weights and choose its engine; warns of pickled weights."""
    with catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # reported as an event by `describe_engine`
        engine = load_model(spec)
    if spec.has_pickled_weights():
        tell(
            Note(
                f"{spec.id}: its weights are a pickle, read with torch's safe loader; safetensors are safer and faster"
            )
        )
    return engine


def describe_engine(engine: Engine, tell: Tell, always: bool = False) -> None:
    """Report the loaded model and its engine; the engine as a note if it is not the fastest, or with `always`."""
    tell(Detail(f"loaded {engine.identity.id}, {engine.identity.dtype} on {engine.device}"))
    if engine.warning:
        tell(Warn(engine.warning))
    else:
        text = engine.notice or engine.description
        tell(Note(text) if engine.notice or always else Detail(text))

"""Requests that name a memory as their model, made into requests that vLLM's connector answers after it.

`vllm serve --middleware` imports the class by name. vLLM's objects are known by their attributes alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deepthink_cli.artifact.format import provenance_of
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.model.chat import turns_of
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.tokens import end_of_demonstrations
from deepthink_cli.plugins.vllm.settings import options_of, parse_served
from deepthink_cli.provenance import TokenizedDemonstrations

_REFUSED = {
    "prompt_logprobs": "would compute the demonstrations again, without the memory",
    "echo": "would compute the demonstrations again, without the memory",
    "use_beam_search": "gives its continuations no cache_salt",
    "cache_salt": "is that of the memory, and set by the server",
}


class Prompts:
    """The memories of a server by name, and the text that is written before a request's text for each memory."""

    def __init__(self, config: Any) -> None:
        self._model = config.model_config
        served = parse_served(config.kv_transfer_config.kv_connector_extra_config)
        self._memories = {each.name: (each.salt, provenance_of(each.header()).demonstrations) for each in served}
        self._lock = Lock()

    def rewritten(self, path: str, body: bytes) -> bytes:
        """The body of a request after its memory, with the memory's cache salt; the same body for any other model.

        Raises InputError for a request that cannot be answered after a memory.
        """
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            return body
        name = request.get("model") if isinstance(request, dict) else None
        if not isinstance(name, str) or name not in self._memories:
            return body
        for field, reason in _REFUSED.items():
            if request.get(field) not in (None, False):
                raise InputError(f"{field}: {reason}; omit it, or name the model itself")
        salt, shown = self._memories[name]
        return json.dumps({**request, **self._prepended(path, request, shown), "cache_salt": salt}).encode()

    def _prepended(self, path: str, request: Mapping[str, Any], shown: TokenizedDemonstrations) -> dict[str, Any]:
        if path == "/v1/completions":
            return {"prompt": self._prompt(request.get("prompt"), shown)}
        if path != "/v1/chat/completions":
            raise InputError(f"{path}: memories answer /v1/completions and /v1/chat/completions")
        if shown.chat is None:
            raise InputError(
                "the memory's demonstrations are no conversation: use /v1/completions, or think with --chat"
            )
        messages = request.get("messages")
        if not isinstance(messages, list):
            raise InputError("messages: must be a list")
        return {"messages": [*turns_of(shown, shown.chat), *messages]}

    def _prompt(self, prompt: Any, shown: TokenizedDemonstrations) -> Any:
        """The ids of the demonstrations and of a prompt, or of each of several; a prompt is a text or token ids."""
        if isinstance(prompt, str):
            with self._lock:  # a tokenizer cannot be used by two threads
                ids = end_of_demonstrations(self._tokenizer, shown).after(self._tokenizer, [prompt])[0]
            return [*shown.token_ids, *ids]
        if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
            return [*shown.token_ids, *prompt]
        if isinstance(prompt, list) and prompt:
            return [self._prompt(each, shown) for each in prompt]
        raise InputError("prompt: must be a text, token ids, or a list of such prompts")

    @cached_property
    def _tokenizer(self) -> Any:
        return open_model(options_of(self._model)).tokenizer


class NamedMemories:
    """ASGI middleware: a request whose `model` is the name of a memory is answered after it.

    Its prompt or messages follow the memory's demonstrations. Requests that cannot be answered so get status 400. The
    memories are read when the server starts.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._prompts: Prompts | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or begin."""
        if scope["type"] == "lifespan":
            self._prompts = Prompts(scope["app"].state.engine_client.vllm_config)
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        assert self._prompts is not None
        try:
            body = await Request(scope, receive).body()
            body = await asyncio.to_thread(self._prompts.rewritten, scope["path"], body)
        except ClientDisconnect:
            return
        except DeepThinkError as error:  # in the form of OpenAI's
            described = {"message": str(error), "type": "BadRequestError", "param": None, "code": 400}
            await JSONResponse({"error": described}, 400)(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"content-length"]
        scope = {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return first.pop() if first else await receive()

        await self._app(scope, replayed, send)

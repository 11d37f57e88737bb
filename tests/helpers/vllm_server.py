"""A vLLM server of memories in a process of its own, asked over the loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from deepthink_cli.plugins.vllm.settings import ServerCommand

_SMALL = ("--enforce-eager", "--max-model-len", "512", "--block-size", "32", "--host", "127.0.0.1")
_SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


class VllmServer:
    """Runs the printed command, inside a `with` block; `log` is what the server writes."""

    def __init__(self, command: ServerCommand, log: Path, *more: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.address, self.log = f"http://127.0.0.1:{port}", log
        # The program `vllm` of the package vllm-cpu does not start: it asks for the version of the package vllm.
        start = [
            *command.words[:2],
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            *command.words[4:],
        ]
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [*start, *_SMALL, "--port", port, *more],
                stdout=file,
                stderr=file,
                env=os.environ | _SETTINGS,
                start_new_session=True,
            )

    def starts(self) -> bool:
        """Whether the server answers, once it does or has ended."""
        while self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=10):
                    return True
            except OSError:
                time.sleep(0.2)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End the server and its workers at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, path: str, **body: Any) -> tuple[int, Any]:
        """Send one request; returns the status and the answer."""
        request = urllib.request.Request(
            self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def scores(self, model: str, prompt: Sequence[int], ids: Sequence[int], **more: Any) -> list[float]:
        """The log-probability of each of the ids after the prompt of a model or a memory."""
        status, answer = self.ask(
            "/v1/completions",
            model=model,
            prompt=list(prompt),
            max_tokens=1,
            temperature=0,
            logprobs=len(ids),
            **{"logprob_token_ids": list(ids), "return_tokens_as_token_ids": True, **more},
        )
        assert status == 200, answer
        (found,) = answer["choices"][0]["logprobs"]["top_logprobs"]
        return [found[f"token_id:{token}"] for token in ids]

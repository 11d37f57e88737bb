"""A real vLLM on the processor answers after memories as our engine does; `make serving` installs it."""

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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from conftest import TEMPLATE, write_reviews

from deepthink_cli.plugins.vllm.settings import ServerCommand

pytest.importorskip("vllm", reason="vLLM is not installed: run `make serving`", exc_type=ImportError)

if TYPE_CHECKING:
    from deepthink_cli.engine.base import Engine

from helpers.families import write_model
from helpers.folders import memory_and_folder, scores_in

from deepthink_cli import load_memory, load_model
from deepthink_cli.cli.main import run
from deepthink_cli.model.tokens import TokenizedQuery, encode
from deepthink_cli.plugins.vllm.settings import server_command

WITHIN = 1e-3  # nats
WIDE = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
QUERIES = [
    "Review: a kind film\nSentiment:",
    "Review: far too loud, and I left\nSentiment:",
    "Review: fine\nSentiment:",
]


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
        server = ["-m", "vllm.entrypoints.openai.api_server", "--model"]
        start = [*command.words[:2], sys.executable, *server, *command.words[4:]]
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


def think(path: Path, *options: str, model: str = "pocket") -> Path:
    """A memory of four reviews."""
    demos = write_reviews(path.with_suffix(".jsonl"))
    words = ["think", str(demos), "-m", model, "--template", TEMPLATE, *options, "-q", "-o", str(path)]
    assert run(words) == 0
    return path


def prompts(engine: Engine, texts: Sequence[str] = QUERIES) -> list[list[int]]:
    return encode(engine.tokenizer, texts, special=False)


def scored(engine: Engine, path: Path | None, prompt: Sequence[int], ids: Sequence[int]) -> list[float]:
    """The log-probability of each of the ids after the prompt of a memory, by our engine."""
    query = TokenizedQuery(tuple(prompt), tuple((token,) for token in ids))
    if path is None:
        return list(engine.observe(None, engine.plan([query]))[0].sums)
    return engine.score([load_memory(path)], engine.plan([query]))[0][0]


def farthest(left: Sequence[float], right: Sequence[float]) -> float:
    return max(abs(one - other) for one, other in zip(left, right, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memories")


@pytest.fixture(scope="module")
def memories(folder: Path) -> dict[str, Path]:
    """Memories of the same demonstrations, made in several ways."""
    made = {
        "continued": think(folder / "continued.safetensors", "-T", "4", "--eta", "0.3"),
        "restarted": think(folder / "restarted.safetensors", "-T", "3", "--eta", "0.2", "--positions", "restarted"),
        "tuned": think(folder / "tuned.safetensors", "--technique", "ct-kv"),
        "composed": think(folder / "composed.safetensors", "--technique", "composed", "-T", "1"),
    }
    rows = folder / "int8.safetensors"
    assert run(["quantize", str(made["continued"]), "--to", "int8", "-q", "-o", str(rows)]) == 0
    return {**made, "int8": rows}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_model("pocket", dtype="float32")


@pytest.fixture(scope="module")
def server(memories: dict[str, Path], folder: Path) -> Iterator[VllmServer]:
    with VllmServer(server_command(list(memories.values())), folder / "log.txt") as started:
        assert started.starts(), started.log.read_text()
        yield started


@pytest.mark.parametrize("name", ["continued", "restarted", "tuned", "composed", "int8"])
def test_scores_after_a_memory_are_ours(
    server: VllmServer, engine: Engine, memories: dict[str, Path], name: str
) -> None:
    ids = [5, 17, 301, 4000]
    for prompt in prompts(engine):
        ours = scored(engine, memories[name], prompt, ids)
        assert farthest(ours, scored(engine, None, [0, *prompt], ids)) > 10 * WITHIN
        for _ in range(2):  # the second time vLLM has most of it in its own cache
            assert farthest(server.scores(name, prompt, ids), ours) < WITHIN


def test_a_plain_request_for_the_same_tokens_stays_plain(
    server: VllmServer, engine: Engine, memories: dict[str, Path]
) -> None:
    ids, (prompt, *_) = [5, 17, 301], prompts(engine)
    whole = [*load_memory(memories["continued"]).provenance.demonstrations.token_ids, *prompt]  # type: ignore[union-attr]
    plain = scored(engine, None, whole, ids)
    assert farthest(server.scores("continued", prompt, ids), plain) > 10 * WITHIN
    assert farthest(server.scores("pocket", whole, ids), plain) < WITHIN
    assert farthest(server.scores("continued", prompt, ids), plain) > 10 * WITHIN


def test_clients_of_several_memories_at_once_get_what_each_gets_alone(
    server: VllmServer, engine: Engine, memories: dict[str, Path]
) -> None:
    ids = [5, 17, 301]
    asked = [(name, prompt) for name in (*memories, "pocket") for prompt in prompts(engine)] * 3
    expected = [scored(engine, memories.get(name), prompt, ids) for name, prompt in asked]
    with ThreadPoolExecutor(16) as clients:
        found = list(clients.map(lambda each: server.scores(*each, ids), asked))
    assert max(map(farthest, found, expected)) < WITHIN


@pytest.mark.parametrize("changes", [{}, {"prompt_logprobs": 1}], ids=["other demonstrations", "prompt_logprobs"])
def test_a_salt_does_not_give_a_memory_to_another_prompt(
    server: VllmServer, engine: Engine, memories: dict[str, Path], changes: dict[str, object]
) -> None:
    (memory,) = server_command([memories["restarted"]]).memories
    shown = load_memory(memories["restarted"]).provenance.demonstrations.token_ids  # type: ignore[union-attr]
    ids, (prompt, *_) = [5, 17, 301], prompts(engine)
    wrong = [*shown, *prompt] if changes else [*shown[:-1], 7, *prompt]
    status, _ = server.ask("/v1/completions", model="pocket", prompt=wrong, cache_salt=memory.salt, **changes)
    assert status == 500
    assert "is refused" in server.log.read_text()
    ours = scored(engine, memories["restarted"], prompt, ids)
    assert farthest(server.scores("pocket", [*shown, *prompt], ids, cache_salt=memory.salt), ours) < WITHIN


def test_a_file_that_is_replaced_is_not_served_and_a_killed_server_starts_again(tmp_path: Path, engine: Engine) -> None:
    path, ids, (prompt, *_) = tmp_path / "mem.safetensors", [5, 17, 301], prompts(engine)
    think(path, "-T", "3", "--eta", "0.3")
    ours, command, first = scored(engine, path, prompt, ids), server_command([path]), path.read_bytes()
    with VllmServer(command, tmp_path / "log.txt") as server:
        assert server.starts(), server.log.read_text()
        think(path, "-T", "1")
        assert farthest(server.scores("mem", prompt, ids), ours) < WITHIN
        server.kill()
        with pytest.raises(OSError, match="refused"):
            server.scores("mem", prompt, ids)
    with VllmServer(command, tmp_path / "log.txt") as again:
        assert not again.starts()
        assert f"{path}: another memory than when the server's command was written" in again.log.read_text()
    path.write_bytes(first)
    with VllmServer(command, tmp_path / "log.txt") as again:
        assert again.starts(), again.log.read_text()
        assert farthest(again.scores("mem", prompt, ids), ours) < WITHIN


@pytest.mark.parametrize(
    ("family", "windows"),
    [("llama", {}), ("mistral", {"sliding_window": 16}), ("gemma3_text", {"sliding_window": 16})],
    ids=["no windows", "windows", "windows in some layers"],
)
def test_grouped_heads_and_windows_are_those_of_our_engine(
    family: str, windows: dict[str, int], tmp_path: Path
) -> None:
    model = write_model(tmp_path / "model", family, **WIDE, **windows)
    path = think(tmp_path / "mem.safetensors", "-T", "3", "--eta", "0.3", model=str(model))
    ours, ids = load_model(str(model), dtype="float32"), [5, 17, 200]
    with VllmServer(server_command([path]), tmp_path / "log.txt") as server:
        assert server.starts(), server.log.read_text()
        for prompt in prompts(ours):
            assert farthest(server.scores("mem", prompt, ids), scored(ours, path, prompt, ids)) < WITHIN


def test_predict_and_eval_score_with_vllm_as_with_our_engine(tmp_path: Path) -> None:
    path = think(tmp_path / "mem.safetensors", "-T", "3", "--eta", "0.3", "--keep", "1,3")

    def printed(command: str, *options: str) -> list[Any]:
        words = [command, str(path), str(path.with_suffix(".jsonl")), *options]
        program = [sys.executable, "-m", "deepthink_cli", *words]
        environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"}
        done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
        return [json.loads(line) for line in done.stdout.splitlines()]

    ours, theirs = (printed("predict", "--engine", name) for name in ("packed", "vllm"))
    for row, other in zip(ours, theirs, strict=True):
        assert farthest(list(row["scores"].values()), list(other["scores"].values())) < WITHIN
    (ours,), (theirs,) = (printed("eval", "--json", "--engine", name) for name in ("packed", "vllm"))
    assert [each["accuracy"] for each in ours["results"]] == [each["accuracy"] for each in theirs["results"]]


def test_a_folder_is_labelled_by_a_vllm_on_ray_as_by_our_engine(tmp_path: Path) -> None:
    memory, inputs = memory_and_folder(tmp_path, files=2)
    for name, options in (("ours", ["--workers", "1"]), ("theirs", ["--engine", "vllm", "--workers", "ray"])):
        words = ["predict", memory, str(inputs), "-o", str(tmp_path / f"{name}.parquet"), "-q", *options]
        program = [sys.executable, "-m", "deepthink_cli", *words]
        subprocess.run(program, check=True, env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"})
    assert farthest(*(scores_in(tmp_path / f"{name}.parquet") for name in ("theirs", "ours"))) < WITHIN


def test_a_trained_model_and_its_conversations_are_served(soak: Any, tmp_path: Path) -> None:
    from real_model import FOLDER, real_model

    if not (FOLDER.is_dir() or soak.long):
        pytest.skip("downloads SmolLM2-135M-Instruct (93 MB): run with --soak")
    model = str(real_model())
    rows = think(tmp_path / "rows.safetensors", "-T", "4", "--eta", "0.1", model=model)
    chat = think(tmp_path / "chat.safetensors", "-T", "2", "--eta", "0.1", "--chat", model=model)
    ours, ids = load_model(model, dtype="float32"), [5, 17, 301, 4000]
    with VllmServer(server_command([rows, chat]), tmp_path / "log.txt") as server:
        assert server.starts(), server.log.read_text()
        for prompt in prompts(ours):
            assert farthest(server.scores("rows", prompt, ids), scored(ours, rows, prompt, ids)) < WITHIN
        turn = {"role": "user", "content": "Review: a kind film"}
        status, answer = server.ask("/v1/chat/completions", model="chat", messages=[turn], max_tokens=1, temperature=0)
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"]

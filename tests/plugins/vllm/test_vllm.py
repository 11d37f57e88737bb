"""Memories for vLLM without vLLM: the command, what is refused, the heads of a rank, and the middleware."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, MutableMapping
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import write_reviews
from helpers.chats import write_chat_model
from helpers.imports import HEAVY, modules_after
from helpers.said import Captured, json_of
from torch import Tensor

from deepthink_cli import Memory, Method, load_memory, load_model, think
from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.engine.base import Engine
from deepthink_cli.errors import DeepThinkError, InputError
from deepthink_cli.model.boundary import encode
from deepthink_cli.model.opening import open_model
from deepthink_cli.model.options import ModelOptions
from deepthink_cli.model.tokens import TokenizedQuery, tokenize_demonstrations
from deepthink_cli.plugins.vllm.engine import MOST_IDS, VllmEngine, nodes
from deepthink_cli.plugins.vllm.requests import NamedMemories
from deepthink_cli.plugins.vllm.settings import (
    ServerCommand,
    block_size,
    check_fits,
    check_server,
    check_version,
    heads_of_rank,
    parse_served,
    refusal,
    server_command,
)

Thought = Callable[..., Path]


def settings(command: ServerCommand) -> dict[str, Any]:
    """The connector's own settings in a command."""
    transfer = json.loads(command.words[command.words.index("--kv-transfer-config") + 1])
    found: dict[str, Any] = transfer["kv_connector_extra_config"]
    return found


def vllm_config(command: ServerCommand, **changes: Any) -> Any:
    """What a server that was started by a command has as its configuration, as far as it is looked at."""
    model = command.words[4]
    of_model = {"model": model, "tokenizer": model, "revision": None, "trust_remote_code": False, "hf_overrides": {}}
    usual = {"quantization": None, "cache_dtype": "auto", "load_format": "auto", "pipeline": 1, "policy": "fail"}
    chosen = {**usual, **changes}
    ranks = {"decode_context_parallel_size": 1, "prefill_context_parallel_size": 1}
    return SimpleNamespace(
        model_config=SimpleNamespace(**of_model, dtype=torch.float32, quantization=chosen["quantization"]),
        cache_config=SimpleNamespace(cache_dtype=chosen["cache_dtype"]),
        parallel_config=SimpleNamespace(pipeline_parallel_size=chosen["pipeline"], **ranks),
        load_config=SimpleNamespace(load_format=chosen["load_format"]),
        speculative_config=None,
        kv_transfer_config=SimpleNamespace(
            kv_connector_extra_config=settings(command), kv_load_failure_policy=chosen["policy"]
        ),
    )


def caches(*names: str) -> Any:
    """vLLM's caches with specifications of these names."""
    specs = [type(name, (), {"block_size": 16})() for name in names]
    return SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec) for spec in specs])


def answered(app: Any, path: str, body: bytes, config: Any) -> tuple[bytes | None, Any]:
    """The body that a server behind the middleware gets, if it gets one, and what the middleware itself answers."""
    seen: list[bytes] = []
    sent: list[Any] = []

    async def server(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        seen.append((await receive())["body"])
        assert dict(scope["headers"])[b"content-length"] == str(len(seen[0])).encode()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    state = SimpleNamespace(engine_client=SimpleNamespace(vllm_config=config))
    begun, request = {"type": "lifespan"}, {"type": "http", "method": "POST", "path": path, "headers": []}
    middleware = app(server)
    for scope in (begun, request):
        asyncio.run(middleware({**scope, "app": SimpleNamespace(state=state)}, receive, send))
    return (seen[0] if seen else None), (json.loads(sent[1]["body"])["error"]["message"] if sent else None)


def test_the_command_names_the_model_and_the_memories_and_is_printed_without_torch(
    thought_of: Thought, tmp_path: Path, capsys: Captured
) -> None:
    path = thought_of(tmp_path / "reviews.safetensors", "llama", "-T", "2")
    other = thought_of(tmp_path / "other reviews.safetensors", "llama", "-T", "1")
    header = read_header(path)
    words = ["serve-config", str(path), str(other)]
    assert not modules_after([*words, "-q"]) & HEAVY
    found = json_of(capsys, *words, "--json")
    assert found["command"][:5] == ["env", "PYTHONSAFEPATH=1", "vllm", "serve", header.metadata.model.id]
    assert found["memories"][0] == {
        "name": "reviews",
        "file": str(path),
        "cache_salt": f"deepthink:{header.metadata.sha256}:2",
    }
    served = parse_served(settings(server_command([path, other])))
    assert [(each.name, each.iteration) for each in served] == [("reviews", 2), ("other reviews", 1)]


def test_memories_that_cannot_be_served_are_refused_at_once(
    thought_of: Thought, tmp_path: Path, capsys: Captured
) -> None:
    mine = thought_of(tmp_path / "mine.safetensors", "llama", "-T", "1")
    other = thought_of(tmp_path / "other.safetensors", "qwen3", "-T", "1")
    assert run(["serve-config", str(mine), str(other), str(tmp_path / "none")]) == 2
    lines = capsys.readouterr().err
    assert f"{other}: made by another model: architecture and configuration and weights differ" in lines
    assert f"{tmp_path / 'none'}: no such file" in lines
    assert run(["serve-config", str(mine), "--at", "all"]) == 2
    with pytest.raises(InputError, match="mine names two of them"):
        server_command([mine, mine])


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0"])
def test_a_version_of_vllm_that_was_not_tested_is_refused(version: str) -> None:
    check_version("0.32.0")
    check_version("0.32.4+cpu")
    with pytest.raises(DeepThinkError, match=r"not tested; use 0\.32 or later, before 0\.33"):
        check_version(version)


def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(q k' / sqrt(d)) v, by the definition, for heads (H, n, d) of which several may share keys."""
    groups = len(queries) // len(keys)
    keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
    return (queries @ keys.transpose(1, 2) / queries.shape[2] ** 0.5).softmax(2) @ values


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_ranks_that_attend_with_their_heads_give_what_all_heads_give(ranks: int) -> None:
    draw = torch.Generator().manual_seed(0)
    queries = torch.randn(8, 3, 4, dtype=torch.float64, generator=draw)
    keys, values = torch.randn(2, 4, 5, 4, dtype=torch.float64, generator=draw)
    own = [heads_of_rank(4, ranks, rank) for rank in range(ranks)]
    parts = [attention(part, keys[heads], values[heads]) for part, heads in zip(queries.chunk(ranks), own, strict=True)]
    assert torch.equal(torch.cat(parts), attention(queries, keys, values))


def test_a_memory_of_other_layers_or_heads_than_the_servers_does_not_fit(thought_of: Thought, tmp_path: Path) -> None:
    memory = load_memory(thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1"))  # 2 layers of 2 heads of 8
    check_fits(memory, heads_of_rank(2, 2, 1), [(1, 8)] * 2, "mem")
    with pytest.raises(InputError, match="mem: 2 layers, the server has 3 with keys and values"):
        check_fits(memory, slice(0, 2), [(2, 8)] * 3, "mem")
    with pytest.raises(InputError, match="mem: layer 1 has 2 heads of 8 values on a rank, the server 1 of 16"):
        check_fits(memory, slice(0, 2), [(2, 8), (1, 16)], "mem")


def test_a_server_that_computes_otherwise_is_refused_with_all_reasons(thought_of: Thought, tmp_path: Path) -> None:
    command = server_command([thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1")])
    check_server(command.memories, vllm_config(command), pytest.fail)
    changes = {
        "cache_dtype": "fp8",
        "quantization": "awq",
        "load_format": "dummy",
        "policy": "recompute",
        "pipeline": 2,
    }
    with pytest.raises(InputError) as refused:
        check_server(command.memories, vllm_config(command, **changes), pytest.fail)
    named = ("kv-cache-dtype fp8", "quantization awq", "load-format dummy", "pipeline-parallel-size 2", "recompute")
    assert all(any(name in message for message in refused.value.messages) for name in named)


@pytest.mark.parametrize("names", [(), ("MLAAttentionSpec",), ("FullAttentionSpec", "MambaSpec")])
def test_caches_that_do_not_hold_keys_and_values_by_heads_are_refused_by_name(names: tuple[str, ...]) -> None:
    assert block_size(caches("SlidingWindowSpec")) == 16
    with pytest.raises(InputError, match=f"caches of {', '.join(names) or 'no kind'}"):
        block_size(caches(*names))


def test_a_server_warns_of_another_dtype_than_the_memorys(thought_of: Thought, tmp_path: Path) -> None:
    path = thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1", "--dtype", "bfloat16")
    command, warnings = server_command([path]), list[str]()
    check_server(command.memories, vllm_config(command), warnings.append)
    assert warnings == [f"{path} was made in bfloat16 and is served in float32: scores differ"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"prompt_token_ids": [1, 2, 4, 5]}, "does not begin with the 3 tokens"),
        ({"prompt_token_ids": None}, "does not begin with the 3 tokens"),
        ({"prompt_token_ids": [1, 2, 3]}, "a query must follow"),
        ({"sampling_params": None}, "memories are for completions"),
        ({"sampling_params": SimpleNamespace(prompt_logprobs=0)}, "would compute the demonstrations again"),
        ({"lora_request": object()}, "a LoRA adapter is another model"),
    ],
)
def test_a_request_that_vllm_would_answer_without_the_memory_is_refused(
    changes: dict[str, Any], reason: str | None
) -> None:
    request = {"prompt_token_ids": [1, 2, 3, 4], "sampling_params": SimpleNamespace(prompt_logprobs=None)}
    found = refusal(SimpleNamespace(**{**request, "lora_request": None, **changes}), [1, 2, 3])
    assert found is None if reason is None else reason in str(found)


def test_requests_for_a_memory_follow_its_demonstrations_and_others_stay_as_they_are(
    thought_of: Thought, tmp_path: Path
) -> None:
    path = thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1")
    command, shown = server_command([path]), read_header(path).metadata.demonstrations.token_ids
    config, text = vllm_config(command), "Review: <s> kind\nSentiment:"
    own = encode(load_model(command.words[4]).tokenizer, [text], special=False)[0]
    for prompt, expected in (
        (text, [*shown, *own]),
        ([7, 8], [*shown, 7, 8]),
        ([text, [7]], [[*shown, *own], [*shown, 7]]),
    ):
        body = json.dumps({"model": "mem", "prompt": prompt, "max_tokens": 3}).encode()
        seen, _ = answered(NamedMemories, "/v1/completions", body, config)
        salt = command.memories[0].salt
        assert json.loads(seen or b"") == {"model": "mem", "prompt": expected, "max_tokens": 3, "cache_salt": salt}
    for body in (b'{"model":  "other"}', b"not JSON", b"[1]", b'{"model": ["mem"]}'):
        assert answered(NamedMemories, "/v1/completions", body, config) == (body, None)


def test_a_conversation_follows_the_turns_of_the_demonstrations(tmp_path: Path) -> None:
    model, path = write_chat_model(tmp_path / "model"), tmp_path / "mem.safetensors"
    words = ["think", str(write_reviews(tmp_path / "demos.jsonl")), "-m", str(model), "-T", "1", "-q"]
    assert run([*words, "--chat", "--system", "Be brief.", "-o", str(path)]) == 0
    asked = [{"role": "user", "content": "Review: kind"}]
    command = server_command([path])
    body = json.dumps({"model": "mem", "messages": asked}).encode()
    seen, _ = answered(NamedMemories, "/v1/chat/completions", body, vllm_config(command))
    messages = json.loads(seen or b"")["messages"]
    assert [turn["role"] for turn in messages] == ["system", *["user", "assistant"] * 4, "user"]
    assert messages[-1:] == asked
    text = load_model(str(model)).tokenizer.apply_chat_template(messages[:-1], tokenize=False)
    assert text.startswith("<|im_start|>system\nBe brief.")


@pytest.mark.parametrize(
    ("path", "changes", "message"),
    [
        ("/v1/completions", {"echo": True}, "echo: would compute the demonstrations again"),
        ("/v1/completions", {"cache_salt": "mine"}, "cache_salt: is that of the memory"),
        ("/v1/completions", {"prompt": [True]}, "prompt: must be a text"),
        ("/v1/chat/completions", {"messages": []}, "the memory's demonstrations are no conversation"),
        ("/v1/embeddings", {}, "/v1/embeddings: memories answer /v1/completions"),
    ],
)
def test_a_request_for_a_memory_that_would_be_answered_without_it_is_refused(
    thought_of: Thought, tmp_path: Path, path: str, changes: dict[str, Any], message: str
) -> None:
    command = server_command([thought_of(tmp_path / "mem.safetensors", "llama", "-T", "1")])
    body = json.dumps({"model": "mem", "prompt": "a", **changes}).encode()
    seen, refused = answered(NamedMemories, path, body, vllm_config(command))
    assert seen is None
    assert refused.startswith(message)


@pytest.mark.parametrize("memories", [None, [{"name": "a"}]])
def test_settings_that_were_not_printed_by_the_command_are_refused(memories: Any) -> None:
    with pytest.raises(InputError, match=r"kv_connector_extra_config: .*use deepthink serve-config"):
        parse_served({"memories": memories})


class Asked(VllmEngine):
    """Asks another engine in place of vLLM: every request is a query whose candidates are single tokens."""

    other: Engine
    memory: Memory

    def _log_probabilities(self, prompts: Any, following: Any) -> Iterator[dict[int, float]]:
        for prompt, ids in zip(prompts, following, strict=True):
            query = TokenizedQuery(tuple(prompt["prompt_token_ids"][self.memory.length :]), tuple((t,) for t in ids))
            ((scores,),) = self.other.score([self.memory], self.other.plan([query]))
            yield dict(zip(ids, scores, strict=True))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.vllm.engine.find_spec", lambda name: name)


@pytest.mark.usefixtures("installed")
def test_candidates_of_any_number_of_tokens_are_scored_by_a_tree_of_requests(llama: Engine, reviews: Any) -> None:
    shown = tokenize_demonstrations(llama.tokenizer, reviews)
    *_, memory = think(llama, shown, Method(2))
    engine = Asked(open_model(ModelOptions.checked(model=llama.identity.id)))
    engine.other, engine.memory = llama, memory
    answers = ((5,), (5, 6, 7), (5, 6, 8), (9, 6))
    queries = [TokenizedQuery((11, 12), answers), TokenizedQuery((13,), ((14, 15), (16,)))]
    assert sum(len(list(nodes(query.answers))) for query in queries) == 6
    (found,), (ours,) = (each.score([memory], each.plan(queries)) for each in (engine, llama))
    scores, expected = (torch.tensor([*chain(*sums)]) for sums in (found, ours))
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)


@pytest.mark.usefixtures("installed")
def test_vllm_serves_no_parts_of_a_memory() -> None:
    engine = VllmEngine(open_model(ModelOptions.checked(model="pocket")))
    with pytest.raises(InputError, match="vLLM serves whole memories; use engine packed or padded with nearest"):
        engine.score_after([], engine.plan([]))


def test_no_request_asks_for_more_tokens_than_vllm_gives() -> None:
    found = list(nodes([(token,) for token in range(3 * MOST_IDS)]))
    assert [len(ids) for _, ids in found] == [MOST_IDS] * 3
    assert {token for _, ids in found for token in ids} == set(range(3 * MOST_IDS))


@pytest.mark.usefixtures("installed")
def test_vllm_reads_no_demonstrations(capsys: Captured, demos: Path, tmp_path: Path) -> None:
    assert run(["think", str(demos), "--engine", "vllm", "-q", "-o", str(tmp_path / "mem.safetensors")]) == 2
    assert "vLLM does not read demonstrations: use deepthink think --engine packed or padded" in capsys.readouterr().err


def test_the_engine_says_that_vllm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepthink_cli.plugins.vllm.engine.find_spec", lambda name: None)
    with pytest.raises(DeepThinkError, match="engine vllm: vLLM is not installed"):
        VllmEngine(open_model(ModelOptions.checked(model="pocket")))

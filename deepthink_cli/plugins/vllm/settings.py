"""A vLLM server with memories: its command and settings, and what is checked before it answers.

All of it is known without vLLM and without torch; of vLLM's objects, only their attributes are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.artifact.format import Header, one_iteration, provenance_of, read_header
from deepthink_cli.engine.opening import find_model
from deepthink_cli.errors import DeepThinkError, InputError, Problems, installing, option
from deepthink_cli.events import silent
from deepthink_cli.io.processes import SAFE_PATH
from deepthink_cli.model.opening import locate
from deepthink_cli.model.options import POCKET, ModelOptions
from deepthink_cli.provenance import ModelIdentity, check_model

if TYPE_CHECKING:
    from deepthink_cli.artifact.format import Header
    from deepthink_cli.memory import Memory

TESTED = ((0, 32), (0, 33))  # vLLM's versions: the first one, and the one before which they end
SALT = "deepthink:"  # with which the cache salt of every memory begins
_CONNECTOR = {"kv_connector": "MemoryConnector", "kv_connector_module_path": "deepthink_cli.plugins.vllm.connector"}
_MIDDLEWARE = "deepthink_cli.plugins.vllm.requests.NamedMemories"


OFFERED: dict[str, Memory] = {}  # by salt: memories of this process that a vLLM in it serves without files


def offer(memory: Memory) -> str:
    """Have a memory served, with its provenance; returns the `cache_salt` of its requests."""
    salt = f"{SALT}offered:{len(OFFERED)}"
    OFFERED[salt] = memory
    return salt


@dataclass(frozen=True)
class Served:
    """One iteration of a memory file that a server has; `name` is the model's name in requests.

    A file with another digest than `sha256` is not served.
    """

    name: str
    path: str
    iteration: int
    sha256: str

    @property
    def salt(self) -> str:
        """The `cache_salt` of the memory's requests, by which vLLM keeps their keys and values apart from others."""
        return f"{SALT}{self.sha256}:{self.iteration}"

    def header(self) -> Header:
        """The header of the file; raises InputError if it is not the memory that was named."""
        header = read_header(self.path)
        if header.metadata.sha256 != self.sha256:
            raise InputError(
                f"{self.path}: another memory than when the server's command was written; run deepthink serve-config "
                "again"
            )
        return header


@dataclass(frozen=True)
class ServerCommand:
    """`vllm serve` of a model with memories: the words of the command, and the memories."""

    words: list[str]
    memories: list[Served]


def server_command(paths: Sequence[Path], at: str = "last") -> ServerCommand:
    """The command that serves one iteration of each file, all made by one model, from where it was then.

    Only the headers of the files are read. Raises InputError for files that cannot be served together, or by vLLM.
    """
    problems, headers = Problems(), list[Header]()
    for path in paths:
        with problems.collected():
            header = read_header(path)
            check_computed(header.metadata.model, header.path)
            check_model(provenance_of(header), (headers or [header])[0].metadata.model, str(path))
            headers.append(header)
    problems.raise_any()
    resolved = [(Path(header.path), header) for header in headers]
    memories = [
        Served(path.stem, str(path.resolve()), one_iteration(header, at), header.metadata.sha256)
        for path, header in resolved
    ]
    made_by = headers[0].metadata.model
    names = [made_by.id, *(memory.name for memory in memories)]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"memories: {', '.join(doubled)} names two of them, or one and the model; rename a file")
    source = locate(ModelOptions.checked(model=POCKET)).source if made_by.id == POCKET else made_by.id
    revision = ["--revision", made_by.revision] if made_by.revision else []
    words = [
        *("env", *(f"{name}={value}" for name, value in SAFE_PATH.items()), "vllm", "serve", source, *revision),
        *("--served-model-name", *names),
        *("--dtype", made_by.dtype, "--middleware", _MIDDLEWARE),
        *("--kv-transfer-config", json.dumps(transfer_config(memories), ensure_ascii=False)),
    ]
    return ServerCommand(words, memories)


def transfer_config(memories: Sequence[Served]) -> dict[str, Any]:
    """vLLM's `kv_transfer_config` with the connector and its memories."""
    return {
        **_CONNECTOR,
        "kv_role": "kv_consumer",
        "kv_connector_extra_config": {"memories": list(map(asdict, memories))},
    }


def parse_served(settings: Mapping[str, Any]) -> list[Served]:
    """The memories of `kv_connector_extra_config`; raises InputError for settings of another command."""
    try:
        return [Served(**each) for each in settings["memories"]]
    except (KeyError, TypeError) as error:
        raise InputError("kv_connector_extra_config: not as printed; use deepthink serve-config") from error


def check_computed(model: ModelIdentity, name: str) -> None:
    """Raise InputError, prefixed with `name`, for a form of a model that vLLM computes in another way."""
    for field in ("gguf", "quantize"):
        if value := getattr(model, field):
            raise InputError(
                f"{name}: made with {option(field)} {value}, and vLLM computes such a model in another way; use "
                "deepthink serve, or another engine"
            )


_SPECS = ("FullAttentionSpec", "SlidingWindowSpec")  # vLLM's names of caches that hold keys and values by heads


def check_version(version: str) -> None:
    """Raise DeepThinkError unless this version of vLLM was tested: its interface for connectors changes."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    first, end = TESTED
    if not first <= numbers < end:
        tested, untested = ("{}.{}".format(*each) for each in TESTED)
        raise DeepThinkError(
            f"vLLM {version}: not tested; use {tested} or later, before {untested}: {installing('vllm')}"
        )


def block_size(caches: Any) -> int:
    """Tokens of a block of vLLM's cache; raises InputError unless it holds every layer's keys and values by heads."""
    specs = [group.kv_cache_spec for group in caches.kv_cache_groups]
    names = [type(spec).__name__ for spec in specs]
    if len(specs) != 1 or names[0] not in _SPECS:
        raise InputError(
            f"vLLM has caches of {', '.join(names) or 'no kind'} for this model, which do not hold every layer's keys "
            "and values by heads; use deepthink serve"
        )
    size: int = specs[0].block_size
    return size


def heads_of_rank(heads: int, ranks: int, rank: int) -> slice:
    """The key-value heads of one rank of a tensor-parallel model: its share, or a head that several ranks have.

    vLLM divides heads in the same way; `ranks` divides `heads`, or `heads` divides `ranks`.
    """
    share = max(1, heads // ranks)
    first = rank * heads // ranks
    return slice(first, first + share)


def check_fits(memory: Memory, heads: slice, shapes: Sequence[tuple[int, int]], name: str) -> None:
    """Raise InputError unless a memory has as many layers as vLLM, with its (kv_heads, head_dim) on this rank."""
    if len(shapes) != len(memory.keys):
        raise InputError(
            f"{name}: {len(memory.keys)} layers, the server has {len(shapes)} with keys and values; serve the model "
            "alone, without a draft model, pipeline stages or layers of other kinds"
        )
    for layer, (keys, values, shape) in enumerate(zip(memory.keys, memory.values, shapes, strict=True)):
        for tensor in (keys, values):
            ours = (tensor[heads].shape[0], tensor.shape[2])
            if ours != shape:
                raise InputError(
                    f"{name}: layer {layer} has {ours[0]} heads of {ours[1]} values on a rank, the server "
                    f"{shape[0]} of {shape[1]}; it computes this model in another way: use deepthink serve"
                )


def refusal(request: Any, token_ids: Sequence[int] | None) -> str | None:
    """Why vLLM's request for a memory with these demonstration tokens cannot be answered; None if it can."""
    if token_ids is None:
        return "its cache_salt is that of a memory that is not served"
    prompt = request.prompt_token_ids or ()
    length = len(token_ids)
    if list(prompt[:length]) != list(token_ids):
        return f"its prompt does not begin with the {length} tokens of the memory's demonstrations"
    if len(prompt) == length:
        return "its prompt ends with the demonstrations; a query must follow"
    parameters = request.sampling_params
    if parameters is None:
        return "it is not for a text: memories are for completions"
    if parameters.prompt_logprobs is not None:
        return "prompt_logprobs would compute the demonstrations again, without the memory"
    if request.lora_request is not None:
        return "a LoRA adapter is another model than that of the memory"
    return None


def check_server(memories: Sequence[Served], config: Any, warn: Callable[[str], None]) -> list[Header]:
    """The headers of memories that vLLM, configured so, can serve; raises InputError with all that prevents it.

    Warns where the compute dtype is not the memory's. The model's weights are read, to compare their digest.
    """
    problems = Problems()
    problems.add(*_unsuited(config))
    headers = []
    for memory in memories:
        with problems.collected():
            header = memory.header()
            check_computed(header.metadata.model, header.path)
            headers.append(header)
    problems.raise_any()
    if not memories:
        return []
    identity = find_model(options_of(config.model_config), silent).identify()
    for memory, header in zip(memories, headers, strict=True):
        with problems.collected():
            check_model(provenance_of(header), identity, memory.path)
            if (made_in := header.metadata.model.dtype) != identity.dtype:
                warn(f"{memory.path} was made in {made_in} and is served in {identity.dtype}: scores differ")
    problems.raise_any()
    return headers


def _unsuited(config: Any) -> list[str]:
    """What prevents a server of this configuration from serving any memory."""
    model, parallel, cache = config.model_config, config.parallel_config, config.cache_config
    policy = config.kv_transfer_config.kv_load_failure_policy
    ranks = {
        name: getattr(parallel, f"{name.replace('-', '_')}_size")
        for name in ("pipeline-parallel", "decode-context-parallel", "prefill-context-parallel")
    }
    found = {
        f"--kv-cache-dtype {cache.cache_dtype}": cache.cache_dtype not in ("auto", str(model.dtype).split(".")[-1]),
        f"--quantization {model.quantization}": model.quantization is not None,
        "--hf-overrides": bool(model.hf_overrides),
        f"--tokenizer {model.tokenizer}": model.tokenizer != model.model,
        f"--load-format {config.load_config.load_format}": config.load_config.load_format == "dummy",
        "a draft model (--speculative-config)": config.speculative_config is not None,
        **{f"--{name}-size {size}": size > 1 for name, size in ranks.items()},
        f"kv_load_failure_policy {policy}": policy != "fail",  # it would answer refused requests without the memory
    }
    return [
        f"memories cannot be served with {what}; omit it, or use deepthink serve"
        for what, is_so in found.items()
        if is_so
    ]


def options_of(model: Any) -> ModelOptions:
    """The options with which this package finds the model of vLLM's `ModelConfig` on this machine."""
    return ModelOptions.checked(
        model=model.model,
        revision=model.revision,
        dtype=str(model.dtype).removeprefix("torch."),
        trust_remote_code=model.trust_remote_code,
        offline=True,
    )

"""Load memories into vLLM's cache of keys and values, through its interface for connectors (docs/serve.md).

vLLM imports this module by name. Its scheduler asks how many tokens of a request are known, and its workers write their
keys and values into the blocks that the scheduler gave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from logging import getLogger
from typing import TYPE_CHECKING, Any

import torch
import vllm
from torch import Tensor
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
)
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.model_executor.models.utils import extract_layer_index

from deepthink_cli.artifact.files import read_memories
from deepthink_cli.memory import Memory
from deepthink_cli.plugins.vllm.settings import (
    OFFERED,
    SALT,
    block_size,
    check_fits,
    check_server,
    check_version,
    heads_of_rank,
    parse_served,
    refusal,
)

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

_log = getLogger("vllm.deepthink")  # vLLM shows the messages of loggers below its own


@dataclass(frozen=True)
class Load:
    """The tokens `first` to L - 1 of a memory for one request, and the request's blocks; refused without a `salt`."""

    request: str
    salt: str | None
    blocks: tuple[int, ...]
    first: int


@dataclass
class Loads(KVConnectorMetadata):  # type: ignore[misc]
    """The memories that the workers load in one step."""

    loads: list[Load] = field(default_factory=list)


class MemoryConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """Gives a request with the `cache_salt` of a memory the memory's keys and values for its first L tokens.

    Raises InputError when the server starts if a memory cannot be served as it is.
    """

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        check_version(vllm.__version__)
        served = parse_served(self._kv_transfer_config.kv_connector_extra_config)
        self._block_size = block_size(kv_cache_config)
        self._token_ids: dict[str, list[int]] = {}
        self._memories: dict[str, Memory] = {}
        self._layers: list[tuple[Any, Tensor]] = []  # the attention layers of vLLM, and their caches
        self._loads = Loads()
        self._results = KVConnectorTransferResults()
        if role is KVConnectorRole.SCHEDULER:
            headers = check_server(served, vllm_config, _log.warning)
            self._token_ids = {
                memory.salt: header.metadata.demonstrations.token_ids
                for memory, header in zip(served, headers, strict=True)
            }
            _log.info("memories: %s", ", ".join(memory.name for memory in served))
        else:
            self._served = served

    # The scheduler's part.

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        """The number of a request's next tokens that its memory holds, and that they are loaded between two steps.

        A request that is refused gets one token, whose load fails: vLLM answers it with an error.
        """
        if not (request.cache_salt or "").startswith(SALT):
            return 0, False
        ids = self._shown(request.cache_salt)
        if reason := refusal(request, ids):
            _log.error("request %s is refused: %s", request.request_id, reason)
            request.skip_reading_prefix_cache = False  # it would be answered plainly, and kept under the memory's salt
            return 1, True
        assert ids is not None
        missing = len(ids) - num_computed_tokens
        return (missing, True) if missing > 0 else (0, False)

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """Remember the memory to load into the blocks of a request."""
        if num_external_tokens:
            ids = self._shown(request.cache_salt)
            salt = None if ids is None or refusal(request, ids) else request.cache_salt
            first = 0 if ids is None else len(ids) - num_external_tokens
            self._loads.loads.append(Load(request.request_id, salt, tuple(blocks.get_block_ids()[0]), first))

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> Loads:
        """What is to be loaded since the last step."""
        loads, self._loads = self._loads, Loads()
        return loads

    def _shown(self, salt: str) -> Sequence[int] | None:
        """The demonstration tokens of a memory; None if it is not served."""
        if (offered := OFFERED.get(salt)) is not None and offered.provenance is not None:
            return offered.provenance.demonstrations.token_ids
        return self._token_ids.get(salt)

    # A worker's part.

    def register_kv_caches(self, kv_caches: dict[str, Tensor]) -> None:
        """Read this rank's heads of every memory, for the layers of vLLM; raises InputError unless they fit."""
        modules = self._vllm_config.compilation_config.static_forward_context
        names = sorted(kv_caches, key=extract_layer_index)
        self._layers = [(modules[name], kv_caches[name]) for name in names]
        for memory in self._served:
            (read,) = read_memories(memory.header(), [memory.iteration])
            self._memories[memory.salt] = self._own(read, memory.path)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        """Write the memories of this step's requests into their blocks."""
        loads = self._get_connector_metadata()
        assert isinstance(loads, Loads)
        for load in loads.loads:
            if load.salt is None:
                self._results.failed_recving.add(load.request)
            else:
                if load.salt not in self._memories:
                    self._memories[load.salt] = self._own(OFFERED[load.salt], "this memory")
                self._write(load, self._memories[load.salt])
            self._results.finished_recving.add(load.request)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Which requests were loaded, and which are refused."""
        results, self._results = self._results, KVConnectorTransferResults()
        return results

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a memory is loaded before its request runs."""

    def save_kv_layer(self, layer_name: str, kv_layer: Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing: a memory is not written."""

    def wait_for_save(self) -> None:
        """Nothing, as nothing is saved."""

    def _own(self, memory: Memory, name: str) -> Memory:
        """This rank's heads of a memory, (L, kv_heads, head_dim) in vLLM's dtype; raises InputError unless it fits."""
        ranks, rank = self._vllm_config.parallel_config.tensor_parallel_size, get_tensor_model_parallel_rank()
        heads = heads_of_rank(memory.keys[0].shape[0], ranks, rank)
        check_fits(memory, heads, [(layer.num_kv_heads, layer.head_size) for layer, _ in self._layers], name)
        dtype = self._vllm_config.model_config.dtype

        def ordered(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
            return tuple(tensor[heads].transpose(0, 1).to(dtype).contiguous() for tensor in tensors)

        return Memory(ordered(memory.keys), ordered(memory.values), memory.iteration)

    def _write(self, load: Load, memory: Memory) -> None:
        places = torch.arange(load.first, memory.keys[0].shape[0])
        blocks = torch.tensor(load.blocks)[places // self._block_size]
        kept = blocks != 0  # vLLM has no block, but its empty one, for tokens that a window hides from all that follow
        places, slots = places[kept], (blocks * self._block_size + places % self._block_size)[kept]
        for (layer, cache), keys, values in zip(self._layers, memory.keys, memory.values, strict=True):
            tensors = (tensor.to(cache.device) for tensor in (keys[places], values[places]))
            layer.impl.do_kv_cache_update(layer, *tensors, cache, slots.to(cache.device))

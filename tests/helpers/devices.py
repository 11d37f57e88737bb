"""Two simulated devices: each tensor has one, and mixing them raises an error, as in CUDA."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map_only
from transformers import PreTrainedModel

CPU, FIRST, LAST = torch.device("cpu"), torch.device("cpu:0"), torch.device("cpu:1")


class Devices(TorchFunctionMode):
    """Gives every tensor a simulated device, although all of them are on the processor."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return place(args[0])
        target, args, kwargs = _target(func, args, kwargs)
        given = [one for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
        made = func(*args, **kwargs)
        if target is None:
            target = _common(func, given)
        elif any(made is one and place(one) != target for one in given):
            made = made.clone()  # the real device is the same, so torch did not copy
        return tree_map_only(Tensor, lambda one: one if any(one is old for old in given) else put(one, target), made)


def place(tensor: Tensor) -> torch.device:
    """The simulated device of a tensor; the processor by default."""
    return getattr(tensor, "_place", CPU)


def put(tensor: Tensor, device: torch.device) -> Tensor:
    """Set the simulated device of a tensor and return the tensor."""
    tensor._place = device  # type: ignore[attr-defined]
    return tensor


def spread(network: PreTrainedModel, device_of: Callable[[str], torch.device]) -> None:
    """Put every module's own tensors on the device for its name, and move its inputs there.

    As accelerate does: the output of the whole network returns to the device of its input; that of `base_model`
    stays on the last device.
    """
    for name, module in network.named_modules():
        device = device_of(name)
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            put(tensor, device)
        if not [*module.children()] or name.rpartition(".")[2].isdigit():  # a block, or a module without children
            module.register_forward_pre_hook(partial(_moved, device), with_kwargs=True)
    network.register_forward_hook(lambda _, __, made: type(made)(**{**made, "logits": made.logits.to(FIRST)}))


def _moved(device: torch.device, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    return tree_map_only(Tensor, lambda one: one.to(device), (args, kwargs))


def _target(func: Any, args: Any, kwargs: Any) -> tuple[torch.device | None, Any, Any]:
    """The simulated device that a call names, and the call's arguments with the real one instead."""
    if func == Tensor.cpu:
        return CPU, args, kwargs
    named = kwargs.get("device")
    if func == Tensor.to:
        named = next((one for one in args[1:] if isinstance(one, torch.device | str | Tensor)), named)
        args = [one.dtype if one is named and isinstance(one, Tensor) else CPU if one is named else one for one in args]
    if named is None:
        return None, args, kwargs
    found = place(named) if isinstance(named, Tensor) else torch.device(named)
    return found, args, {**kwargs, "device": CPU} if "device" in kwargs else kwargs


def _common(func: Any, given: list[Tensor]) -> torch.device:
    """The one device of a call's tensors; scalars on the processor, and indices, may be used with any other."""
    places = [place(one) for one in given if one.dim() or place(one) != CPU]
    if func in (Tensor.__getitem__, Tensor.__setitem__):
        places = places[:1] + [one for one in places[1:] if one != CPU]
    if len(set(places)) > 1 and func != Tensor.copy_:
        raise RuntimeError(f"{func.__name__}: tensors on {' and '.join(sorted(map(str, set(places))))}")
    return places[0] if places else CPU

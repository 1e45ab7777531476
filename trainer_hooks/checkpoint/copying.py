"""A copy of a state in the host's memory, made as fast as memory allows."""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HostCopier"]

_Key = tuple[int, bool]

_UNCHANGING = frozenset((str, int, float, bool, bytes, complex, type(None)))


class HostCopier:
    """Copies plain data and tensors; the memory of one copy is used again for the next.

    Tensors that share memory share it in the copy too. A tensor on a GPU is copied to pinned
    memory, and all of them are waited for once.
    """

    def __init__(self) -> None:
        self._buffers: dict[_Key, list[torch.UntypedStorage]] = {}

    def copy(self, state: Any) -> Any:
        """Return a copy of `state` by value, its tensors on the CPU.

        The copy before it is written over, so it must not be needed any more.
        """
        spare, self._buffers = self._buffers, {}
        storages: dict[tuple[torch.device, int], torch.UntypedStorage] = {}
        copied: dict[int, Any] = {}
        streams = {}
        for tensor in _tensors_in(state):
            if not _is_ordinary(tensor):
                copied[id(tensor)] = _like(tensor, tensor.detach().clone().cpu())
                continue
            if tensor.device.type == "cuda":
                streams[tensor.device] = torch.cuda.current_stream(tensor.device)
            source = tensor.untyped_storage()
            place = (tensor.device, source.data_ptr())
            if not source.nbytes() or place not in storages:
                storages[place] = self._copy_of(source, spare)
            copied[id(tensor)] = _view_of(storages[place], tensor)
        result = _copied(state, copied)
        for stream in streams.values():
            stream.synchronize()
        return result

    def release(self) -> None:
        """Let go of the memory, once the copy is not needed any more."""
        self._buffers.clear()

    def _copy_of(
        self, source: torch.UntypedStorage, spare: dict[_Key, list[torch.UntypedStorage]]
    ) -> torch.UntypedStorage:
        """Return a copy of some memory, in a spare buffer if there is one of that size."""
        is_pinned = source.device.type == "cuda"
        key = (source.nbytes(), is_pinned)
        fitting = spare.get(key)
        if fitting:
            buffer = fitting.pop(0)  # in the order of the last copy, so each keeps its own
        else:
            buffer = torch.empty(
                source.nbytes(), dtype=torch.uint8, pin_memory=is_pinned
            ).untyped_storage()
        buffer.copy_(source, non_blocking=is_pinned)
        self._buffers.setdefault(key, []).append(buffer)
        return buffer


def _tensors_in(state: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers, in an order that is the same each time."""
    seen: set[int] = set()
    left = [state]
    while left:
        value = left.pop()
        if isinstance(value, dict | list | tuple | set | frozenset | deque):
            if id(value) not in seen:
                seen.add(id(value))
                left.extend(value.values() if isinstance(value, dict) else value)
        elif isinstance(value, torch.Tensor) and id(value) not in seen:
            seen.add(id(value))
            yield value


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """Return a deep copy; plain containers, most of what a state is, without deepcopy's detours.

    Args:
        value: what is copied.
        known: the copies so far, by the ids of what they are copies of; also all tensors'.
    """
    kind = type(value)
    if kind in _UNCHANGING:
        return value
    if id(value) in known:
        return known[id(value)]
    if kind is dict:
        made = known[id(value)] = {}
        for key, item in value.items():
            made[_copied(key, known)] = _copied(item, known)
        return made
    if kind is list:
        items = known[id(value)] = []
        items.extend(_copied(item, known) for item in value)
        return items
    return copy.deepcopy(value, known)


def _is_ordinary(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is nothing but a view of one stretch of memory."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg())
    )


def _view_of(storage: torch.UntypedStorage, tensor: torch.Tensor) -> torch.Tensor:
    view = torch.empty(0, dtype=tensor.dtype)
    view.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    return _like(tensor, view)


def _like(tensor: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """Return `made` as what `tensor` is: a parameter, or a tensor that wants a gradient."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)

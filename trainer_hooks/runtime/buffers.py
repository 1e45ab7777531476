"""Buffers that no `state_dict` holds: find those that a training has changed, and restore them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.runtime.nested_tensors import bytes_of
from trainer_hooks.runtime.parameter_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

_SMALL = 1 << 16
"""Bytes of the largest buffer that is read as a whole at each save."""
_SAMPLED = 1 << 13
"""Elements that are read of a larger one."""
_CHUNK = 1 << 20
"""Words of 8 bytes that a digest reads at once, since it makes copies of them."""
_FACTORS = (-7046029254386353131, -4417276706812531889, 1609587929392839161)
"""Odd numbers of 64 bits, whose products spread each bit over all higher ones."""


@dataclass(slots=True)
class _Look:
    """A buffer as it was when it was looked at last.

    Attributes:
        tensor: a reference to the tensor itself, which does not keep it alive.
        version: the number of its changes in place that torch has counted; None if torch counts
            none, as in inference mode.
        sample: a digest of some of its elements, or of all if it is small.
        is_changed: whether it differed from the buffer with which the training began.
    """

    tensor: weakref.ref[Tensor]
    version: int | None
    sample: str
    is_changed: bool


class BufferRecord:
    """The buffers that no `state_dict` holds, as they were when a training began.

    A save asks which have changed since. Usually two comparisons answer that: it is the tensor of
    the last look, and torch has counted no change in place since. A sample of the elements finds
    changes that torch does not count, as by `buffer.data` or in an array of NumPy. Where one of
    these differs, a digest of all elements decides: DistributedDataParallel writes to every buffer
    in each step, mostly the values that it had.
    """

    def __init__(self) -> None:
        self._began: dict[str, str] | None = None
        self._looks: dict[str, _Look] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the looks, whose references to tensors cannot be copied."""
        return {"_began": self._began, "_looks": {}}

    def begin(self, module: nn.Module) -> None:
        """Record the buffers of a module, unless its training has begun before."""
        if self._began is None:
            self._began = {
                name: _digest(buffer) for name, buffer in _non_persistent(module) if _has(buffer)
            }
            self._looks.clear()

    def changed(self, module: nn.Module) -> dict[str, Tensor | None]:
        """Return by plain name the buffers that differ from those with which the training began.

        A buffer that was assigned anew is among them, and one that has become None.
        """
        if self._began is None:
            return {}
        return {
            name: buffer
            for name, buffer in _non_persistent(module)
            if (self._is_changed(name, buffer) if _has(buffer) else name in self._began)
        }

    def state_dict(self, module: nn.Module) -> dict[str, Any]:
        """Return the changed buffers, and digests of all at the start; empty without buffers."""
        if not self._began and not any(True for _ in _non_persistent(module)):
            return {}
        return {"began": dict(self._began or {}), "changed": self.changed(module)}

    def load_state_dict(self, module: nn.Module, state: dict[str, Any], *, warns: bool) -> None:
        """Set the buffers that had changed.

        Args:
            module: the module.
            state: a state of `state_dict`.
            warns: whether to warn of buffers that had not changed, and are built with other values
                now.
        """
        changed, began = state["changed"], self._began or {}
        load_buffers(module, changed)
        others = [
            name
            for name, digest in state["began"].items()
            if name not in changed and name in began and began[name] != digest
        ]
        if others and warns:
            warn(
                f"buffers that no state_dict holds have other values in "
                f"{type(module).__qualname__} than when the training in the checkpoint began: "
                f"{', '.join(map(repr, sorted(others)))}. They stay as they are now, so that this "
                "run is not exactly the one that was cut. Build them as they were, as by "
                "seed_everything, or register them with persistent=True.",
                TrainerHooksWarning,
            )

    def _is_changed(self, name: str, buffer: Tensor) -> bool:
        assert self._began is not None
        sample, last = _sample(buffer), self._looks.get(name)
        version = None if buffer.is_inference() else buffer._version  # noqa: SLF001
        is_same = (
            last is not None
            and last.tensor() is buffer
            and last.version == version
            and last.sample == sample
            and (version is not None or _is_small(buffer))
        )
        if is_same and last is not None:
            return last.is_changed
        is_changed = self._began.get(name) != _digest(buffer)
        self._looks[name] = _Look(weakref.ref(buffer), version, sample, is_changed)
        return is_changed


def buffers_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers by plain name, without those of lazy layers that have no size yet."""
    return {plain_name(name): b for name, b in module.named_buffers() if not is_lazy(b)}


def load_buffers(module: nn.Module, states: Mapping[str, Tensor | None]) -> None:
    """Set buffers of a module, in place where they have the same shape and dtype.

    Args:
        module: the module.
        states: the values by plain name. A buffer that the module does not have is registered as
            one that no `state_dict` holds.
    """
    # a layer that torch has wrapped has the name of its wrapper, and comes after it
    parts = {plain_name(name): part for name, part in module.named_modules()}
    for name, value in states.items():
        owner, _, leaf = plain_name(name).rpartition(".")
        if owner in parts:
            _set_buffer(parts[owner], leaf, value)
        else:
            warn(
                f"the checkpoint holds the buffer {name!r}, and this module has no part "
                f"{owner!r}: it is left out. Build the module as it was to resume exactly.",
                TrainerHooksWarning,
            )


def _set_buffer(part: nn.Module, leaf: str, value: Tensor | None) -> None:
    table = part._buffers  # noqa: SLF001 - torch has no other way to a buffer that is None
    if leaf not in table:
        part.register_buffer(leaf, value, persistent=False)
        return
    present = table[leaf]
    if value is None or present is None or is_lazy(present):
        table[leaf] = value
    elif (
        present.shape == value.shape and present.dtype == value.dtype and not present.is_inference()
    ):
        # in place: other objects may hold the buffer
        if present is not value:
            with torch.no_grad():
                present.copy_(value)
    else:
        table[leaf] = value.detach().to(present.device, copy=True)


def _non_persistent(module: nn.Module) -> Iterator[tuple[str, Tensor | None]]:
    """Yield the plain name and the value of each buffer that no `state_dict` holds."""
    for prefix, part in module.named_modules():
        names = part._non_persistent_buffers_set  # noqa: SLF001 - torch has no other list of them
        for leaf in names:
            if leaf in part._buffers:  # noqa: SLF001
                name = f"{prefix}.{leaf}" if prefix else leaf
                yield plain_name(name), part._buffers[leaf]  # noqa: SLF001


def _has(buffer: Tensor | None) -> TypeGuard[Tensor]:
    """Return whether a buffer holds values that can be read; those of nested tensors cannot."""
    return buffer is not None and not is_lazy(buffer) and not (buffer.is_meta or buffer.is_nested)


def _is_small(buffer: Tensor) -> bool:
    return buffer.numel() * buffer.element_size() <= _SMALL


def _sample(buffer: Tensor) -> str:
    """Return a digest of some elements, of all if there are few."""
    if _is_small(buffer):
        return _digest(buffer)
    values = _dense_parts(buffer)[-1]
    if not values.is_contiguous():
        return ""  # a copy of all of it would cost more than the save
    # odd: an even one would meet the same columns in each row
    return _digest(values.view(-1)[:: values.numel() // _SAMPLED | 1])


def _digest(buffer: Tensor) -> str:
    """Return a digest of a tensor's shape, dtype and elements, bit for bit."""
    numbers = [_mix(part) for part in _dense_parts(buffer)]
    return f"{tuple(buffer.shape)} {buffer.dtype} {' '.join(map(str, numbers))}"


def _mix(values: Tensor) -> int:
    """Return a number of 64 bits that depends on each bit of a dense tensor and its place."""
    data = bytes_of(values)
    missing = -data.numel() % 8
    if missing:
        data = torch.cat([data, data.new_zeros(missing)])
    elif data.storage_offset() % 8:
        data = data.clone()
    words = data.view(torch.int64)
    total = words.new_zeros(())
    spread, first, second = _FACTORS
    for start in range(0, words.numel(), _CHUNK):
        part = words[start : start + _CHUNK]
        place = torch.arange(start, start + part.numel(), device=part.device)
        mixed = (part ^ (place * spread)) * first
        total += ((mixed ^ (mixed >> 29)) * second).sum()
    return int(total)


def _dense_parts(buffer: Tensor) -> list[Tensor]:
    """Return the dense tensors that hold a buffer's elements, without repeated ones."""
    values = buffer.detach()
    if hasattr(values, "to_local"):  # a DTensor
        values = values.to_local()
    if values.layout is torch.sparse_coo:
        values = values.coalesce()
        return [values.indices(), values.values()]
    if values.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [values.crow_indices(), values.col_indices(), values.values()]
    if values.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [values.ccol_indices(), values.row_indices(), values.values()]
    if values.is_quantized:
        return [values.int_repr()]
    values = values.resolve_conj().resolve_neg()
    for dimension, stride in enumerate(values.stride()):
        if stride == 0 and values.shape[dimension] > 1:  # expanded
            values = values.narrow(dimension, 0, 1)
    return [values]

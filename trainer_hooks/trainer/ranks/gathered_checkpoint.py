"""One checkpoint file of several ranks: rank 0 gathers every rank's own state and writes it.

A file of a thousand ranks holds a thousand such states, so each holds only what differs from rank
0's, which is at the file's top level. `checkpoint["trainer_hooks"]["processes"]` has for each rank
but 0::

    parts       parts of the state as they are, by name
    changed     the names of parts that are rank 0's but for the values of their tensors
    values      the values of all those tensors, as bytes one after the other
    callbacks   the states of callbacks that differ, by state key

A part that is in neither `parts` nor `changed` equals rank 0's. The part `rng` is divided by
library, as in `rng/torch`: often only some of the generators differ.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from trainer_hooks.errors import CheckpointError
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.nested_tensors import bytes_of, map_tensors
from trainer_hooks.runtime.process_group import ProcessGroup

if TYPE_CHECKING:
    from trainer_hooks.runtime.processes import Processes
    from trainer_hooks.trainer.core.trainer_core import TrainerCore


class RankExchange(Protocol):
    """The collectives that a gathered checkpoint needs."""

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is rank 0."""

    def broadcast(self, obj: Any) -> Any:
        """Return rank 0's object."""

    def gather_to_zero(self, obj: Any) -> list[Any]:
        """Return the objects of all ranks on rank 0, and an empty list on the others."""


_SMALL = 1 << 20
"""Bytes up to which tensors are compared. Larger ones of a callback are the training's, as averaged
weights, and the same in all processes; a part that holds a larger one is always sent."""

_RNG = "rng/"
"""Begins the name of a library's part of `rng`."""


def gather_rank_state(checkpoint: dict[str, Any], core: TrainerCore, names: list[str]) -> None:
    """Add every other rank's own state (random states, loader position) to rank 0's checkpoint.

    Callback states that differ from rank 0's are added too.

    Args:
        checkpoint: the checkpoint, as plain data.
        core: the trainer's core.
        names: the entries of which each rank has its own.

    Raises:
        CheckpointError: a rank has failed, so that not all can take part.
    """
    # first: the gathering would wait for a rank that has failed
    require_no_failed_rank(core)
    gather_into_checkpoint(checkpoint, _group(core.processes), names)


def require_no_failed_rank(core: TrainerCore) -> None:
    """Raise if a rank has failed: a checkpoint needs all of them.

    Raises:
        CheckpointError: a rank has failed.
    """
    if _group(core.processes).watchdog.has_seen_failure:
        raise CheckpointError(
            "a process has failed, and a checkpoint is of all processes: nothing can be saved any "
            "more. Resume from the one before."
        )


def gather_into_checkpoint(
    checkpoint: dict[str, Any], processes: RankExchange, names: list[str]
) -> None:
    """Add every other rank's own state to rank 0's checkpoint, by the given collectives.

    Args:
        checkpoint: the checkpoint, as plain data.
        processes: the collectives.
        names: the entries of which each rank has its own.
    """
    states = checkpoint.get("callbacks", {})
    parts = _split_rng({name: checkpoint["trainer_hooks"].get(name) for name in names})
    packed = {name: _PackedPart.of(name, part) for name, part in parts.items()}
    digests = {key: _digest(state) for key, state in states.items()}
    # digests first: most of the state is equal, and only the rest is sent
    of_zero: Any = processes.broadcast(
        {"callbacks": digests, "parts": {name: part.digests for name, part in packed.items()}}
    )
    # rank 0's stays empty: the checkpoint's top level is its state
    differing: dict[str, Any] = {}
    if not processes.is_global_zero:
        differing = {
            **_difference(parts, packed, of_zero["parts"]),
            "callbacks": {
                k: s for k, s in states.items() if digests[k] != of_zero["callbacks"].get(k)
            },
        }
    # on the CPU: a GPU tensor is pickled with the index of its device, which rank 0 may not have
    states_of_ranks = processes.gather_to_zero(
        map_tensors(differing, lambda tensor: tensor.detach().cpu())
    )
    checkpoint["trainer_hooks"]["processes"] = states_of_ranks


def select_rank_state(checkpoint: dict[str, Any], processes: Processes) -> dict[str, Any]:
    """Return a checkpoint with this rank's own state in it.

    If another number of ranks saved it, every rank but 0 keeps its present random state.
    """
    entries = checkpoint.get("trainer_hooks", {})
    saved, rank = entries.get("processes", []), processes.global_rank
    if not processes.is_distributed or rank == 0 or "rng" not in entries:
        return checkpoint  # the top level of the file is rank 0's state
    if entries.get("world_size", 1) != processes.world_size or rank >= len(saved):
        # rank 0's random state on all ranks would make them draw the same dropout masks
        return {**checkpoint, "trainer_hooks": {**entries, "rng": rng.capture()}}
    return {
        **checkpoint,
        "trainer_hooks": {**entries, **_rank_parts(entries, saved[rank]), "processes": []},
        "callbacks": {**checkpoint.get("callbacks", {}), **saved[rank]["callbacks"]},
    }


@dataclass(frozen=True, slots=True)
class _TensorSpec:
    """The place of a tensor in a skeleton."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class _PackedPart:
    """A part of a rank's state, divided into the values of its tensors and the rest.

    Attributes:
        digests: that of the part with a `_TensorSpec` in place of each tensor, and that of
            `values`; None for a part that must be sent whole.
        values: the bytes of the tensors, one after the other.
    """

    digests: tuple[bytes, bytes] | None
    values: Tensor

    @classmethod
    def of(cls, name: str, part: Any) -> _PackedPart:
        """Pack a part."""
        tensors: list[Tensor] = []

        def take_out(tensor: Tensor) -> _TensorSpec:
            tensors.append(tensor)
            return _TensorSpec(tuple(tensor.shape), tensor.dtype)

        skeleton = map_tensors(part, take_out)
        values = torch.empty(0, dtype=torch.uint8)
        # those of a sharded checkpoint are placeholders, under whose names the values are read
        if name == "gradients" or not all(map(_can_be_packed, tensors)):
            return cls(None, values)
        # not of a pickle, in which objects that are equal or the same one differ
        text = repr(skeleton).encode("utf-8", "surrogatepass")
        values = torch.cat([values, *(bytes_of(tensor.cpu()) for tensor in tensors)])
        digests = hashlib.sha256(text).digest(), hashlib.sha256(values.numpy().data).digest()
        return cls(digests, values)


def _can_be_packed(tensor: Tensor) -> bool:
    is_in_memory = tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_quantized)
    return is_in_memory and tensor.numel() * tensor.element_size() <= _SMALL


def _difference(
    parts: dict[str, Any],
    packed: dict[str, _PackedPart],
    of_zero: dict[str, tuple[bytes, bytes] | None],
) -> dict[str, Any]:
    """Return the difference of a rank's parts from rank 0's, as the file holds it.

    Args:
        parts: this rank's parts.
        packed: the same, packed.
        of_zero: the digests of rank 0's.
    """
    # rank 0 may have the generator of a library that this rank has not imported
    whole: dict[str, Any] = {
        name: None for name in of_zero if name.startswith(_RNG) and name not in parts
    }
    changed, values = [], []
    generators = {name: part for name, part in parts.items() if name.startswith(_RNG)}
    shortened = _split_rng({"rng": rng.shorten(_join_rng(generators))}) if generators else {}
    for name, part in parts.items():
        here, there = packed[name].digests, of_zero.get(name)
        if here is not None and here == there:
            continue
        if rng.is_seed(shortened.get(name)):
            whole[name] = shortened[name]
        elif here is not None and there is not None and here[0] == there[0]:
            changed.append(name)
            values.append(packed[name].values)
        else:
            whole[name] = part
    difference: dict[str, Any] = {"parts": whole}
    if changed:
        difference.update(changed=changed, values=torch.cat(values))
    return difference


def _rank_parts(of_zero: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """Return a rank's parts of which the file holds the difference from rank 0's.

    Args:
        of_zero: `checkpoint["trainer_hooks"]`, with rank 0's parts.
        saved: the difference, as `_difference` returned it.
    """
    parts, base = dict(saved["parts"]), _split_rng(of_zero)
    values: Any = saved.get("values", torch.empty(0, dtype=torch.uint8))
    start = 0

    def fill(tensor: Tensor) -> Tensor:
        nonlocal start
        stop = start + tensor.numel() * tensor.element_size()
        # a copy: a view in another type must begin at a multiple of its size
        filled: Tensor = values[start:stop].clone().view(tensor.dtype).reshape(tensor.shape)
        start = stop
        return filled

    for name in saved.get("changed", []):
        parts[name] = map_tensors(base[name], fill)
    if values.dtype != torch.uint8 or values.shape != (start,):
        raise ValueError(f"{values.numel()} bytes of tensors, of which rank 0 has {start}")
    generators = {name: parts.pop(name) for name in list(parts) if name.startswith(_RNG)}
    of_libraries = {name: part for name, part in base.items() if name.startswith(_RNG)}
    parts["rng"] = rng.expand(_join_rng(of_libraries | generators))
    return parts


def _split_rng(parts: dict[str, Any]) -> dict[str, Any]:
    """Return parts with those of each library in place of `rng`."""
    others = {name: part for name, part in parts.items() if name != "rng"}
    libraries = parts.get("rng") or {}
    return {**others, **{_RNG + library: state for library, state in libraries.items()}}


def _join_rng(generators: dict[str, Any]) -> dict[str, Any]:
    """Return `rng` of the parts of its libraries: the inverse of `_split_rng`."""
    return {
        name.removeprefix(_RNG): state for name, state in generators.items() if state is not None
    }


def _digest(state: Any) -> bytes:
    def told(tensor: Tensor) -> Any:
        # copying large tensors from the GPU on every rank would cost more than it saves
        if tensor.numel() * tensor.element_size() > _SMALL:
            return (tuple(tensor.shape), str(tensor.dtype))
        plain = tensor.detach().cpu()
        # not the tensor itself: its pickle would hold the whole storage, of a view too
        return (tuple(plain.shape), str(plain.dtype), plain.reshape(-1).tolist())

    # pickles of equal states may differ, as in shared objects; then one is sent needlessly
    return hashlib.sha256(pickle.dumps(map_tensors(state, told))).digest()


def _group(processes: Processes) -> ProcessGroup:
    assert isinstance(processes, ProcessGroup)
    return processes

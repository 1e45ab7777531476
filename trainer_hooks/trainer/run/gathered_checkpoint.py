"""One checkpoint file of several ranks: rank 0 gathers every rank's own state and writes it."""

from __future__ import annotations

import hashlib
import pickle
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks.errors import CheckpointError
from trainer_hooks.runtime.nested_tensors import map_tensors
from trainer_hooks.runtime.process_group import ProcessGroup

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.runtime.processes import Processes
    from trainer_hooks.trainer.run.trainer_core import TrainerCore


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
"""Bytes up to which tensors of a callback are compared; larger ones are the training's, as
averaged weights, and the same in all processes."""


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
    # digests first: callback states are mostly equal, and only those that differ are sent
    digests = processes.broadcast({key: _digest(state) for key, state in states.items()})
    # rank 0's stays empty: the checkpoint's top level is its state
    own: dict[str, Any] = {}
    if not processes.is_global_zero:
        own = {
            "parts": {n: checkpoint["trainer_hooks"].get(n) for n in names},
            "callbacks": {k: s for k, s in states.items() if _digest(s) != digests.get(k)},
        }
    # on the CPU: a GPU tensor is pickled with the index of its device, which rank 0 may not have
    states_of_ranks = processes.gather_to_zero(
        map_tensors(own, lambda tensor: tensor.detach().cpu())
    )
    checkpoint["trainer_hooks"]["processes"] = states_of_ranks


def select_rank_state(checkpoint: dict[str, Any], processes: Processes) -> dict[str, Any]:
    """Return a checkpoint with this rank's own state in it.

    If another number of ranks saved it, every rank but 0 keeps its present random state.
    """
    own = checkpoint.get("trainer_hooks", {})
    saved, rank = own.get("processes", []), processes.global_rank
    if not processes.is_distributed or rank == 0 or "rng" not in own:
        return checkpoint  # the top level of the file is rank 0's state
    if own.get("world_size", 1) != processes.world_size or rank >= len(saved):
        from trainer_hooks.runtime import rng

        # rank 0's random state on all ranks would make them draw the same dropout masks
        return {**checkpoint, "trainer_hooks": {**own, "rng": rng.capture()}}
    return {
        **checkpoint,
        "trainer_hooks": {**own, **saved[rank]["parts"], "processes": []},
        "callbacks": {**checkpoint.get("callbacks", {}), **saved[rank]["callbacks"]},
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

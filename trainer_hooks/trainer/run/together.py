"""Together: one checkpoint of several processes, which rank 0 writes with all that is theirs."""

from __future__ import annotations

import hashlib
import pickle
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks.errors import CheckpointError, TrainerHooksError
from trainer_hooks.runtime import ProcessGroup, map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.runtime import Processes
    from trainer_hooks.trainer.run.session import Session

__all__ = [
    "Tellers", "add_others", "bring_together", "decided_by_zero", "own_part", "require_all",
]  # fmt: skip


class Tellers(Protocol):
    """What several processes tell each other by."""

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the first."""

    def broadcast(self, obj: Any) -> Any:
        """Return what the first process has given."""

    def gather_to_zero(self, obj: Any) -> list[Any]:
        """Return what all processes have given to the first; an empty list to the others."""


_SMALL = 1 << 20
"""Bytes up to which tensors of a callback are compared; larger ones are the training's, as
averaged weights, and the same in all processes."""


def add_others(checkpoint: dict[str, Any], session: Session, names: list[str]) -> None:
    """Add to rank 0's checkpoint what the other processes have of their own.

    That is what `names` says, and of callbacks the states that are not rank 0's.

    Args:
        checkpoint: what is to be saved, as plain data.
        session: whose it is.
        names: the parts of which each process has its own.

    Raises:
        CheckpointError: a process has failed, so that not all can take part.
    """
    require_all(session)
    bring_together(checkpoint, _group(session.processes), names)


def require_all(session: Session) -> None:
    """Make sure that no process has failed: a checkpoint is of all of them.

    Raises:
        CheckpointError: one has.
    """
    if _group(session.processes).alarm.has_gone_off:
        raise CheckpointError(
            "a process has failed, and a checkpoint is of all processes: nothing can be saved any "
            "more. Resume from the one before."
        )


def bring_together(checkpoint: dict[str, Any], processes: Tellers, names: list[str]) -> None:
    """Add to the first process's checkpoint what the others have of their own.

    Args:
        checkpoint: as `add_others` takes it.
        processes: what they tell each other by.
        names: likewise.
    """
    states = checkpoint.get("callbacks", {})
    digests = processes.broadcast({key: _digest(state) for key, state in states.items()})
    own: dict[str, Any] = {}
    if not processes.is_global_zero:
        own = {
            "parts": {n: checkpoint["trainer_hooks"].get(n) for n in names},
            "callbacks": {k: s for k, s in states.items() if _digest(s) != digests.get(k)},
        }
    found = processes.gather_to_zero(map_tensors(own, lambda tensor: tensor.detach().cpu()))
    checkpoint["trainer_hooks"]["processes"] = found


def own_part(checkpoint: dict[str, Any], processes: Processes) -> dict[str, Any]:
    """Return a checkpoint as this process is to see it: with what it had of its own.

    Of one that so many processes have not saved, the others than rank 0 take their present random
    numbers in place of its.
    """
    own = checkpoint.get("trainer_hooks", {})
    saved, rank = own.get("processes", []), processes.global_rank
    if not processes.is_several or rank == 0 or "rng" not in own:
        return checkpoint
    if own.get("world_size", 1) != processes.world_size or rank >= len(saved):
        from trainer_hooks.runtime import rng

        return {**checkpoint, "trainer_hooks": {**own, "rng": rng.capture()}}
    return {
        **checkpoint,
        "trainer_hooks": {**own, **saved[rank]["parts"], "processes": []},
        "callbacks": {**checkpoint.get("callbacks", {}), **saved[rank]["callbacks"]},
    }


def decided_by_zero(processes: Processes, decide: Callable[[], Any]) -> Any:
    """Return in all processes what rank 0 finds, or raise what it raises.

    Args:
        processes: all of them.
        decide: called in rank 0 alone.

    Raises:
        TrainerHooksError: that of rank 0.
    """
    found, fault = None, None
    if processes.is_global_zero:
        try:
            found = decide()
        except TrainerHooksError as error:
            fault = error
    told, message = processes.broadcast((found, None if fault is None else str(fault)))
    if fault is not None:
        raise fault
    if message is not None:
        raise CheckpointError(f"rank 0: {message}")
    return told


def _digest(state: Any) -> bytes:
    def told(tensor: Tensor) -> Any:
        if tensor.numel() * tensor.element_size() > _SMALL:
            return (tuple(tensor.shape), str(tensor.dtype))
        plain = tensor.detach().cpu()
        return (tuple(plain.shape), str(plain.dtype), plain.reshape(-1).tolist())

    return hashlib.sha256(pickle.dumps(map_tensors(state, told))).digest()


def _group(processes: Processes) -> ProcessGroup:
    assert isinstance(processes, ProcessGroup)
    return processes

"""Attempt: processes that were started anew by torchrun are told apart from those that died."""

from __future__ import annotations

import os
import time
import uuid
from typing import TYPE_CHECKING, Any

from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

if TYPE_CHECKING:
    from datetime import timedelta

    from trainer_hooks.runtime.topology import Topology

__all__ = ["Notes", "can_be_restarted", "has_lasting_store", "store_of_attempt"]

_POLL_S = 0.01
_PLACE = "trainer_hooks/attempt"
_LASTING: list[Any] = []
"""torchrun's store, once the processes have met in it."""


class Notes:
    """What processes that torchrun starts anew find of those that were killed."""

    def keep(self, name: str, note: bytes) -> None:
        """Keep a note, if there is where to."""
        for store in _LASTING:
            store.set(f"notes/{name}", note)

    def find(self, name: str) -> bytes:
        """Return the note of a name, or nothing."""
        for store in _LASTING:
            if store.check([f"notes/{name}"]):
                return bytes(store.get(f"notes/{name}"))
        return b""


def has_lasting_store() -> bool:
    """Return whether torchrun keeps the store, so that what dead processes wrote is in it."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def can_be_restarted() -> bool:
    """Return whether torchrun starts the processes anew where one of them dies."""
    return has_lasting_store() and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def store_of_attempt(topology: Topology, timeout: timedelta) -> Any:
    """Return a key-value store that these processes share, and none that ran before them.

    torchrun keeps one store over all restarts. In it torch would find the addresses of the dead,
    and wait for them. The count of restarts does not tell attempts apart: each machine has its own.
    So rank 0 makes a name, and gives it to each process that asks with a name of its own; what the
    dead have asked is never taken up.

    Args:
        topology: which process this is.
        timeout: how long to wait for the others.

    Raises:
        RuntimeError: they do not come, or the store is gone.
    """
    store, _, _ = next(
        rendezvous("env://", topology.global_rank, topology.world_size, timeout=timeout)
    )
    shared = PrefixStore(_PLACE, store)
    _LASTING[:] = [shared]
    if topology.global_rank:
        own = uuid.uuid4().hex
        shared.set(f"asked/{topology.global_rank}", own)
        shared.wait([f"answers/{own}"], timeout)
        name = shared.get(f"answers/{own}").decode()
        shared.add(f"arrived/{name}", 1)
    else:
        name = _name_for_all(shared, topology.world_size, timeout)
    return PrefixStore(f"{_PLACE}/{name}", store)


def _name_for_all(shared: Any, world_size: int, timeout: timedelta) -> str:
    name = uuid.uuid4().hex
    end = time.monotonic() + timeout.total_seconds()
    answered: dict[int, bytes] = {}
    while shared.add(f"arrived/{name}", 0) < world_size - 1:
        for rank in range(1, world_size):
            key = f"asked/{rank}"
            asked = shared.get(key) if shared.check([key]) else b""
            if asked and answered.get(rank) != asked:
                shared.set(f"answers/{asked.decode()}", name)
                answered[rank] = asked
        if time.monotonic() > end:
            raise RuntimeError(f"not all of {world_size} processes have come within {timeout}.")
        time.sleep(_POLL_S)
    return name

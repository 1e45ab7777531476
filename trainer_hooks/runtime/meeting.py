"""Meeting: how the processes find each other where the Trainer itself says at which address."""

from __future__ import annotations

import atexit
import time
from typing import TYPE_CHECKING

from torch.distributed import (  # type: ignore[attr-defined]
    FileStore,
    PrefixStore,
    Store,
    TCPStore,
)

from trainer_hooks._log import log
from trainer_hooks.errors import UsageError
from trainer_hooks.runtime.launch import StartedProcesses
from trainer_hooks.runtime.topology import NOTEBOOK

if TYPE_CHECKING:
    from datetime import timedelta

    from trainer_hooks.runtime.topology import Topology

__all__ = ["meet"]

_POLL_S = 0.05
_PATIENCE_S = 10.0
"""How long the first process waits for the others before it says so."""


def meet(topology: Topology, timeout: timedelta) -> tuple[Store, StartedProcesses | None]:
    """Return the store through which all find each other, once all have come to it.

    The first process keeps it, and starts the others if that is its part.

    Args:
        topology: which process this is.
        timeout: how long to wait for the others.

    Returns:
        The store, and the processes that were started.

    Raises:
        UsageError: not all have come.
    """
    is_first = topology.is_global_zero
    kind, _, path = topology.address.partition("file:")
    host, _, port = (topology.address or "127.0.0.1:0").rpartition(":")
    store: Store
    if path and not kind:
        store = FileStore(path, topology.world_size)
    else:
        store = TCPStore(host, int(port), None, is_first, timeout, wait_for_workers=False)
    started = None
    if topology.starts:
        assert isinstance(store, TCPStore)
        started = StartedProcesses(topology, store.port)
        atexit.register(started.finish)
    if is_first:
        _await_others(store, topology, timeout, started)
    else:
        store.set(f"here/{topology.global_rank}", "yes")
    return PrefixStore("trainer_hooks", store), started


def _await_others(
    store: Store, topology: Topology, timeout: timedelta, started: StartedProcesses | None
) -> None:
    begun, is_told = time.monotonic(), False
    while missing := [
        rank for rank in range(1, topology.world_size) if not store.check([f"here/{rank}"])
    ]:
        if started is not None:
            started.require_running()
        waited = time.monotonic() - begun
        if waited > _PATIENCE_S and not is_told:
            is_told = True
            log.info("waiting for rank %s%s", ", ".join(map(str, missing)), _place(topology))
        if waited > timeout.total_seconds():
            raise UsageError(
                f"rank {', '.join(map(str, missing))} of {topology.world_size} did not come within "
                f"{waited:.0f} s{_place(topology)}."
            )
        time.sleep(_POLL_S)


def _place(topology: Topology) -> str:
    """Return how they are to come."""
    if topology.starts:
        return ", which runs the same script up to here"
    if topology.launcher == NOTEBOOK:
        return ""
    return f" at {topology.address}; were all started with srun?"

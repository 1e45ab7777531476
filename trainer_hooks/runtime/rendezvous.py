"""Let the ranks find each other through a key-value store.

Where the Trainer launched the ranks, or SLURM did, rank 0 hosts the store at an address that all
know (`open_rendezvous_store`). Under torchrun the agent hosts it, and it outlives ranks that are
restarted (`open_attempt_store`).
"""

from __future__ import annotations

import atexit
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

from torch.distributed import (  # type: ignore[attr-defined]
    FileStore,
    PrefixStore,
    Store,
    TCPStore,
)
from torch.distributed.rendezvous import rendezvous

from trainer_hooks._log import log
from trainer_hooks._system import IS_WINDOWS
from trainer_hooks.errors import UsageError
from trainer_hooks.runtime.launcher import LaunchedProcesses
from trainer_hooks.runtime.topology import NOTEBOOK, PROGRAM

if TYPE_CHECKING:
    from datetime import timedelta

    from trainer_hooks.runtime.topology import Topology

_POLL_S = 0.05
_PATIENCE_S = 10.0
"""Seconds that rank 0 waits for the others before it logs which are missing."""


def open_rendezvous_store(
    topology: Topology, timeout: timedelta
) -> tuple[Store, LaunchedProcesses | None]:
    """Return the key-value store of all ranks, once all have connected to it.

    Rank 0 hosts the store, and launches the other ranks if the topology says so.

    Args:
        topology: the ranks, and which of them this process is.
        timeout: longest time to wait for the others.

    Returns:
        The store, and the processes that were launched.

    Raises:
        UsageError: a rank did not arrive in time.
    """
    is_first = topology.is_global_zero
    scheme, _, path = topology.address.partition("file:")
    host, _, port = (topology.address or "127.0.0.1:0").rpartition(":")
    store: Store
    if path and not scheme:
        store = FileStore(path, topology.world_size)
    else:
        # the store itself does not wait for all ranks: those that this process launches do not run
        # yet, and a rank that is missing is to be named
        store = TCPStore(
            host, int(port), None, is_first, timeout, wait_for_workers=False, use_libuv=_use_libuv()
        )
    launched = None
    if topology.starts:
        assert isinstance(store, TCPStore)
        launched = LaunchedProcesses(topology, store.port)
        # the script may go on after the fit; so may the other ranks, which run it as well
        atexit.register(launched.join)
    if is_first:
        _wait_for_ranks(store, topology, timeout, launched)
    else:
        store.set(f"here/{topology.global_rank}", "yes")
    return PrefixStore("trainer_hooks", store), launched


def _use_libuv() -> bool:
    """Return whether the store is to use libuv, by torch's own variable where it is set."""
    # torch for Windows is built without it, and asks for it all the same
    return os.environ.get("USE_LIBUV", "0" if IS_WINDOWS else "1") == "1"


def _wait_for_ranks(
    store: Store, topology: Topology, timeout: timedelta, launched: LaunchedProcesses | None
) -> None:
    """Wait until each other rank has written its key to the store."""
    started_at, has_logged = time.monotonic(), False
    while missing := [
        rank for rank in range(1, topology.world_size) if not store.check([f"here/{rank}"])
    ]:
        if launched is not None:
            launched.require_running()
        waited = time.monotonic() - started_at
        if waited > _PATIENCE_S and not has_logged:
            has_logged = True
            log.info("waiting for rank %s%s", ", ".join(map(str, missing)), _arrival_hint(topology))
        if waited > timeout.total_seconds():
            raise UsageError(
                f"rank {', '.join(map(str, missing))} of {topology.world_size} did not come within "
                f"{waited:.0f} s{_arrival_hint(topology)}."
            )
        time.sleep(_POLL_S)


def _arrival_hint(topology: Topology) -> str:
    """Return the end of a message on missing ranks: how they are to arrive."""
    if topology.starts:
        return ", which runs the same script up to here"
    if topology.launcher in (NOTEBOOK, PROGRAM):
        return ""
    return f" at {topology.address}; were all started with srun?"


_ATTEMPT_POLL_S = 0.01
_STORE_PREFIX = "trainer_hooks/attempt"
_agent_stores: list[Any] = []
"""The store of torchrun's agent, once the ranks have met in it; empty before."""


class RestartNotes:
    """Notes in torchrun's store that outlive the ranks and reach those that are restarted."""

    def save(self, name: str, content: bytes) -> None:
        """Save a note under a name, if torchrun keeps a store."""
        for store in _agent_stores:
            store.set(f"notes/{name}", content)

    def load(self, name: str) -> bytes:
        """Return the note under a name, or empty bytes."""
        for store in _agent_stores:
            if store.check([f"notes/{name}"]):
                return bytes(store.get(f"notes/{name}"))
        return b""


def has_lasting_store() -> bool:
    """Return whether the store belongs to torchrun's agent, so that it outlives the ranks."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def can_be_restarted() -> bool:
    """Return whether torchrun restarts the ranks if one dies."""
    return has_lasting_store() and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def open_attempt_store(topology: Topology, timeout: timedelta) -> Any:
    """Return a key-value store shared by the ranks of this attempt only.

    torchrun keeps one store over all restarts. In it torch would find the addresses of dead ranks
    and wait for them. The restart count does not identify an attempt: each node counts its own. So
    rank 0 generates a name for the attempt and answers each rank that asks for it with a token of
    its own; tokens of dead ranks get no further use.

    Args:
        topology: the ranks, and which of them this process is.
        timeout: longest time to wait for the others.

    Raises:
        RuntimeError: a rank did not arrive in time, or the store is gone.
    """
    store, _, _ = next(
        rendezvous("env://", topology.global_rank, topology.world_size, timeout=timeout)
    )
    agent_store = PrefixStore(_STORE_PREFIX, store)
    _agent_stores[:] = [agent_store]
    if topology.global_rank:
        token = uuid.uuid4().hex
        agent_store.set(f"asked/{topology.global_rank}", token)
        # a token and not the rank: an answer to a rank of an earlier attempt may be there still
        agent_store.wait([f"answers/{token}"], timeout)
        attempt_name = agent_store.get(f"answers/{token}").decode()
        agent_store.add(f"arrived/{attempt_name}", 1)
    else:
        attempt_name = _name_attempt(agent_store, topology.world_size, timeout)
    return PrefixStore(f"{_STORE_PREFIX}/{attempt_name}", store)


def _name_attempt(agent_store: Any, world_size: int, timeout: timedelta) -> str:
    """Generate the name of this attempt and answer the ranks until all have it."""
    attempt_name = uuid.uuid4().hex
    end = time.monotonic() + timeout.total_seconds()
    answered_tokens: dict[int, bytes] = {}
    # answered by token and not by rank: a rank that died may have asked under the same number
    while agent_store.add(f"arrived/{attempt_name}", 0) < world_size - 1:
        for rank in range(1, world_size):
            key = f"asked/{rank}"
            token = agent_store.get(key) if agent_store.check([key]) else b""
            if token and answered_tokens.get(rank) != token:
                agent_store.set(f"answers/{token.decode()}", attempt_name)
                answered_tokens[rank] = token
        if time.monotonic() > end:
            raise RuntimeError(f"not all of {world_size} processes have come within {timeout}.")
        time.sleep(_ATTEMPT_POLL_S)
    return attempt_name

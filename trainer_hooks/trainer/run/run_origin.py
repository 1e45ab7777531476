"""The origin of a run and the identity of its process, as a checkpoint's summary holds them."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trainer_hooks._lazy import class_if_loaded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.callbacks.reporting.run_config import RunConfigCallback
    from trainer_hooks.checkpoint.seal import CheckpointSummary

_DIGITS = 16


def compute_run_origin(hparams: Mapping[str, Any] | None, callbacks: Iterable[Any] = ()) -> str:
    """Return a digest that a restart of this run shares, and other runs do not.

    It covers the command line, without the program's folder, and the module's hyperparameters. In
    a notebook the command line is the server's, and is left out. If the run was made from a
    config, the config replaces the command line.

    Args:
        hparams: the module's hyperparameters, as checkpoints hold them.
        callbacks: the run's callbacks, which may include its config.
    """
    from trainer_hooks.callbacks.reporting.run_facts import command  # without secrets

    kind = class_if_loaded("trainer_hooks.callbacks.reporting.run_config", "RunConfigCallback")
    configs = cast(
        "list[RunConfigCallback]",
        [callback for callback in callbacks if isinstance(callback, kind)],
    )
    program, *arguments = command(sys.argv or [""])
    told = [] if "ipykernel" in sys.modules else [Path(program).name, *arguments]
    if configs:
        told = [_plain(configs[0].identity)]
    text = "\0".join([*told, _plain(dict(hparams or {}))])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGITS]


def process_identity() -> str:
    """Return a text that identifies this process among all, on this machine and elsewhere."""
    return _identity_of(os.getpid())


@cache
def _identity_of(pid: int) -> str:  # by pid: a forked process has a copy of this cache
    from trainer_hooks.callbacks.reporting.run_facts import process_start_time

    # with the start time, since the system reuses process ids
    return f"{_machine()} {pid} {process_start_time(pid)}"


def is_running_elsewhere(summary: CheckpointSummary) -> bool:
    """Return whether another live process of this machine saved a checkpoint."""
    return is_live_elsewhere(summary.process)


def is_live_elsewhere(identity: str) -> bool:
    """Return whether a `process_identity` is that of another live process of this machine."""
    from trainer_hooks.callbacks.reporting.run_facts import process_start_time

    machine, _, rest = identity.partition(" ")
    pid, _, started = rest.partition(" ")
    if machine != _machine() or not pid.isdigit() or int(pid) == os.getpid():
        return False
    # None where no such process is: that equals no text
    return process_start_time(int(pid)) == started


def _machine() -> str:
    """Return a digest of this machine's name; the name itself stays out of files."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:_DIGITS]


def _plain(value: Any) -> str:
    """Return a text that is equal in every process for equal values."""
    if isinstance(value, Mapping):
        # sorted, and not json or pickle: sets have another order in each process
        return str(sorted((repr(key), _plain(item)) for key, item in value.items()))
    if isinstance(value, set | frozenset):
        return str(sorted(map(_plain, value)))
    if isinstance(value, list | tuple):
        return str([_plain(item) for item in value])
    return repr(value)

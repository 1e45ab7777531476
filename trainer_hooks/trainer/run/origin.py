"""Origin: what a checkpoint says of the run and the process that saved it."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import class_if_loaded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainer_hooks.checkpoint import Summary

__all__ = ["is_at_work_elsewhere", "origin_of", "this_process"]

_DIGITS = 16


def origin_of(hparams: Mapping[str, Any] | None, callbacks: Iterable[Any] = ()) -> str:
    """Return what tells a run from others in one place, and is the same when it is started again.

    It is a digest of the command line, without the folder of the program, and of the module's
    hyperparameters; in a notebook, whose command line is its server's, of these alone. Where the
    run was made from a config, that stands in the place of the command line.

    Args:
        hparams: what checkpoints hold of the module's hyperparameters.
        callbacks: those of the run, among which its config may be.
    """
    from trainer_hooks.callbacks.reporting.run_facts import command  # it leaves secrets out

    kind = class_if_loaded("trainer_hooks.callbacks.reporting.run_config", "RunConfig")
    configs: list[Any] = [callback for callback in callbacks if isinstance(callback, kind)]
    program, *arguments = command(sys.argv or [""])
    told = [] if "ipykernel" in sys.modules else [Path(program).name, *arguments]
    if configs:
        told = [_plain(configs[0].identity)]
    text = "\0".join([*told, _plain(dict(hparams or {}))])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGITS]


def this_process() -> str:
    """Return what tells this process from all others, on this machine and elsewhere."""
    from trainer_hooks.callbacks.reporting.run_facts import process_started

    return f"{_machine()} {os.getpid()} {process_started(os.getpid())}"


def is_at_work_elsewhere(summary: Summary) -> bool:
    """Return whether another process of this machine, which is there still, saved a checkpoint."""
    from trainer_hooks.callbacks.reporting.run_facts import process_started

    machine, _, rest = summary.process.partition(" ")
    pid, _, started = rest.partition(" ")
    if machine != _machine() or not pid.isdigit() or int(pid) == os.getpid():
        return False
    return process_started(int(pid)) == started


def _machine() -> str:
    """Return a digest of this machine's name, which is nobody's business in a file."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:_DIGITS]


def _plain(value: Any) -> str:
    """Return a text that is the same in each process for equal values."""
    if isinstance(value, Mapping):
        return str(sorted((repr(key), _plain(item)) for key, item in value.items()))
    if isinstance(value, set | frozenset):
        return str(sorted(map(_plain, value)))
    if isinstance(value, list | tuple):
        return str([_plain(item) for item in value])
    return repr(value)

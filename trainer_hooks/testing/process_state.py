"""Read the state of the whole process, compare two readings, and restore the first one.

It is the state that a callback can change for everybody: torch's global switches, threads, signal
handlers, warning filters, environment variables, the working directory, streams, open files.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.hooks.isolation import restore_handlers, signal_handlers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_JOIN_SECONDS = 1.0
"""How long to wait for a thread that is ending."""

ProcessState = dict[str, Any]
"""A reading: the value of each setting by its name."""


@dataclass(frozen=True, slots=True)
class ProcessChange:
    """A setting of the process that has another value than before.

    Attributes:
        what: the setting's name.
        before: its earlier value, as text.
        after: its value now, as text.
        is_restorable: whether `restored_process_state` puts it back, so that a second run shows it
            again if it changes it again.
    """

    what: str
    before: str
    after: str
    is_restorable: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.before} before, {self.after} afterwards"


@dataclass(frozen=True, slots=True)
class _Setting:
    """A setting of the process: its name, its reader, and its writer if it can be restored.

    A value that is a dict is compared key by key. The warnings are restored without a writer.
    """

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], object] | None = None

    @property
    def is_restorable(self) -> bool:
        """Whether `restored_process_state` puts it back."""
        return self.restore is not None or self.name == "warnings"


def read_process_state() -> ProcessState:
    """Read every setting of the process."""
    return {setting.name: setting.read() for setting in _SETTINGS}


def process_changes(before: ProcessState) -> tuple[ProcessChange, ...]:
    """Compare the process with an earlier reading; wait for threads that are ending."""
    # a thread that was told to end in `teardown` may take a moment
    for thread in threading.enumerate():
        if thread not in before["threads"] and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)
    changes: list[ProcessChange] = []
    for setting in _SETTINGS:
        old, new = before[setting.name], setting.read()
        if isinstance(old, dict):
            changes += _changed_items(setting, old, new)
        elif old != new:
            changes.append(
                ProcessChange(setting.name, _as_text(old), _as_text(new), setting.is_restorable)
            )
    return tuple(changes)


@contextmanager
def restored_process_state() -> Iterator[None]:
    """Restore every setting that can be restored when the block ends, also by an error."""
    before = read_process_state()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for setting in _SETTINGS:
            value = before[setting.name]
            # only a change: to set torch's threads or a signal handler again is not without effect
            if setting.restore is not None and setting.read() != value:
                setting.restore(value)


def _changed_items(
    setting: _Setting, before: dict[Any, Any], after: dict[Any, Any]
) -> Iterator[ProcessChange]:
    """Yield the keys of a setting that were added, removed or changed."""
    for key in dict.fromkeys((*before, *after)):
        # by identity first: comparing two filters or handlers may run code of theirs
        if before.get(key) is not after.get(key) and before.get(key) != after.get(key):
            key_name = key.name if isinstance(key, signal.Signals | threading.Thread) else key
            old, new = (_as_text(side.get(key, "nothing")) for side in (before, after))
            yield ProcessChange(f"{setting.name} {key_name!r}", old, new, setting.is_restorable)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _set_environment(variables: dict[str, str]) -> None:
    # in place: replacing os.environ would leave C code with the old variables
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def _root_logger() -> dict[str, Any]:
    root = logging.getLogger()
    return {"handlers": list(root.handlers), "level": root.level}


def _set_root_logger(state: dict[str, Any]) -> None:
    root = logging.getLogger()
    root.setLevel(state["level"])
    root.handlers[:] = state["handlers"]


def _determinism() -> dict[str, bool]:
    return {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
    }


def _set_determinism(state: dict[str, bool]) -> None:
    torch.use_deterministic_algorithms(state["algorithms"], warn_only=state["warn only"])
    torch.backends.cudnn.deterministic = state["cudnn.deterministic"]
    torch.backends.cudnn.benchmark = state["cudnn.benchmark"]


def _open_files() -> dict[str, str]:
    """List the paths of the open files; empty where the system has no /proc."""
    paths = {}
    folder = Path("/proc/self/fd")
    for descriptor in folder.iterdir() if folder.is_dir() else ():
        try:
            target = str(descriptor.readlink())
        except OSError:  # closed since then, as the descriptor that lists the folder is
            continue
        # devices, kernel tables and anonymous memory are no files that a callback forgot to close
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/memfd:")):
            # by path: the system gives the number of a closed descriptor to the next file
            paths[target] = "open"
    return paths


def _set_streams(streams: dict[str, Any]) -> None:
    for name, stream in streams.items():
        setattr(sys, name, stream)


_STREAMS = ("stdin", "stdout", "stderr", "excepthook", "unraisablehook")

_SETTINGS: tuple[_Setting, ...] = (
    _Setting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    _Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    _Setting("determinism", _determinism, _set_determinism),
    _Setting("torch threads", torch.get_num_threads, torch.set_num_threads),
    _Setting("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    _Setting(
        "float32 matmul precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    # no thread can be ended from outside, so there is nothing to restore
    _Setting("threads", lambda: dict.fromkeys(threading.enumerate(), "running")),
    _Setting("signal handler", signal_handlers, restore_handlers),
    _Setting(  # restored by `warnings.catch_warnings`
        "warnings", lambda: {"filters": list(warnings.filters), "show": warnings.showwarning}
    ),
    _Setting("environment variable", lambda: dict(os.environ), _set_environment),
    _Setting("working directory", os.getcwd, os.chdir),
    _Setting("root logger's", _root_logger, _set_root_logger),
    _Setting("sys", lambda: {name: getattr(sys, name) for name in _STREAMS}, _set_streams),
    _Setting(
        "garbage collection", gc.isenabled, lambda is_on: gc.enable() if is_on else gc.disable()
    ),
    _Setting("file", _open_files),
)

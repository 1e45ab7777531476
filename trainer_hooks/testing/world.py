"""What belongs to the whole process: read it, compare two readings, put it back."""

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Change", "changes", "read", "restored"]

_PATIENCE = 1.0
"""Seconds that a thread which is ending is given to end."""

Reading = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """Something of the process that is not what it was.

    Attributes:
        what: its name.
        before: what it was.
        after: what it is.
    """

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before} before, {self.after} afterwards"


@dataclass(frozen=True, slots=True)
class _Probe:
    """One thing of the process: how to read it, and how to put it back if that can be done.

    A reading that is a dict is compared key by key.
    """

    what: str
    read: Callable[[], Any]
    restore: Callable[[Any], object] | None = None


def read() -> Reading:
    """Return how everything stands."""
    return {probe.what: probe.read() for probe in _PROBES}


def changes(before: Reading) -> tuple[Change, ...]:
    """Return what is different from an earlier reading; threads that are ending are waited for."""
    for thread in threading.enumerate():
        if thread not in before["threads"] and thread is not threading.current_thread():
            thread.join(_PATIENCE)
    found: list[Change] = []
    for probe in _PROBES:
        was, now = before[probe.what], probe.read()
        if isinstance(was, dict):
            found += _changed_items(probe.what, was, now)
        elif was != now:
            found.append(Change(probe.what, _shown(was), _shown(now)))
    return tuple(found)


@contextmanager
def restored() -> Iterator[None]:
    """Put everything that can be put back as it was, whatever happened inside."""
    before = read()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for probe in _PROBES:
            was = before[probe.what]
            if probe.restore is not None and probe.read() != was:
                probe.restore(was)


def _changed_items(what: str, was: dict[Any, Any], now: dict[Any, Any]) -> Iterator[Change]:
    for key in dict.fromkeys((*was, *now)):
        if was.get(key) is not now.get(key) and was.get(key) != now.get(key):
            named = key.name if isinstance(key, signal.Signals | threading.Thread) else key
            before, after = (_shown(side.get(key, "nothing")) for side in (was, now))
            yield Change(f"{what} {named!r}", before, after)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _signal_handlers() -> dict[signal.Signals, Any]:
    known = (number for number in signal.valid_signals() if isinstance(number, signal.Signals))
    return {number: signal.getsignal(number) for number in sorted(known)}


def _set_signal_handlers(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        # a handler that was not installed from Python reads as None and cannot be set
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _set_environment(variables: dict[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


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
    """Return the files that are open, by path; nothing where the system does not list them."""
    found = {}
    folder = Path("/proc/self/fd")
    for entry in folder.iterdir() if folder.is_dir() else ():
        try:
            target = str(entry.readlink())
        except OSError:  # closed since, as the one that lists the folder
            continue
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/memfd:")):
            found[target] = "open"
    return found


def _set_streams(streams: dict[str, Any]) -> None:
    for name, stream in streams.items():
        setattr(sys, name, stream)


_STREAMS = ("stdin", "stdout", "stderr", "excepthook", "unraisablehook")

_PROBES: tuple[_Probe, ...] = (
    _Probe("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    _Probe("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    _Probe("determinism", _determinism, _set_determinism),
    _Probe("torch threads", torch.get_num_threads, torch.set_num_threads),
    _Probe("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    _Probe(
        "float32 matmul precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    _Probe("threads", lambda: dict.fromkeys(threading.enumerate(), "running")),
    _Probe("signal handler", _signal_handlers, _set_signal_handlers),
    _Probe(  # put back by catch_warnings
        "warnings", lambda: {"filters": list(warnings.filters), "show": warnings.showwarning}
    ),
    _Probe("environment variable", lambda: dict(os.environ), _set_environment),
    _Probe("working directory", os.getcwd, os.chdir),
    _Probe(
        "root logger's",
        lambda: {
            "handlers": list(logging.getLogger().handlers),
            "level": logging.getLogger().level,
        },
        _set_root_logger,
    ),
    _Probe("sys", lambda: {name: getattr(sys, name) for name in _STREAMS}, _set_streams),
    _Probe(
        "garbage collection", gc.isenabled, lambda is_on: gc.enable() if is_on else gc.disable()
    ),
    _Probe("file", _open_files),
)

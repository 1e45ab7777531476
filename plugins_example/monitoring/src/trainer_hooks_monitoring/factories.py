"""What the entry points refer to: callbacks as the environment configures them.

Each factory is called once for each Trainer, and reads the environment then.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from trainer_hooks_monitoring.event_log import EventLog
    from trainer_hooks_monitoring.exporter import PrometheusExporter

__all__ = ["make_event_log", "make_exporter"]

_PATH = "TRAINER_HOOKS_EVENT_LOG"
_PRINT = "TRAINER_HOOKS_EVENT_LOG_PRINT"
_PORT = "TRAINER_HOOKS_PROMETHEUS_PORT"
_ADDRESS = "TRAINER_HOOKS_PROMETHEUS_ADDRESS"
_YES = ("1", "true", "yes", "on")
_NO = ("", "0", "false", "no", "off")


def make_event_log() -> EventLog:
    """Return the event log.

    `TRAINER_HOOKS_EVENT_LOG` names the file that it appends to, without it there is none;
    `TRAINER_HOOKS_EVENT_LOG_PRINT=1` lets it print a line an epoch. Without both it only counts.

    Raises:
        OptionError: a variable is outside its rule.
    """
    from trainer_hooks_monitoring.event_log import EventLog

    path, prints = _text(_PATH), _switch(_PRINT)
    try:
        return EventLog(path or None, prints=prints)
    except OptionError as error:
        raise OptionError(f"{_PATH}={path!r} in the environment: {error}") from error


def make_exporter() -> list[PrometheusExporter]:
    """Return the exporter where `TRAINER_HOOKS_PROMETHEUS_PORT` is set, and nothing otherwise.

    `TRAINER_HOOKS_PROMETHEUS_ADDRESS` is the address to listen at, `127.0.0.1` unless it is set.

    Raises:
        OptionError: a variable is outside its rule.
    """
    text = _text(_PORT)
    if not text:
        return []
    if not (text.isascii() and text.isdecimal() and int(text) <= 65535):
        raise OptionError(
            f"{_PORT}={text!r} in the environment: it must be a port, a whole number from 0 to "
            "65535, where 0 takes any that is free. Set it to one such as 9400, or unset it to "
            "export nothing."
        )
    from trainer_hooks_monitoring.exporter import PrometheusExporter

    return [PrometheusExporter(int(text), _text(_ADDRESS) or "127.0.0.1")]


def _text(name: str) -> str:
    return os.environ.get(name, "").strip()


def _switch(name: str) -> bool:
    """Return whether a variable says yes.

    Raises:
        OptionError: it says neither yes nor no.
    """
    text = _text(name).lower()
    if text not in (*_YES, *_NO):
        raise OptionError(
            f"{name}={text!r} in the environment: it must be one of {', '.join(_YES)}, "
            f"{', '.join(filter(None, _NO))}. Set it to 1 or 0, or unset it."
        )
    return text in _YES

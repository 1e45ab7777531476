"""The package's one logger, and warnings that point at the user's line."""

from __future__ import annotations

import logging
import sys
import warnings

__all__ = ["be_heard", "log", "log_nothing_below_errors", "warn"]

log = logging.getLogger("trainer_hooks")

_PACKAGE = __name__.partition(".")[0]


class _Unheard(logging.Handler):
    """Write on the standard error what no other handler is given.

    It is asked at each record, so nothing is written twice however late logging is set up, and the
    stream is that of now: lines go above a progress bar.
    """

    def emit(self, record: logging.LogRecord) -> None:
        others = [handler for handler in log.handlers if handler is not self]
        above = log.parent if log.propagate else None
        if not others and (above is None or not above.hasHandlers()):
            print(self.format(record), file=sys.stderr, flush=True)


_unheard = _Unheard()


def be_heard() -> None:
    """Let what the package logs from INFO on be seen, also where nobody set up logging.

    A level that the user gave the logger `trainer_hooks` stays.
    """
    log.addHandler(_unheard)  # a second time does nothing
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def log_nothing_below_errors() -> None:
    """Let one of several processes leave to the first what is told and warned of."""
    log.addFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def warn(message: str, category: type[Warning]) -> None:
    """Give a warning that points at the first caller outside this package.

    However deep in the package a fault is found, the line that is shown is the user's own; and
    Python's "once per line" then counts the user's lines.
    """
    if _is_error in log.filters:
        return
    level, frame = 2, sys._getframe(1)  # noqa: SLF001 - documented, and what warnings itself uses
    while frame.f_back is not None and _is_own(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_own(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")

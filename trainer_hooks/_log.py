"""The package's one logger, and warnings that point at the user's line."""

from __future__ import annotations

import logging
import sys
import warnings

from trainer_hooks._output import losing_output
from trainer_hooks._text import printable_lines

log = logging.getLogger("trainer_hooks")

_PACKAGE = __name__.partition(".")[0]


class _FallbackHandler(logging.Handler):
    """Write a record to the standard error if no other handler receives it.

    It looks for other handlers at each record, so that nothing is written twice if the user sets up
    logging later. It also looks up `sys.stderr` at each record: a progress bar replaces that stream
    to print lines above itself.
    """

    def emit(self, record: logging.LogRecord) -> None:
        others = [handler for handler in log.handlers if handler is not self]
        above = log.parent if log.propagate else None
        if others or (above is not None and above.hasHandlers()):
            return
        if sys.stderr is not None:  # else `print` would take the standard output
            with losing_output():
                print(printable_lines(self.format(record)), file=sys.stderr, flush=True)


_fallback = _FallbackHandler()


def ensure_visible_log() -> None:
    """Show the package's log records from INFO on, also if the user has not set up logging.

    A level that the user gave the logger `trainer_hooks` stays.
    """
    log.addHandler(_fallback)  # adding it a second time does nothing
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def silence_below_errors() -> None:
    """Drop log records below ERROR and all warnings, in ranks that leave them to rank 0."""
    log.addFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def warn(message: str, category: type[Warning]) -> None:
    """Give a warning that points at the first caller outside this package.

    So the warning shows the user's own line, however deep in the package it is given, and Python's
    rule "once per line" counts the user's lines. Control characters are escaped, as a message may
    quote names and files of others.
    """
    # the filter marks a rank that leaves messages to rank 0, and holds for warnings too
    if _is_error in log.filters:
        return
    level, frame = 2, sys._getframe(1)  # noqa: SLF001 - documented, and what warnings itself uses
    while frame.f_back is not None and _is_passed_over(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    with losing_output():
        warnings.warn(printable_lines(message), category, stacklevel=level)


def _is_passed_over(module: str) -> bool:
    # contextlib's frames stand between two of ours where one is a context manager
    return module == "contextlib" or is_own_module(module)


def is_own_module(module: str) -> bool:
    """Return whether a module's name is one of this package."""
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")

"""StreamRedirection: print and log above progress bars while they are drawn."""

from __future__ import annotations

import logging
import re
import sys
from threading import RLock
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["StreamRedirection", "is_terminal"]

_CLEAR_LINE = "\r\x1b[K"
_DRAWING = re.compile(r"\r|\x1b\[\d*[A-HJKf]")
"""Control characters that move the cursor or erase."""


class StreamRedirection:
    """A redirection of the standard streams on a terminal on which bars are drawn.

    While it is started, `print`, warnings, tracebacks and the handlers of `logging` write whole
    lines above the bars. A stream that is no terminal, such as a file, is left alone.

    Args:
        write: writes text above the bars; called with the text and its original stream.
    """

    def __init__(self, write: Callable[[str, TextIO], None]) -> None:
        self._write = write
        self._wrappers: dict[str, _LinesAboveBars] = {}

    def start(self, output: TextIO) -> None:
        """Redirect text above the bars on `output`, if that is a standard stream."""
        if output is not sys.stdout and output is not sys.stderr:
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is output or is_terminal(stream):
                above = self._wrappers[name] = _LinesAboveBars(stream, self._write)
                setattr(sys, name, above)
                _redirect_log_handlers(stream, above)

    def stop(self) -> None:
        """Restore the streams, and write out an incomplete line."""
        for name, above in self._wrappers.items():
            above.close_wrapper()
            # A stream that the user's code replaced meanwhile stays.
            if getattr(sys, name) is above:
                setattr(sys, name, above.stream)
            _redirect_log_handlers(above, above.stream)
        self._wrappers.clear()


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal; a replacement without `isatty` is none."""
    ask = getattr(stream, "isatty", None)
    return ask is not None and bool(ask())


class _LinesAboveBars:
    """A stream that writes whole lines above the bars, and is in all else the stream it wraps."""

    def __init__(self, stream: TextIO, write: Callable[[str, TextIO], None]) -> None:
        self.stream = stream
        # tqdm unwraps streams by this attribute to see that two bars share a terminal
        self._wrapped = stream
        self._write_above: Callable[[str, TextIO], None] | None = write
        self._incomplete_line = ""
        self._lock = RLock()

    def __eq__(self, other: object) -> bool:
        return self is other or self.stream == other

    def __hash__(self) -> int:
        return hash(self.stream)

    def write(self, text: str) -> int:
        with self._lock:
            if self._write_above is None:
                return self.stream.write(text)
            if "\n" not in text and _DRAWING.search(text):  # another library's bar
                self._pass_on()
                return self.stream.write(text)
            if text == "\n" and not self._incomplete_line:  # an empty line, or a move of the cursor
                self._incomplete_line = text
                return len(text)
            lines, end, self._incomplete_line = (self._incomplete_line + text).rpartition("\n")
            if end:
                self._write_above(lines + end, self.stream)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._lock:
            if self._incomplete_line == "\n":
                self._pass_on()
            elif self._incomplete_line and self._write_above is not None:
                # a prompt of input() must be visible before its line is complete
                self.stream.write(_CLEAR_LINE + self._incomplete_line)
            self.stream.flush()

    def close_wrapper(self) -> None:
        """Write out an incomplete line; from now on only pass text on."""
        with self._lock:
            self._write_above = None
            self._pass_on()

    def _pass_on(self) -> None:
        begun, self._incomplete_line = self._incomplete_line, ""
        if begun:
            self.stream.write(begun)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _redirect_log_handlers(
    before: TextIO | _LinesAboveBars, after: TextIO | _LinesAboveBars
) -> None:
    """Let the handlers of `logging` that write to one stream write to another."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        # the dict also holds placeholders of parent names, which have no handlers
        for handler in getattr(logger, "handlers", ()):
            # a handler keeps the stream object that it was made with, whatever sys.stderr is now
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(cast("TextIO", after))

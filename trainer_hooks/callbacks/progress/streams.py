"""Streams: what is printed or logged while bars are drawn goes above them."""

from __future__ import annotations

import logging
import re
import sys
from threading import RLock
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Streams", "is_terminal"]

_CLEAR_LINE = "\r\x1b[K"
_DRAWING = re.compile(r"\r|\x1b\[\d*[A-HJKf]")
"""What moves the cursor or erases."""


class Streams:
    """Stand between the standard streams and a terminal on which bars are drawn.

    While it is started, `print`, warnings, tracebacks and the handlers of `logging` write whole
    lines above the bars. A stream that is no terminal, as one that goes to a file, is left alone.

    Args:
        write: writes text above the bars; it is given the text and the stream that it is for.
    """

    def __init__(self, write: Callable[[str, TextIO], None]) -> None:
        self._write = write
        self._replaced: dict[str, _Above] = {}

    def start(self, output: TextIO) -> None:
        """Let lines go above what is drawn on `output`, if that is a standard stream."""
        if output is not sys.stdout and output is not sys.stderr:
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is output or is_terminal(stream):
                above = self._replaced[name] = _Above(stream, self._write)
                setattr(sys, name, above)
                _hand_over(stream, above)

    def stop(self) -> None:
        """Put back the streams; what has no end of line yet is written out."""
        for name, above in self._replaced.items():
            above.retire()
            if getattr(sys, name) is above:
                setattr(sys, name, above.stream)
            _hand_over(above, above.stream)
        self._replaced.clear()


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal; what stands in for one may not be able to tell."""
    ask = getattr(stream, "isatty", None)
    return ask is not None and bool(ask())


class _Above:
    """A stream whose whole lines go above the bars; all else it does as the one it stands for."""

    def __init__(self, stream: TextIO, write: Callable[[str, TextIO], None]) -> None:
        self.stream = stream
        self._wrapped = stream  # how tqdm finds out that two of its bars are on one terminal
        self._write_above: Callable[[str, TextIO], None] | None = write
        self._begun = ""
        self._lock = RLock()

    def __eq__(self, other: object) -> bool:
        return self is other or self.stream == other

    def __hash__(self) -> int:
        return hash(self.stream)

    def write(self, text: str) -> int:
        with self._lock:
            if self._write_above is None:
                return self.stream.write(text)
            if "\n" not in text and _DRAWING.search(text):  # somebody else's bar
                self._pass_on()
                return self.stream.write(text)
            if text == "\n" and not self._begun:  # an empty line, or somebody moves the cursor
                self._begun = text
                return len(text)
            lines, end, self._begun = (self._begun + text).rpartition("\n")
            if end:
                self._write_above(lines + end, self.stream)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._lock:
            if self._begun == "\n":
                self._pass_on()
            elif self._begun and self._write_above is not None:
                # such as the question of input(): it has to be seen before its line is complete
                self.stream.write(_CLEAR_LINE + self._begun)
            self.stream.flush()

    def retire(self) -> None:
        """Write what has no end of line yet; from now on only pass on what is written."""
        with self._lock:
            self._write_above = None
            self._pass_on()

    def _pass_on(self) -> None:
        begun, self._begun = self._begun, ""
        if begun:
            self.stream.write(begun)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _hand_over(before: TextIO | _Above, after: TextIO | _Above) -> None:
    """Let the handlers of `logging` that write to one stream write to another."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        for handler in getattr(logger, "handlers", ()):  # a name in between has none
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(cast("TextIO", after))

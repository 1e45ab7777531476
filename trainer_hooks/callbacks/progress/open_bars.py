"""OpenBars: the bars that are shown now, and what they are drawn on."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks.callbacks.progress.bar_drawing import Phase, PlainLines
from trainer_hooks.callbacks.progress.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from trainer_hooks.callbacks.progress.pace import Pace

__all__ = ["Canvas", "OpenBars"]


class Canvas(Protocol):
    """What bars are drawn on."""

    def is_terminal(self) -> bool:
        """Return whether what is written can be drawn over."""

    def stream(self) -> TextIO | None:
        """Return the stream that is drawn on, or None where text and bars do not share one."""

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Show a bar, or start the one that is there anew."""

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar; without `metrics` those that were drawn last stay."""

    def close_bar(self, phase: Phase) -> None:
        """Close a bar; one inside another and that of the sanity check leave no trace."""

    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines above the bars."""


class OpenBars:
    """Open, draw and close bars on a canvas, or write lines where it cannot be drawn on.

    Args:
        canvas: what to draw on.

    Attributes:
        paces: what is open, in the order of opening, and how fast it goes.
    """

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._lines: PlainLines | None = None
        self._streams = Streams(canvas.write_above)
        self.paces: dict[Phase, Pace] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is drawn out of copies and pickles."""
        return {**vars(self), "_lines": None, "paces": {}}

    @property
    def are_lines(self) -> bool:
        """Whether lines are written in place of bars."""
        return self._lines is not None

    def begin(
        self,
        phase: Phase,
        pace: Pace,
        description: str,
        total: int | float,
        count: int = 0,
        every: int = 1,
        is_resumed: bool = False,
    ) -> None:
        """Open a bar, or start the one that is open anew."""
        if not self.paces:  # what is written to may be another one than in the last run
            self._lines = None if self._canvas.is_terminal() else PlainLines()
            stream = self._canvas.stream()
            if self._lines is None and stream is not None:
                self._streams.start(stream)
        self.paces[phase] = pace
        known = None if math.isinf(total) else int(total)
        pace.start(count, known, every, is_terminal=self._lines is None, is_resumed=is_resumed)
        (self._lines or self._canvas).open_bar(phase, description, pace)

    def draw(self, phase: Phase, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar that is open."""
        pace, began = self.paces[phase], monotonic()
        (self._lines or self._canvas).draw_bar(phase, pace, metrics)
        pace.note_drawing(began)

    def close(self, phase: Phase) -> None:
        """Close a bar that is open."""
        self.paces.pop(phase).stop()
        try:
            (self._lines or self._canvas).close_bar(phase)
        finally:
            if not self.paces:
                self._streams.stop()

    def close_all(self) -> None:
        """Draw how far each bar that is open came, and close it."""
        for phase in reversed(list(self.paces)):
            try:
                self.draw(phase, None)
            finally:
                self.close(phase)

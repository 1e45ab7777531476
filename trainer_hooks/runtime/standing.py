"""Standing: whether a thread stands in a collective, which one, and since when."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Note", "Standing", "Wait"]

_TORCH = str(Path(torch.__file__).parent)
_COLLECTIVES = f"{_TORCH}/distributed/"
_GRADIENTS = (f"{_TORCH}/autograd/graph.py", f"{_TORCH}/nn/parallel/distributed.py")
_BETWEEN_TWO = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
"""What two processes do with each other, each of which stands in another call than the other."""

_IDLE = 0.02
"""The share of a processor that a process takes at most while it does nothing but wait."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a process has said that it waits for.

    Attributes:
        what: it, in words.
        since: when that began.
        computes: whether it also computes meanwhile, so that it may not wait yet.
    """

    what: str
    since: float
    computes: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """What a process is seen to wait for: a `Note` that holds, or a call of torch.distributed."""

    what: str
    since: float


class Standing:
    """Look again and again where a thread stands.

    A call of torch.distributed in which it stands all the time is a wait. A backward is one if the
    process does next to nothing meanwhile; it may compute.

    Args:
        thread: its number.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._frame: FrameType | None = None
        self._place = -1
        self._since = self._used = 0.0

    def look(self, note: Note | None) -> Wait | None:
        """Return what the thread waits for, if it does.

        Args:
            note: what it has said itself.
        """
        if note is not None and not note.computes:
            self._frame = None
            return Wait(note.what, note.since)
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented
        if frame is None or not frame.f_code.co_filename.startswith((_COLLECTIVES, *_GRADIENTS)):
            self._frame = None
            return None
        now, used = time.monotonic(), time.process_time()
        if frame is not self._frame or frame.f_lasti != self._place:
            # it is kept, so that no other one can be taken for it
            self._frame, self._place, self._since, self._used = frame, frame.f_lasti, now, used
        if frame.f_code.co_filename.startswith(_COLLECTIVES):
            name = _name_of(frame)
            return None if name in _BETWEEN_TWO else Wait(f"torch.distributed.{name}", self._since)
        if note is None or used - self._used > _IDLE * (now - self._since) + _IDLE:
            return None
        return Wait(note.what, self._since)

    def frame(self) -> FrameType | None:
        """Return the call that the thread is in."""
        return sys._current_frames().get(self._thread)  # noqa: SLF001 - documented


def _name_of(frame: FrameType) -> str:
    """Return the name of the outermost function of torch.distributed that a call stands in."""
    name = frame.f_code.co_name
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_filename.startswith(_COLLECTIVES):
        if outer.f_code.co_name != "wrapper":
            name = outer.f_code.co_name
        outer = outer.f_back
    return name

"""Detect whether a thread waits in a collective, in which one, and since when."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["DeclaredWait", "DetectedWait", "WaitDetector"]

_TORCH = str(Path(torch.__file__).parent)
_DISTRIBUTED_CODE = f"{_TORCH}/distributed/"
_BACKWARD_CODE = (f"{_TORCH}/autograd/graph.py", f"{_TORCH}/nn/parallel/distributed.py")
_POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
"""Calls between two ranks, which wait in different functions while they communicate."""

_IDLE_CPU_FRACTION = 0.02
"""Largest fraction of a CPU that a process uses while it only waits."""


@dataclass(frozen=True, slots=True)
class DeclaredWait:
    """A wait that a rank has declared itself.

    Attributes:
        purpose: reason of the wait, for messages.
        since: its start, by `time.monotonic`.
        computes: whether the rank computes first, so that it may not wait yet.
    """

    purpose: str
    since: float
    computes: bool = False


@dataclass(frozen=True, slots=True)
class DetectedWait:
    """A wait that was detected: a declared one that holds, or a call of torch.distributed."""

    purpose: str
    since: float


class WaitDetector:
    """Detect a wait by sampling the stack of a thread.

    If the thread is at the same instruction inside torch.distributed at each sample, it waits. A
    backward is a wait only if the process uses next to no CPU time meanwhile: it may compute.

    Args:
        thread: identifier of the thread, from `threading.get_ident`.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._frame: FrameType | None = None
        self._instruction = -1
        self._since = self._cpu_time = 0.0

    def detect(self, declared: DeclaredWait | None) -> DetectedWait | None:
        """Sample the thread's stack and return its wait, or None.

        Args:
            declared: the wait that the rank declared, or None.
        """
        if declared is not None and not declared.computes:
            self._frame = None
            return DetectedWait(declared.purpose, declared.since)
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - documented
        if frame is None or not frame.f_code.co_filename.startswith(
            (_DISTRIBUTED_CODE, *_BACKWARD_CODE)
        ):
            self._frame = None
            return None
        # CPU time of all threads: a backward computes in threads of autograd.
        now, cpu_time = time.monotonic(), time.process_time()
        # The same frame at the same instruction means that the thread has not moved since the last
        # sample.
        if frame is not self._frame or frame.f_lasti != self._instruction:
            # The frame itself is kept, not its id: a new frame could get the same id.
            self._frame, self._instruction, self._since, self._cpu_time = (
                frame,
                frame.f_lasti,
                now,
                cpu_time,
            )
        if frame.f_code.co_filename.startswith(_DISTRIBUTED_CODE):
            name = _outermost_function(frame)
            return (
                None
                if name in _POINT_TO_POINT
                else DetectedWait(f"torch.distributed.{name}", self._since)
            )
        if (
            declared is None
            or cpu_time - self._cpu_time
            > _IDLE_CPU_FRACTION * (now - self._since) + _IDLE_CPU_FRACTION
        ):
            return None
        return DetectedWait(declared.purpose, self._since)

    def frame(self) -> FrameType | None:
        """Return the frame that the thread executes."""
        return sys._current_frames().get(self._thread)  # noqa: SLF001 - documented


def _outermost_function(frame: FrameType) -> str:
    """Return the name of the outermost function of torch.distributed on the stack of a frame."""
    name = frame.f_code.co_name
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_filename.startswith(_DISTRIBUTED_CODE):
        # torch decorates its collectives, and the decorator's function has this name.
        if outer.f_code.co_name != "wrapper":
            name = outer.f_code.co_name
        outer = outer.f_back
    return name

"""End all ranks within seconds if one of them fails, or if all wait for each other in vain."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._output import flush_output, losing_output
from trainer_hooks._text import printable_lines
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks.relay import current_hook_and_callback, error_summary_with_notes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from trainer_hooks.runtime.topology import Topology

_POLL_S = 0.5
"""Seconds between two looks at the store."""
_NOTICE_S = 3.0
"""Seconds that a rank has to notice by itself that another rank failed."""

_EXIT_S = 5.0
"""Seconds that a rank which failed, too, has to exit by itself."""


class RankWatchdog:
    """A thread that watches the other ranks, and ends this process if one of them fails.

    A process that waits in a collective runs no Python code: neither signals nor exceptions reach
    it. So the rank that fails writes its error to torch's key-value store, where the watchdog
    threads of the other ranks read it.

    The threads also detect a deadlock, in which all ranks wait for different collectives. Each rank
    publishes its wait once it has lasted for `patience` seconds, and rank 0 compares them. The wait
    may be in a collective that the user calls in a hook. As long as one rank computes, there is no
    deadlock.

    Args:
        store: torch's key-value store, shared by all ranks.
        topology: the ranks, and which of them this process is.
        patience: seconds that a rank waits before it publishes its wait.

    Attributes:
        run: number of the run, equal on all ranks.
        has_seen_failure: whether a rank failed, this one or another.
    """

    _runs_begun: ClassVar[int] = 0
    """Number of runs of all trainers in this process; every rank starts the same runs."""

    def __init__(self, store: Any, topology: Topology, patience: float) -> None:
        self._store = store
        self._topology = topology
        self._rank = topology.global_rank
        self.run = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._patience = patience
        self._declared_wait: Wait | None = None
        self._wait_detector = WaitDetector(0)
        self._published_wait = ""
        self._has_failed = threading.Event()
        self.has_seen_failure = False

    def start(self) -> None:
        """Start watching, at the start of a run.

        Raises:
            UsageError: a rank failed in an earlier run, so that the ranks are out of step.
        """
        if self.has_seen_failure:
            raise UsageError(
                "a process failed in the run before, so that the processes do not find together "
                "any more: start them anew."
            )
        # Of all trainers: a key of the store must not be one of an earlier run's.
        RankWatchdog._runs_begun += 1
        self.run = RankWatchdog._runs_begun
        self._wait_detector = WaitDetector(threading.get_ident())
        # A new event: the thread of the run before may still be about to read its own.
        self._stopped = threading.Event()
        self._has_failed.clear()
        self._declared_wait = None
        self._thread = threading.Thread(
            target=self._watch, args=(self._stopped,), name="trainer_hooks watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, at the end of a run."""
        self._stopped.set()
        if self._thread is not None:
            # Not for long: the thread may be inside a call to the store.
            self._thread.join(_POLL_S)

    def report_failure(self, error: BaseException) -> None:
        """Report the error of this rank to the others; only the first report is kept."""
        self._has_failed.set()
        self.has_seen_failure = True
        text = (
            f"rank {self._rank} of {self._topology.world_size} failed: "
            f"{error_summary_with_notes(error)}"
        )
        self.report_rank_failure(self._rank, text)

    def report_rank_failure(self, rank: int, text: str) -> None:
        """Report that a rank failed, which may have died without a report of its own."""
        # The rank that hosts the store may be gone; then the other ranks see a lost connection.
        with suppress(RuntimeError):
            # Sets the key only if it is missing: later failures follow from the first.
            self._store.compare_set(self._key("error"), "", f"{rank}\n{text}")

    def remote_failure(self) -> str:
        """Return the error that another rank reported, or an empty text."""
        try:
            rank, text = self._read_failure()
        except RuntimeError:
            return ""
        return text if text and rank != self._rank else ""

    def add_to_counter(self, purpose: str, number: int) -> int:
        """Add `number` to a counter that all ranks share, and return its new value."""
        return int(self._store.add(self._key(purpose), number))

    @contextmanager
    def waiting(self, purpose: str) -> Iterator[None]:
        """Declare that this rank waits for the others, for the time of the context."""
        self._declared_wait = Wait(purpose, time.monotonic())
        try:
            yield
        finally:
            self._declared_wait = None

    def begin_computing_wait(self, purpose: str) -> None:
        """Declare that this rank computes and then waits for the others, from here on."""
        self._declared_wait = Wait(purpose, 0.0, computes=True)

    def end_computing_wait(self) -> None:
        """Declare that the wait is over."""
        self._declared_wait = None

    def _key(self, purpose: str) -> str:
        """Return a key of the store that only this run uses."""
        return f"trainer_hooks/{self.run}/{purpose}"

    def _read_failure(self) -> tuple[int, str]:
        """Return rank and text of the first reported error; -1 and an empty text if none."""
        key = self._key("error")
        # Asked first, as `get` waits for a key that is missing.
        if not self._store.check([key]):
            return -1, ""
        rank, text = self._store.get(key).decode().split("\n", 1)
        return int(rank), text

    def _watch(self, stopped: threading.Event) -> None:
        """Poll the store until the run ends or a failure is read; the body of the thread."""
        previous_waits: dict[int, str] = {}
        while not stopped.wait(_POLL_S):
            try:
                rank, text = self._read_failure()
                if not text:
                    self._publish_wait()
                    previous_waits = self._compare_waits(previous_waits)
            except RuntimeError:  # the store's host is gone
                rank, text = -1, "the process that the others find each other by has ended"
            if text and not stopped.is_set():
                self._end_process(rank, text, stopped)
                return

    def _end_process(self, rank: int, text: str, stopped: threading.Event) -> None:
        """End this process if it does not exit by itself."""
        self.has_seen_failure = True
        if rank != self._rank and not self._has_failed.is_set():
            told = f"rank {self._rank}: {text}\nrank {self._rank}: ending, too"
            with losing_output():
                print(printable_lines(told), file=sys.stderr)
            flush_output()
            self._has_failed.wait(_NOTICE_S)
        if self._has_failed.is_set() and stopped.wait(_EXIT_S):
            return
        # os._exit flushes nothing.
        flush_output()
        # sys.exit would raise in this thread only, while the main thread stays in its collective.
        os._exit(1)

    def _publish_wait(self) -> None:
        """Write this rank's wait to the store once it has lasted long, and remove it afterwards."""
        wait, message = self._wait_detector.detect(self._declared_wait), ""
        if wait is not None and time.monotonic() - wait.since >= self._patience:
            hook = current_hook_and_callback(self._wait_detector.frame())
            message = f"{wait.since}:{wait.purpose}{f' in {hook}' if hook else ''}"
        # Only a change, so that a run which goes on sends nothing to the store.
        if message != self._published_wait:
            self._store.set(self._key(f"waits/{self._rank}"), message)
            self._published_wait = message

    def _compare_waits(self, previous_waits: dict[int, str]) -> dict[int, str]:
        """Report a deadlock if all ranks wait, and not for the same collective.

        Args:
            previous_waits: the waits by rank at the poll before.

        Returns:
            The waits by rank now; empty if a rank does not wait.
        """
        # Only rank 0 compares, and only while it waits: if one rank computes, there is no deadlock.
        if self._rank != 0 or not self._published_wait:
            return {}
        waits: dict[int, str] = {}
        for rank in range(self._topology.world_size):
            key = self._key(f"waits/{rank}")
            text = self._store.get(key).decode() if self._store.check([key]) else ""
            if not text:
                return {}
            waits[rank] = text
        descriptions = {rank: text.partition(":")[2] for rank, text in waits.items()}
        # Equal at two polls in a row: no rank went on in between. The hook's name is cut off, as
        # ranks may wait for the same collective in different hooks.
        if (
            waits == previous_waits
            and len({text.partition(" in on_")[0] for text in descriptions.values()}) > 1
        ):
            message = "; ".join(f"rank {rank} for {text}" for rank, text in descriptions.items())
            self._store.compare_set(
                self._key("error"),
                "",
                f"-1\nthe processes wait for each other, and none can go on: {message}. All must "
                "come to the same collectives in the same order",
            )
        return waits


_TORCH = str(Path(torch.__file__).parent)
_DISTRIBUTED_CODE = f"{_TORCH}/distributed/"
_BACKWARD_CODE = (f"{_TORCH}/autograd/graph.py", f"{_TORCH}/nn/parallel/distributed.py")
_POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
"""Calls between two ranks, which wait in different functions while they communicate."""

_IDLE_CPU_FRACTION = 0.02
"""Largest fraction of a CPU that a process uses while it only waits."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of a rank for the others: declared by the rank itself, or detected.

    Attributes:
        purpose: reason of the wait, for messages.
        since: its start, by `time.monotonic`.
        computes: whether the rank has declared that it computes first, so that it may not wait yet.
    """

    purpose: str
    since: float
    computes: bool = False


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

    def detect(self, declared: Wait | None) -> Wait | None:
        """Sample the thread's stack and return its wait, or None.

        Args:
            declared: the wait that the rank declared, or None.
        """
        if declared is not None and not declared.computes:
            self._frame = None
            return declared
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
            self._frame, self._instruction = frame, frame.f_lasti
            self._since, self._cpu_time = now, cpu_time
        if frame.f_code.co_filename.startswith(_DISTRIBUTED_CODE):
            name = _outermost_function(frame)
            is_wait = name not in _POINT_TO_POINT
            return Wait(f"torch.distributed.{name}", self._since) if is_wait else None
        # A fraction of the time, and as many seconds for what the samples themselves cost.
        idle_cpu = _IDLE_CPU_FRACTION * (now - self._since) + _IDLE_CPU_FRACTION
        if declared is None or cpu_time - self._cpu_time > idle_cpu:
            return None
        return Wait(declared.purpose, self._since)

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

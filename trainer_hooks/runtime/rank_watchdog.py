"""End all ranks within seconds if one of them fails, or if all wait for each other in vain."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._output import flush_output, losing_output
from trainer_hooks._system import is_running
from trainer_hooks._text import printable_lines
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks.relay import current_hook_and_callback, error_summary_with_notes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from types import FrameType

    from trainer_hooks.runtime.topology import Topology

_POLL_S = 0.5
"""Seconds between two looks at the store."""
_NOTICE_S = 3.0
"""Seconds that a rank has to notice by itself that another rank failed."""

_EXIT_S = 5.0
"""Seconds that a rank which failed, too, has to exit by itself."""

_SIGNAL_S = 5.0
"""Seconds after a signal until the ranks are asked whether they are there, and again from then on.
"""


class RankWatchdog:
    """A thread that watches the other ranks, and ends this process if one of them fails.

    A process that waits in a collective runs no Python code: neither signals nor exceptions reach
    it. So the rank that fails writes its error to torch's key-value store, where the watchdog
    threads of the other ranks read it.

    The threads also detect a deadlock, in which all ranks wait for different collectives. Each rank
    publishes its wait once it has lasted for `patience` seconds, and rank 0 compares them. The wait
    may be in a collective that the user calls in a hook. As long as one rank computes, there is no
    deadlock.

    A signal does not reach a process in a collective either. If the run has not ended some seconds
    after one, the rank asks the others to answer, which their watchdogs do whatever their main
    threads are at; one that does not has died without an error, and the run ends. A second signal
    ends a process that could not even begin to act on it.

    Args:
        store: torch's key-value store, shared by all ranks.
        topology: the ranks, and which of them this process is.
        patience: seconds that a rank waits before it publishes its wait.

    Attributes:
        run: number of the run, equal on all ranks.
        has_seen_failure: whether a rank failed, this one or another.
        signals: the signals that this process got; None while nothing defers them.
        on_end: called with the failure before the watchdog ends this process; None for nothing.
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
        self.signals: SignalInbox | None = None
        self.on_end: Callable[[str], object] | None = None
        self._own_call = self._answered_call = 0
        self._called_at = 0.0

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
        # of all trainers: a key of the store must not be one of an earlier run's
        RankWatchdog._runs_begun += 1
        self.run = RankWatchdog._runs_begun
        self._wait_detector = WaitDetector(threading.get_ident())
        # a new event: the thread of the run before may still be about to read its own
        self._stopped = threading.Event()
        self._has_failed.clear()
        self._declared_wait = None
        self._own_call = self._answered_call = 0
        self._called_at, self.signals, self.on_end = 0.0, None, None
        # for ranks that lose the connection to this one
        self._store.set(self._key(f"process/{self._rank}"), f"{socket.gethostname()} {os.getpid()}")
        self._thread = threading.Thread(
            target=self._watch, args=(self._stopped,), name="trainer_hooks watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, at the end of a run."""
        if not self._stopped.is_set():
            # for a rank that asks who is there while it still tears down
            with suppress(RuntimeError):
                self._store.set(self._key(f"left/{self._rank}"), "")
        self._stopped.set()
        if self._thread is not None:
            # not for long: the thread may be inside a call to the store
            self._thread.join(_POLL_S)

    def join(self) -> None:
        """Wait for the thread as the process exits: one inside of a call to the store aborts it.

        Python ends a daemon thread as that comes back from C++, which takes this for an error.
        """
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_EXIT_S)

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
        """Report the failure of a rank, which may have died without a word; -1 is for all."""
        # the rank that hosts the store may be gone; then the other ranks see a lost connection
        with suppress(RuntimeError):
            # sets the key only if it is missing: later failures follow from the first
            self._store.compare_set(self._key("error"), "", f"{rank}\n{text}")
            # after the error, which a rank reads once it sees this
            self._store.set(self._key("news"), "error")

    def remote_failure(self) -> str:
        """Return the error that another rank reported, or an empty text."""
        try:
            rank, text = self._read_failure()
        except RuntimeError:
            return ""
        return text if text and rank != self._rank else ""

    def find_dead_rank(self) -> tuple[int, str]:
        """Return a rank on this machine whose process has ended inside the run, and a sentence.

        It is -1 and an empty text if there is none.
        """
        # the rank that hosts the store may be gone
        with suppress(RuntimeError):
            for rank in range(self._topology.world_size):
                key = self._key(f"process/{rank}")
                has_left = self._store.check([self._key(f"left/{rank}")])
                if has_left or not self._store.check([key]):
                    continue
                host, pid = self._store.get(key).decode().rsplit(" ", 1)
                if host == socket.gethostname() and not is_running(int(pid)):
                    return rank, (
                        f"rank {rank} of {self._topology.world_size} has ended without an error: "
                        f"its process {pid} was killed, perhaps for want of memory"
                    )
        return -1, ""

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
        # asked first, as `get` waits for a key that is missing. One key says whether there is
        # anything to read, so that a run which goes on asks for no more
        if not self._store.check([self._key("news")]):
            return -1, ""
        self._answer_roll_call()
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
                    self._act_on_signals()
            except RuntimeError:  # the store's host is gone
                rank, text = -1, "the process that the others find each other by has ended"
            if text and not stopped.is_set():
                self._end_process(rank, text, stopped)
                return

    def _answer_roll_call(self) -> None:
        """Answer the last question whether this rank is there."""
        call = self.add_to_counter("roll call", 0)
        if call != self._answered_call:
            self._store.set(self._key(f"present/{self._rank}"), str(call))
            self._answered_call = call

    def _act_on_signals(self) -> None:
        """End the run after a signal if a rank is gone, or if a second one could not act."""
        inbox = self.signals
        if inbox is None or not inbox.has_any():
            return
        if inbox.is_second_stuck():
            name, wait = inbox.name, self._wait_detector.detect(self._declared_wait)
            purpose = f", while it waited for {wait.purpose}" if wait is not None else ""
            self._report_and_exit(
                f"rank {self._rank} of {self._topology.world_size} got {name} twice{purpose}",
                128 + inbox.number,
            )
        now = time.monotonic()
        if now - max(inbox.first_at, self._called_at) < _SIGNAL_S:
            return
        if self._called_at:
            missing = self._missing_ranks()
            if missing:
                self.report_rank_failure(
                    missing[0],
                    f"rank {', '.join(map(str, missing))} of {self._topology.world_size} did not "
                    f"answer rank {self._rank} within {_SIGNAL_S:.0f} s after {inbox.name}: its "
                    "process has ended without an error, or its machine is gone",
                )
                return
        self._called_at = now
        # a number, as several ranks may ask at once: an answer to a later call is one to this, too
        self._own_call = self.add_to_counter("roll call", 1)
        self._store.set(self._key("news"), "roll call")

    def _missing_ranks(self) -> list[int]:
        """Return the ranks that did not answer the last call of this rank."""
        missing = []
        for rank in range(self._topology.world_size):
            key = self._key(f"present/{rank}")
            answer = int(self._store.get(key)) if self._store.check([key]) else 0
            has_left = self._store.check([self._key(f"left/{rank}")])
            if answer < self._own_call and not has_left:
                missing.append(rank)
        return missing

    def _report_and_exit(self, text: str, code: int) -> None:
        """Report a failure of this rank, and end this process at once."""
        self.has_seen_failure = True
        self.report_rank_failure(self._rank, text)
        with losing_output():
            print(printable_lines(f"rank {self._rank}: {text}: ending at once"), file=sys.stderr)
        _exit_now(code)

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
        if self.on_end is not None:
            self.on_end(text)
        _exit_now(1)

    def _publish_wait(self) -> None:
        """Write this rank's wait to the store once it has lasted long, and remove it afterwards."""
        wait, message = self._wait_detector.detect(self._declared_wait), ""
        if wait is not None and time.monotonic() - wait.since >= self._patience:
            hook = current_hook_and_callback(self._wait_detector.frame())
            message = f"{wait.since}:{wait.purpose}{f' in {hook}' if hook else ''}"
        # only a change, so that a run which goes on sends nothing to the store
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
        # only rank 0 compares, and only while it waits: if one rank computes, there is no deadlock
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
        # equal at two polls in a row: no rank went on in between. The hook's name is cut off, as
        # ranks may wait for the same collective in different hooks
        if (
            waits == previous_waits
            and len({text.partition(" in on_")[0] for text in descriptions.values()}) > 1
        ):
            message = "; ".join(f"rank {rank} for {text}" for rank, text in descriptions.items())
            self.report_rank_failure(
                -1,
                f"the processes wait for each other, and none can go on: {message}. All must come "
                "to the same collectives in the same order",
            )
        return waits


def _exit_now(code: int) -> None:
    # os._exit flushes nothing.
    flush_output()
    # sys.exit would raise in this thread only, while the main thread stays in its collective.
    os._exit(code)


class SignalInbox:
    """The signals of a process, known also while its main thread runs no Python code.

    Python calls the handlers of signals in the main thread, once that executes Python code again.
    The numbers of the signals however are written to a pipe at once.

    Args:
        numbers: the signals that are deferred; others are ignored here.

    Attributes:
        number: the last signal, or 0.
        first_at: when the first one came, by `time.monotonic`; 0 if none has.
    """

    def __init__(self, numbers: Collection[int]) -> None:
        self._numbers = numbers
        self._lock = threading.RLock()
        self._received = self._handled = 0
        self._is_stuck = False
        self.number, self.first_at = 0, 0.0
        # sockets and no pipe: on Windows those can be read without waiting
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)

    @property
    def name(self) -> str:
        """The name of the last signal."""
        return signal.Signals(self.number).name

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Receive signals in the context; for the main thread. An event loop's pipe is left."""
        _keep_pipes_from_forks()
        writing = self._writing.fileno()
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
        _WAKEUP_PIPES.add(writing)
        try:
            yield
        finally:
            _WAKEUP_PIPES.discard(writing)
            if before == -1:
                signal.set_wakeup_fd(-1)
            # under the lock: the watchdog may be reading
            with self._lock:
                self._writing.close()
                self._reading.close()

    def has_any(self) -> bool:
        """Read the pipe; return whether any signal has come."""
        # a lock that its owner may take again: a handler interrupts the main thread anywhere
        with self._lock:
            if self._reading.fileno() != -1:
                with suppress(BlockingIOError):
                    for number in self._reading.recv(64):
                        if number in self._numbers:
                            self.number = number
                            self._received += 1
                            self.first_at = self.first_at or time.monotonic()
        return self._received > 0

    def mark_handled(self) -> None:
        """Note that the main thread has called the handler for all signals so far."""
        self.has_any()
        self._handled = self._received

    def is_second_stuck(self) -> bool:
        """Return whether a second signal waits for the main thread, at two calls in a row."""
        was_stuck = self._is_stuck
        self._is_stuck = self._received > 1 and self._handled < self._received
        return was_stuck and self._is_stuck


_WAKEUP_PIPES: set[int] = set()
"""Descriptors to which Python writes the numbers of signals for a `SignalInbox`."""


@cache
def _keep_pipes_from_forks() -> None:
    """Keep forked processes, such as a loader's workers, from writing their signals there."""

    def forget() -> None:
        if _WAKEUP_PIPES:
            signal.set_wakeup_fd(-1)

    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=forget)


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
        # the same frame at the same instruction means that the thread has not moved since the last
        # sample
        if frame is not self._frame or frame.f_lasti != self._instruction:
            # the frame itself is kept, not its id: a new frame could get the same id
            self._frame, self._instruction = frame, frame.f_lasti
            self._since, self._cpu_time = now, cpu_time
        if frame.f_code.co_filename.startswith(_DISTRIBUTED_CODE):
            name = _outermost_function(frame)
            is_wait = name not in _POINT_TO_POINT
            return Wait(f"torch.distributed.{name}", self._since) if is_wait else None
        # a fraction of the time, and as many seconds for what the samples themselves cost
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

"""Guard: calls a logger for a run, holds its errors back, and repeats the calls that failed.

No library does this. Retry libraries (tenacity, backoff) sleep in the caller until a call succeeds,
and a training step must not sleep. Circuit breakers (pybreaker) measure their pause in seconds and
drop the calls in between, which here are metrics that must not be lost. `QueueHandler` of `logging`
keeps calls for a thread, but neither repeats one that failed nor bounds them by bytes. And a
checkpoint must hold what is not written yet, so the queue has to be plain data.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from dataclasses import dataclass, field
from inspect import Parameter
from threading import Condition, Thread, get_ident
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import log
from trainer_hooks._names import ours
from trainer_hooks._options import Rule, check_option
from trainer_hooks._text import count_with_noun
from trainer_hooks.errors import OptionError, error_message
from trainer_hooks.hooks.check import instance_clash
from trainer_hooks.loggers.base import OWN_NAMES, GuardedCall
from trainer_hooks.loggers.conversion import detached_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainer_hooks.loggers.base import Logger

METHODS = (
    "after_save_checkpoint",
    "finalize",
    "log_graph",
    "log_hyperparams",
    "log_image",
    "log_images",
    "log_metrics",
    "log_table",
    "log_text",
    "save",
)
"""The methods of a logger that a guard replaces."""

# for each logger: the memory that an outage of its server may take
_MOST_CALLS = 10_000
_MOST_BYTES = 256 * 2**20

_LONGEST_PAUSE = 64
"""The largest number of calls that are buffered without a try after an error."""

_MOST_TRIES = 20
"""The number of failures after which a call is given up, so that it does not block the others."""

_OF_THE_DISK = {
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.ENOSPC,
    errno.EROFS,
    errno.ESTALE,
}
"""System errors for which no call is at fault, so that none is given up for them."""

_MOST_AT_ONCE = 100
"""The largest number of buffered calls that are repeated during one call."""

PATIENCE = 30.0
"""Seconds that the end of a run waits for the writes that are still to be done."""

_POLICY = Rule(
    "'report' or 'raise'", lambda value: value in ("report", "raise"), "Choose one of them."
)

_PERMANENT = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError)


@dataclass(slots=True)
class LoggerCall:
    """One call of a logger, with copies of its arguments as they were at that moment.

    Attributes:
        name: the method.
        args: its positional arguments.
        kwargs: its keyword arguments.
        size: the size in bytes of tensors, arrays and texts among them.
        tries: the number of failures so far.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    size: int = 0
    tries: int = 0

    @classmethod
    def of(cls, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoggerCall:
        """Return a call whose arguments no later change reaches."""
        if name == "after_save_checkpoint":
            # the callback's record as it is now: the next save changes it
            args = tuple(
                SimpleNamespace(
                    state_key=callback.state_key,
                    save_top_k=getattr(callback, "save_top_k", None),
                    best_model_path=getattr(callback, "best_model_path", ""),
                    last_model_path=getattr(callback, "last_model_path", ""),
                    best_k_models=dict(getattr(callback, "best_k_models", {})),
                )
                for callback in args
            )
        (kept_args, kept_kwargs), size = detached_copy((args, kwargs))
        return cls(name, kept_args, kept_kwargs, size)


@dataclass(slots=True)
class CallCount:
    """Calls in the form in which they are reported: rows of metrics by step, others by number.

    Attributes:
        steps: the step of each row; None for one without.
        others: the number of calls that log no metrics.
    """

    steps: list[int | None] = field(default_factory=list)
    others: int = 0

    @classmethod
    def of(cls, calls: Iterable[LoggerCall]) -> CallCount:
        """Count calls."""
        count = cls()
        for call in calls:
            count.add(call)
        return count

    def __bool__(self) -> bool:
        return bool(self.steps or self.others)

    def add(self, call: LoggerCall) -> None:
        """Count one more call."""
        if call.name == "log_metrics":
            self.steps.append(call.args[1] if len(call.args) > 1 else call.kwargs.get("step"))
        else:
            self.others += 1

    def __str__(self) -> str:
        parts = []
        if self.steps:
            steps = sorted({step for step in self.steps if step is not None})
            text = count_with_noun(len(self.steps), "row")
            if len(steps) > 1:
                text += f" (steps {steps[0]} to {steps[-1]})"
            elif steps:
                text += f" (step {steps[0]})"
            parts.append(text)
        if self.others:
            parts.append(count_with_noun(self.others, "other call" if self.steps else "call"))
        return " and ".join(parts)


class CallBuffer:
    """Calls in the order in which they came; beyond the bounds the oldest are dropped.

    Args:
        most_calls: the largest number of calls.
        most_bytes: the largest sum of their sizes in bytes; a single call may exceed it.

    Attributes:
        lost: the dropped calls.
    """

    def __init__(self, most_calls: int = _MOST_CALLS, most_bytes: int = _MOST_BYTES) -> None:
        self._calls: deque[LoggerCall] = deque()
        self._size = 0
        self._most_calls = most_calls
        self._most_bytes = most_bytes
        self.lost = CallCount()

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, index: int) -> LoggerCall:
        return self._calls[index]

    def __iter__(self) -> Iterator[LoggerCall]:
        return iter(self._calls)

    def add(self, call: LoggerCall) -> None:
        """Append a call, and drop the oldest ones beyond the bounds."""
        self._calls.append(call)
        self._size += call.size
        while len(self._calls) > self._most_calls or (
            self._size > self._most_bytes and len(self._calls) > 1
        ):
            self.lost.add(self._calls[0])
            self.remove(self._calls[0])

    def remove(self, call: LoggerCall) -> None:
        """Remove a call, unless it was dropped meanwhile."""
        # by identity: calls are compared by value otherwise, which tensors cannot answer
        for index, other in enumerate(self._calls):
            if other is call:
                del self._calls[index]
                self._size -= call.size
                return

    def clear(self) -> None:
        """Remove all calls."""
        self._calls.clear()
        self._size = 0


class Guard:
    """Calls a logger for a run, holds its errors back, keeps and repeats the calls that failed.

    While it is installed it replaces the logger's methods, so that callbacks which call the logger
    directly are guarded too. After an error a growing number of calls, up to 64, is buffered
    without a try, so that a server that is down costs next to nothing.

    Args:
        logger: the logger to guard.
        patience: the seconds that `finish` takes at most, beyond a call that is running.

    Attributes:
        logger: the guarded logger.
        buffer: the calls that are still to be made.
        errors: the number of errors in this run.
        own_methods: the methods that were set on the logger itself before.
    """

    def __init__(self, logger: Logger, patience: float | None = None) -> None:
        self.logger = logger
        self.buffer = CallBuffer()
        self.errors = 0
        self._patience = PATIENCE if patience is None else patience
        # counted in calls, not in seconds: a step must never sleep
        self._pause = 0
        self._next_pause = 1
        # the thread that is inside the logger, whose calls of its own methods are not guarded
        self._calling_thread: int | None = None
        self._methods: dict[str, Callable[..., Any]] = {}
        self.own_methods: dict[str, Any] = {}

    @property
    def lost(self) -> CallCount:
        """Return the calls that were given up or dropped, and are not reported yet."""
        return self.buffer.lost

    def install(self) -> None:
        """Replace the logger's methods.

        Raises:
            OptionError: the logger's `on_error` is no policy.
        """
        if clash := instance_clash(self.logger, OWN_NAMES):
            raise OptionError(clash)
        check_option(
            "on_error", ours(self.logger).on_error, type(self.logger).__qualname__, _POLICY
        )
        attributes = vars(self.logger)
        for name in METHODS:
            if name in attributes:  # set on the instance, by a test or by another trainer
                self.own_methods[name] = attributes[name]
            self._methods[name] = getattr(self.logger, name)
            if name == "log_metrics":
                self._methods[name] = _by_keyword(self._methods[name])
            # on the instance, where it comes before the class's method for every caller
            attributes[name] = GuardedCall(self._intercept, name)

    def release(self) -> None:
        """Give the logger its methods back."""
        attributes = vars(self.logger)
        for name in self._methods:
            # the class's method is back as soon as the instance's is gone
            attributes.pop(name, None)
        attributes.update(self.own_methods)
        self.own_methods = {}
        # `_methods` is kept: the thread of a background guard may still call them

    def finish(self) -> None:
        """Report the run's errors; the logger is finalized already."""
        self._reset_pause()
        self._report_end()

    def run_state(self) -> dict[str, Any]:
        """Return the logger's part of a checkpoint: its own state and the unwritten metrics."""
        state: dict[str, Any] = {}
        try:
            state = self._call_unguarded(ours(self.logger).run_state)
        except Exception as error:
            if ours(self.logger).on_error == "raise":
                raise
            self._count_error("run_state", error)
        # metrics only: images and tables would make every checkpoint large
        unwritten = [
            [call.args[0], call.args[1] if len(call.args) > 1 else call.kwargs.get("step")]
            for call in self.buffer
            if call.name == "log_metrics" and call.args
        ]
        return {"kind": self.kind, "state": state, "unwritten": unwritten}

    @property
    def kind(self) -> str:
        """The name of the logger's class, which its part of a checkpoint has."""
        return type(self.logger).__qualname__

    def owns_run(self, saved: dict[str, Any]) -> bool:
        """Return whether the logger's class has saved a state, and the logger calls it its own."""
        if saved["kind"] != self.kind:
            return False
        return not saved["state"] or ours(self.logger).owns_run(saved["state"])

    def resume_run(self, saved: dict[str, Any]) -> None:
        """Restore the return value of `run_state` in the logger, and its unwritten metrics."""
        if saved["state"]:
            # what this process still holds comes after the checkpoint, and will be logged again
            self.buffer.clear()
            self._call_unguarded(ours(self.logger).resume_run, saved["state"])
        for metrics, step in saved["unwritten"]:
            self.buffer.add(LoggerCall("log_metrics", (metrics, step), {}))

    def _intercept(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Take the place of one of the logger's methods: `logger.log_metrics(...)` comes here."""
        if self._calling_thread == get_ident():  # the logger calls its own method
            self._methods[name](*args, **kwargs)
            return
        if name == "finalize":
            # each buffered call once, until the patience is over, or the disk takes none
            deadline = time.monotonic() + self._patience
            # a copy, as `_repeat` removes calls
            for call in [*self.buffer]:
                if time.monotonic() >= deadline or not self._repeat(call):
                    break
        elif self.buffer or self._pause:
            # the pause is one call shorter; when it is over, the oldest buffered calls are repeated
            self._pause = max(0, self._pause - 1)
            for _ in range(_MOST_AT_ONCE):
                if not self.buffer or self._pause:
                    break
                self._repeat(self.buffer[0])
            # calls must stay in order, so this one waits until the buffer is empty
            if self.buffer or self._pause:
                self._keep(name, args, kwargs)
                return
        self._calling_thread = get_ident()
        try:
            self._methods[name](*args, **kwargs)
        except Exception as error:
            if ours(self.logger).on_error == "raise":
                raise
            self._handle_failure(self._keep(name, args, kwargs), name, error)
        finally:
            self._calling_thread = None

    def _keep(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoggerCall | None:
        if name in ("finalize", "save"):  # they pass no values, so there is nothing to repeat
            return None
        call = LoggerCall.of(name, args, kwargs)
        self.buffer.add(call)
        return call

    def _repeat(self, call: LoggerCall) -> bool:
        """Repeat a buffered call, and return whether others are worth a try at once.

        They are not after an error of the disk: TensorBoard makes another file for each try.
        """
        try:
            self._call_unguarded(self._methods[call.name], *call.args, **call.kwargs)
        except Exception as error:
            if ours(self.logger).on_error == "raise":
                # else the next call would raise this error once more
                self.buffer.remove(call)
                raise
            self._handle_failure(call, call.name, error)
            return not is_disk_error(error)
        self.buffer.remove(call)
        self._reset_pause()
        return True

    def _call_unguarded(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the logger so that its calls of its own methods are not guarded."""
        before, self._calling_thread = self._calling_thread, get_ident()
        try:
            return method(*args, **kwargs)
        finally:
            self._calling_thread = before

    def _handle_failure(self, call: LoggerCall | None, name: str, error: Exception) -> None:
        """Count an error; then give the call up, or double the pause before the next try."""
        self._count_error(name, error)
        if call is not None:
            call.tries += 1
            is_given_up = call.tries >= _MOST_TRIES and not is_disk_error(error)
            if is_permanent_error(error) or is_given_up:
                # no pause after this: the server is well, it is this call that is bad
                self.buffer.remove(call)
                self.lost.add(call)
                return
        self._pause = self._next_pause
        self._next_pause = min(2 * self._next_pause, _LONGEST_PAUSE)

    def _reset_pause(self) -> None:
        self._pause, self._next_pause = 0, 1

    def _count_error(self, name: str, error: Exception) -> None:
        """Report the first error of a run with its traceback, and count the others."""
        self.errors += 1
        # one traceback only: an outage of a night would fill the log file
        if self.errors == 1:
            retried = f"its calls are kept in memory and tried again, up to {_MOST_CALLS}"
            dropped = "a call with such an error is dropped, as it would fail again"
            log.error(
                "%s failed in %s: %s: %s. The training goes on; %s. To have such an error end the "
                "run, set on_error = 'raise' on the logger.",
                type(self.logger).__qualname__,
                name,
                type(error).__name__,
                error_message(error),
                dropped if is_permanent_error(error) else retried,
                exc_info=error,
            )

    def _report_end(self) -> None:
        """Report the errors of the run, and the rows that are lost or not written yet."""
        unwritten = CallCount.of(self.buffer)
        unwritten.steps += ours(self.logger).unwritten_steps()
        lost, self.buffer.lost = self.lost, CallCount()
        if not (self.errors or lost or unwritten):
            return
        times = {0: "never", 1: "once", 2: "twice"}.get(self.errors, f"{self.errors:,} times")
        text = f"{type(self.logger).__qualname__} failed {times} in this run"
        text += "." if lost or unwritten else "; all rows were written later."
        if unwritten:
            text += (
                f" In memory, still to be written: {unwritten}. The next run with this logger "
                "writes them, and so does a resume of a checkpoint that was saved since; if the "
                "process ends before, they are lost."
            )
        if lost:
            text += f" Lost: {lost}."
        log.warning("%s", text)
        self.errors = 0


class BackgroundGuard(Guard):
    """A guard that calls its logger from a thread; the run only adds calls to the buffer."""

    def __init__(self, logger: Logger, patience: float | None = None) -> None:
        super().__init__(logger, patience)
        # guards the buffer, the pause and the counters; the thread lets it go to call the logger
        self._changed = Condition()
        self._thread: Thread | None = None
        self._is_closing = False
        self._calls = 0
        self._error: Exception | None = None

    def finish(self) -> None:
        """Wait until everything is written, or until the patience is over."""
        deadline = time.monotonic() + self._patience
        with self._changed:
            self._is_closing = True
            # the thread of an earlier run has ended, and may have left calls
            if self.buffer:
                self._start_thread()
            self._changed.notify_all()
        if self._thread is not None:
            # outside of the condition, which the thread needs to end
            self._thread.join(max(0.0, deadline - time.monotonic()))
            if self._thread.is_alive():
                log.warning(
                    "%s did not write everything within %g seconds: the run ends without it.",
                    type(self.logger).__qualname__,
                    self._patience,
                )
        with self._changed:
            self._reset_pause()
            self._report_end()
        self._raise_late()

    def run_state(self) -> dict[str, Any]:
        """Return the logger's part of a checkpoint, without waiting for a running call."""
        with self._changed:
            return super().run_state()

    def _call_unguarded(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # `_calling_thread` stays the background thread's
        return method(*args, **kwargs)

    def _intercept(self, name: str, *args: Any, **kwargs: Any) -> None:
        if self._calling_thread == get_ident():
            self._methods[name](*args, **kwargs)
            return
        self._raise_late()
        # before the lock is taken: a copy from the device may take a while
        call = LoggerCall.of(name, args, kwargs)
        with self._changed:
            if name != "save":  # the thread writes as soon as it can
                self.buffer.add(call)
            self._calls += 1
            # the logger may be used again after `finish`
            self._is_closing = False
            self._start_thread()
            self._changed.notify_all()

    def _start_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            name = f"{type(self.logger).__qualname__} of trainer_hooks"
            # a daemon: a server that hangs must not keep the process from ending
            self._thread = Thread(target=self._work, name=name, daemon=True)
            self._thread.start()

    def _raise_late(self) -> None:
        """Raise the error of a call that the thread has made, if `on_error` is `"raise"`."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        """Make the buffered calls one after another until the run is over (the thread's body)."""
        self._calling_thread = get_ident()
        tried_at = 0
        while True:
            with self._changed:
                while not self._is_closing and (
                    not self.buffer or self._calls - tried_at < self._pause
                ):
                    self._changed.wait()
                if self._is_closing:
                    break
                # it stays in the buffer while it is made: a checkpoint saved meanwhile holds it
                call = self.buffer[0]
                tried_at = self._calls
            self._attempt(call)
        # the run is over: each remaining call once, until the patience is over
        deadline = time.monotonic() + self._patience
        with self._changed:
            calls = [*self.buffer]
        for call in calls:
            if time.monotonic() >= deadline:
                return
            self._attempt(call)

    def _attempt(self, call: LoggerCall) -> None:
        try:
            self._methods[call.name](*call.args, **call.kwargs)
        except Exception as error:  # noqa: BLE001 - reported, or raised by the run's next call
            with self._changed:
                raises = ours(self.logger).on_error == "raise"
                if raises or call.name == "finalize":
                    self.buffer.remove(call)
                if raises:
                    self._error = self._error or error
                else:
                    retried = None if call.name == "finalize" else call
                    self._handle_failure(retried, call.name, error)
        else:
            with self._changed:
                self.buffer.remove(call)
                self._reset_pause()


@dataclass(frozen=True, slots=True)
class _KeywordCall:
    """Calls `log_metrics` with `metrics` and `step` by name; no closure, which no copy takes."""

    log_metrics: Callable[..., Any]

    def __call__(self, metrics: Any, step: int | None = None) -> Any:
        """Log the metrics."""
        return self.log_metrics(metrics=metrics, step=step)


def _by_keyword(log_metrics: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `log_metrics` with `metrics` and `step` by name, if it can.

    Lightning does, so that a logger written for it may take them so alone.
    """
    try:
        kinds = {
            parameter.name: parameter.kind
            for parameter in signature_of(log_metrics).parameters.values()
        }
    except (TypeError, ValueError):  # some callables written in C have no signature
        return log_metrics
    by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    takes_any = Parameter.VAR_KEYWORD in kinds.values()
    if not all(kinds.get(name) in by_name or takes_any for name in ("metrics", "step")):
        return log_metrics
    return _KeywordCall(log_metrics)


def is_disk_error(error: BaseException) -> bool:
    """Return whether the disk refused to write, as a full one does."""
    errors = (error, error.__cause__)
    return any(isinstance(item, OSError) and item.errno in _OF_THE_DISK for item in errors)


def is_permanent_error(error: BaseException) -> bool:
    """Return whether an error comes from the values of a call, so that repeating fails again."""
    # libraries raise errors of their own types from the OSError of a broken connection
    if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
        return False
    return isinstance(error, _PERMANENT)

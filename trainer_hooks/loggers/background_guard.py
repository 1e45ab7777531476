"""BackgroundGuard: a guard that calls its logger from a thread, so that a run never waits."""

from __future__ import annotations

import time
from threading import Condition, Thread, get_ident
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.loggers.backlog import Call
from trainer_hooks.loggers.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.loggers.base import Logger

__all__ = ["BackgroundGuard"]


class BackgroundGuard(Guard):
    """A guard whose thread calls the logger; a run only puts calls into the backlog."""

    def __init__(self, logger: Logger, patience: float | None = None) -> None:
        super().__init__(logger, patience)
        self._changed = Condition()
        self._thread: Thread | None = None
        self._is_closing = False
        self._calls = 0
        self._error: Exception | None = None

    def finish(self) -> None:
        """Wait until everything is written, or as long as the patience lasts."""
        deadline = time.monotonic() + self._patience
        with self._changed:
            self._is_closing = True
            if self.backlog:
                self._start()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()))
            if self._thread.is_alive():
                log.warning(
                    "%s did not write everything within %g seconds: the run ends without it.",
                    type(self.logger).__qualname__,
                    self._patience,
                )
        with self._changed:
            self._pause, self._next_pause = 0, 1
            self._report_end()
        self._raise_late()

    def run_state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the logger, without waiting for a call under way."""
        with self._changed:
            return super().run_state()

    def _direct(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    def _take(self, name: str, *args: Any, **kwargs: Any) -> None:
        if self._caller == get_ident():
            self._own[name](*args, **kwargs)
            return
        self._raise_late()
        call = Call.of(name, args, kwargs)
        with self._changed:
            if name != "save":  # the thread writes as soon as it can
                self.backlog.add(call)
            self._calls += 1
            self._is_closing = False
            self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            name = f"{type(self.logger).__qualname__} of trainer_hooks"
            self._thread = Thread(target=self._work, name=name, daemon=True)
            self._thread.start()

    def _raise_late(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(self) -> None:
        """Make the calls of the backlog one after another, until there are none at the end."""
        self._caller = get_ident()
        tried_at = 0
        while True:
            with self._changed:
                while not self._is_closing and (
                    not self.backlog or self._calls - tried_at < self._pause
                ):
                    self._changed.wait()
                if self._is_closing:
                    break
                call = self.backlog[0]
                tried_at = self._calls
            self._attempt(call)
        self._finish_up()

    def _finish_up(self) -> None:
        """Try each call that is left once, for as long as the patience lasts."""
        deadline = time.monotonic() + self._patience
        with self._changed:
            calls = [self.backlog[index] for index in range(len(self.backlog))]
        for call in calls:
            if time.monotonic() >= deadline:
                return
            self._attempt(call)

    def _attempt(self, call: Call) -> None:
        try:
            self._own[call.name](*call.args, **call.kwargs)
        except Exception as error:  # noqa: BLE001 - reported, or raised by the run's next call
            with self._changed:
                if self.logger.on_error == "raise":
                    self.backlog.remove(call)
                    self._error = self._error or error
                elif call.name == "finalize":
                    self.backlog.remove(call)
                    self._failed(None, call.name, error)
                else:
                    self._failed(call, call.name, error)
        else:
            with self._changed:
                self.backlog.remove(call)
                self._pause, self._next_pause = 0, 1

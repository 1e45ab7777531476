"""Guard: what stands between a run and a logger, so that no fault of a logger stops a training."""

from __future__ import annotations

import time
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.errors import OptionError, message_of
from trainer_hooks.loggers.backlog import Backlog, Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.loggers.base import Logger

__all__ = ["Guard", "is_mistake"]

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
# counted in calls, not in seconds as tenacity and backoff do: a step must never sleep
_LONGEST_PAUSE = 64
"""After an error so many calls, at most, are kept before another is tried."""

_MOST_TRIES = 20
"""What was refused so often is given up, so that it does not stand in the way of the rest."""

_AT_ONCE = 100
"""How many kept calls one call makes up for, at most."""

PATIENCE = 30.0
"""Seconds that the end of a run waits for what is still to be written."""

_MISTAKES = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError)


class Guard:
    """Call a logger in the place of a run, hold its errors back, keep and try again what failed.

    While it is installed it stands in the logger's methods, so that callbacks which call the logger
    itself go through it too. After an error a growing number of calls, up to 64, is kept in memory
    without a try, so that what is down costs next to nothing.

    Args:
        logger: whom to guard.
        patience: seconds that `finish` takes at most, beyond a call that is under way.
    """

    def __init__(self, logger: Logger, patience: float | None = None) -> None:
        self.logger = logger
        self.backlog = Backlog()
        self.errors = 0
        self._patience = PATIENCE if patience is None else patience
        self._pause = 0
        self._next_pause = 1
        self._given_up = 0
        self._caller: int | None = None
        self._own: dict[str, Callable[..., Any]] = {}
        self._shadowed: dict[str, Any] = {}
        self._reported_lost = 0

    @property
    def lost(self) -> int:
        """Return how many calls were given up."""
        return self._given_up + self.backlog.lost

    def install(self) -> None:
        """Stand in the logger's methods from here on.

        Raises:
            OptionError: the logger's `on_error` is no policy.
        """
        if self.logger.on_error not in ("report", "raise"):
            raise OptionError(
                f"on_error {self.logger.on_error!r} of {type(self.logger).__qualname__}: must be "
                "'report' or 'raise'. Choose one of them."
            )
        attributes = vars(self.logger)
        for name in METHODS:
            if name in attributes:  # set on the instance, by a test or by another trainer
                self._shadowed[name] = attributes[name]
            self._own[name] = getattr(self.logger, name)
            attributes[name] = partial(self._take, name)

    def release(self) -> None:
        """Give the logger its methods back."""
        attributes = vars(self.logger)
        for name in self._own:
            attributes.pop(name, None)
        attributes.update(self._shadowed)
        self._shadowed = {}  # the thread of a background guard may still need `_own`

    def finish(self) -> None:
        """Say what became of the run's errors; the logger is finalized already."""
        self._pause, self._next_pause = 0, 1
        self._report_end()

    def run_state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the logger."""
        state: dict[str, Any] = {}
        try:
            state = self._direct(self.logger.run_state)
        except Exception as error:
            if self.logger.on_error == "raise":
                raise
            self._note("run_state", error)
        kind = type(self.logger).__qualname__
        return {"kind": kind, "state": state, "unwritten": self.backlog.metrics()}

    def resume_run(self, saved: dict[str, Any]) -> None:
        """Give the logger what `run_state` returned, and what it had not written then."""
        if saved["state"]:
            self.backlog.clear()
            self._direct(self.logger.resume_run, saved["state"])
        for metrics, step in saved["unwritten"]:
            self.backlog.add(Call("log_metrics", (metrics, step), {}))

    def _take(self, name: str, *args: Any, **kwargs: Any) -> None:
        if self._caller == get_ident():  # the logger calls itself
            self._own[name](*args, **kwargs)
            return
        if name == "finalize":
            self._make_up(time.monotonic() + self._patience)
        elif self.backlog or self._pause:
            self._make_up_for(_AT_ONCE, counts=True)
            if self.backlog or self._pause:
                self._keep(name, args, kwargs)
                return
        self._caller = get_ident()
        try:
            self._own[name](*args, **kwargs)
        except Exception as error:
            if self.logger.on_error == "raise":
                raise
            call = self._keep(name, args, kwargs)
            self._failed(call, name, error)
        finally:
            self._caller = None

    def _keep(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        if name in ("finalize", "save"):  # they hand over nothing
            return None
        call = Call.of(name, args, kwargs)
        self.backlog.add(call)
        return call

    def _make_up_for(self, most: int, *, counts: bool = False) -> None:
        """Make kept calls, unless it is too early after an error."""
        if self._pause and counts:
            self._pause -= 1
        while self.backlog and not self._pause and most:
            most -= 1
            self._make(self.backlog[0])

    def _make_up(self, deadline: float) -> None:
        """Make all kept calls, each once, as far as the time reaches."""
        calls = [self.backlog[index] for index in range(len(self.backlog))]
        for call in calls:
            if time.monotonic() >= deadline:
                return
            self._make(call)

    def _make(self, call: Call) -> None:
        try:
            self._direct(self._own[call.name], *call.args, **call.kwargs)
        except Exception as error:
            if self.logger.on_error == "raise":
                self.backlog.remove(call)
                raise
            self._failed(call, call.name, error)
        else:
            self.backlog.remove(call)
            self._pause, self._next_pause = 0, 1

    def _direct(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the logger, whose calls of itself are its own affair."""
        before, self._caller = self._caller, get_ident()
        try:
            return method(*args, **kwargs)
        finally:
            self._caller = before

    def _failed(self, call: Call | None, name: str, error: Exception) -> None:
        self._note(name, error)
        if call is not None:
            call.tries += 1
            if is_mistake(error) or call.tries >= _MOST_TRIES:
                self.backlog.remove(call)
                self._given_up += 1
                return
        self._pause = self._next_pause
        self._next_pause = min(2 * self._next_pause, _LONGEST_PAUSE)

    def _note(self, name: str, error: Exception) -> None:
        """Report the first error with its traceback, and count the others."""
        self.errors += 1
        if self.errors == 1:
            log.error(
                "%s failed in %s: %s: %s. The training goes on; what it is given is kept in memory "
                "and tried again, up to %d calls. To have such an error end the run, set "
                "on_error = 'raise' on the logger.",
                type(self.logger).__qualname__,
                name,
                type(error).__name__,
                message_of(error),
                10_000,
                exc_info=error,
            )

    def _report_end(self) -> None:
        if self.errors:
            log.warning(
                "%s failed %d times in this run: %d calls were given up, %d are still to be "
                "written.",
                type(self.logger).__qualname__,
                self.errors,
                self.lost - self._reported_lost,
                len(self.backlog),
            )
        self.errors, self._reported_lost = 0, self.lost


def is_mistake(error: BaseException) -> bool:
    """Return whether an error is one of what was given, which another try does not mend."""
    if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
        return False
    return isinstance(error, _MISTAKES)

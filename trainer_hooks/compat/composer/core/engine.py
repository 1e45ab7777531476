"""Engine: calls the callbacks at an event, in Composer's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

from trainer_hooks._log import log
from trainer_hooks.compat.composer.absent import ENGINE
from trainer_hooks.compat.composer.core.callback import Callback
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.loggers.destination import LoggerDestination
from trainer_hooks.compat.refusing import lacking
from trainer_hooks.errors import UsageError, add_note

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["Engine"]

_OPEN: WeakSet[Callback] = WeakSet()
"""The callbacks that take part in a trainer which is not closed."""


class Engine:
    """Call Composer's callbacks: the others in the order of the list, then the destinations.

    At `Event.INIT` the destinations come first, so that callbacks can log. Callbacks of
    trainer_hooks in the list have its hooks, which its trainer calls.

    Args:
        state: what callbacks are given.
        logger: likewise.
    """

    def __init__(self, state: State, logger: Logger) -> None:
        self.state = state
        self.logger = logger
        self._closing = Closing(state, logger)

    def run_event(self, event: Event | str) -> dict[str, Any]:
        """Call every callback at an event.

        Args:
            event: it, or its name.

        Returns:
            The traces of algorithms, of which there are none.

        Raises:
            UsageError: the engine is closed, or at `Event.INIT` a callback is still open.
        """
        known = Event(event)
        if self._closing.is_done:
            raise UsageError(
                f"event {known.value!r}: the trainer is closed. Make another one to train on."
            )
        if known is Event.INIT:
            _open(self.state.callbacks)
        for callback in _in_order(self.state.callbacks, is_init=known is Event.INIT):
            try:
                callback.run_event(known, self.state, self.logger)
            except BaseException as error:
                add_note(error, f"raised at event {known.value!r} of {type(callback).__qualname__}")
                raise
        return {}

    def take_in(self, callback: Callback) -> None:
        """Let a callback that joins later take part, from its `init` on."""
        _open([callback])
        self.state.callbacks.append(callback)
        if isinstance(callback, LoggerDestination):
            self.logger.destinations += (callback,)
        callback.run_event(Event.INIT, self.state, self.logger)

    def close(self) -> None:
        """Call `close` on every callback, and `post_close` on those that it went well with.

        What fails is logged, and stops nobody else. A second call does nothing.
        """
        self._closing()

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to use instead of what is not here."""
        raise lacking(self, name, ENGINE)

    @property
    def closing(self) -> Closing:
        """What closes the callbacks, also when nobody holds the engine any more."""
        return self._closing


class Closing:
    """What closes the callbacks, once.

    Args:
        state: what they are given.
        logger: likewise.
    """

    def __init__(self, state: State, logger: Logger) -> None:
        self._state, self._logger = state, logger
        self.is_done = False

    def __call__(self) -> None:
        """Close them."""
        if self.is_done:
            return
        self.is_done = True
        closed = []
        callbacks = [c for c in self._state.callbacks if isinstance(c, Callback)]
        for callback in callbacks:
            try:
                callback.close(self._state, self._logger)
            except Exception:  # noqa: BLE001 - logged; the others are closed all the same
                name = type(callback).__qualname__
                log.exception("%s.close() failed, so its post_close() is left out", name)
            else:
                closed.append(callback)
            _OPEN.discard(callback)
        for callback in closed:
            try:
                callback.post_close()
            except Exception:  # noqa: BLE001 - logged; the others have their turn
                log.exception("%s.post_close() failed", type(callback).__qualname__)


def _open(callbacks: list[Any]) -> None:
    found = [callback for callback in callbacks if isinstance(callback, Callback)]
    for callback in found:
        if callback in _OPEN:
            raise UsageError(
                f"{type(callback).__qualname__} takes part in a trainer that is not closed: it can "
                "be in one at a time. Call close() of the other trainer first, or make another "
                "callback."
            )
    _OPEN.update(found)


def _in_order(callbacks: list[Any], *, is_init: bool) -> list[Callback]:
    """Return Composer's callbacks in the order of their turns."""
    theirs = [callback for callback in callbacks if isinstance(callback, Callback)]
    return sorted(theirs, key=lambda one: isinstance(one, LoggerDestination) is not is_init)

"""Engine: calls the callbacks at an event, in Composer's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

from trainer_hooks.adapters.composer.event_source import close_callbacks
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.event_methods import EventMethods, event_receivers
from trainer_hooks.compat.composer.modules import package_getattr
from trainer_hooks.compat.composer.not_offered import ENGINE
from trainer_hooks.compat.not_offered import not_offered_attribute
from trainer_hooks.errors import UsageError, add_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["Engine"]

__getattr__ = package_getattr(__name__)

# weak, so that a callback whose trainer is gone can be collected
_OPEN: WeakSet[EventMethods] = WeakSet()
"""The callbacks that take part in a trainer which is not closed."""


class Engine:
    """Call Composer's callbacks: first in the order of the list, then the logger destinations.

    At `Event.INIT` the destinations come first, so that callbacks can log. Callbacks of
    trainer_hooks in the list have its hooks, which its trainer calls.

    Args:
        state: the state that callbacks receive.
        logger: the logger that callbacks receive.

    Attributes:
        state: the state that callbacks receive.
        logger: the logger that callbacks receive.
        closer: the function that closes the callbacks; it outlives the engine.
    """

    def __init__(self, state: State, logger: Logger) -> None:
        self.state = state
        self.logger = logger
        self.closer = CallbackCloser(state, logger)

    def run_event(self, event: Event | str) -> dict[str, Any]:
        """Call every callback at an event.

        Args:
            event: the event, or its name.

        Returns:
            The traces of algorithms, of which there are none.

        Raises:
            UsageError: the engine is closed, or at `Event.INIT` a callback is still open.
        """
        checked = Event(event)
        if self.closer.is_done:
            raise UsageError(
                f"event {checked.value!r}: the trainer is closed. Make another one to train on."
            )
        callbacks = event_receivers(self.state.callbacks)
        if checked is Event.INIT:
            _mark_open(callbacks)
        # a stable sort: the destinations go first or last, and the others keep their order
        callbacks.sort(key=lambda callback: callback.is_destination is not (checked is Event.INIT))
        self.state.keep("current_event", checked.value)
        try:
            for callback in callbacks:
                try:
                    callback.run_event(checked, self.state, self.logger)
                # an interrupt gets the note too
                except BaseException as error:
                    name = type(callback).__qualname__
                    add_note(error, f"raised at event {checked.value!r} of {name}")
                    raise
        finally:
            self.state.keep("current_event", "")
        return {}

    def add_callback(self, callback: Any) -> None:
        """Add a callback to those that receive events, and call its `init`."""
        _mark_open([callback])
        self.state.callbacks.append(callback)
        if callback.is_destination:
            self.logger.destinations += (callback,)
        callback.run_event(Event.INIT, self.state, self.logger)

    def close(self) -> None:
        """Call `close` on every callback, and `post_close` on those whose `close` went well.

        An error is logged, and the others are still closed. A second call does nothing.
        """
        self.closer()

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error for an unknown member; it names a replacement for one of Composer's."""
        raise not_offered_attribute(self, name, ENGINE)


class CallbackCloser:
    """A function that closes the callbacks of a trainer once.

    It holds no reference to the engine, so that a finalizer of the trainer can call it.

    Args:
        state: the state that callbacks receive.
        logger: the logger that callbacks receive.

    Attributes:
        is_done: whether the callbacks are closed.
    """

    def __init__(self, state: State, logger: Logger) -> None:
        self._state, self._logger = state, logger
        self.is_done = False

    def __call__(self) -> None:
        """Close the callbacks."""
        if self.is_done:
            return
        self.is_done = True
        callbacks = event_receivers(self._state.callbacks)
        # from now on they may take part in another trainer
        _OPEN.difference_update(callbacks)
        close_callbacks(callbacks, self._state, self._logger)


def _mark_open(callbacks: Sequence[EventMethods]) -> None:
    for callback in callbacks:
        if callback in _OPEN:
            raise UsageError(
                f"{type(callback).__qualname__} takes part in a trainer that is not closed: it can "
                "be in one at a time. Call close() of the other trainer first, or make another "
                "callback."
            )
    _OPEN.update(callbacks)

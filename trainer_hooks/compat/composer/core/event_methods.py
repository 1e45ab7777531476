"""EventMethods: the methods of Composer's callbacks, one for each event."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.spec import mark_empty

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["EventMethods", "event_receivers"]


def _empty_method(event: str) -> Callable[..., None]:
    def method(self: object, state: State, logger: Logger) -> None:
        pass

    method.__name__ = event
    method.__doc__ = f"Do nothing at `Event.{event.upper()}`; override it."
    return mark_empty(method)


# made by type(), so that the names are those of Event; deriving from Hooks makes them known to the
# check for misspelt hooks
_EmptyMethods: type[Hooks] = type(
    "_EmptyMethods",
    (Hooks,),
    {name: _empty_method(name) for name in (*(event.value for event in Event), "close")},
)


class EventMethods(_EmptyMethods):  # type: ignore[misc, valid-type]
    """The methods of Composer's `Callback`: one for each event, `run_event`, `close`, `post_close`.

    `Callback` adds to them how it takes part in a trainer. The `Engine` calls these methods and
    knows only this class, so that a callback can import the engine that calls it.
    """

    is_destination: ClassVar[bool] = False
    """Whether it is a logger destination: first at `Event.INIT`, last at every other event."""

    receives_events: ClassVar[bool] = True
    """Whether the `Engine` calls it at events."""

    def run_event(self, event: Event, state: State, logger: Logger) -> None:
        """Receive an event: call the method that is named for it.

        Args:
            event: the event.
            state: the trainer's state.
            logger: the logger that writes to all destinations.
        """
        getattr(self, Event(event).value)(state, logger)

    def post_close(self) -> None:
        """Do nothing after `close` was called on every callback; override it."""


def event_receivers(callbacks: Iterable[object]) -> list[EventMethods]:
    """Return the callbacks that the `Engine` calls at events."""
    return [
        callback
        for callback in callbacks
        if isinstance(callback, EventMethods) and callback.receives_events
    ]

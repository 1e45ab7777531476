"""Callback: Composer's, with `(state, logger)`; a callback of trainer_hooks too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import callback
from trainer_hooks._lazy import loader_of
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.hooks import HOOKS, Hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["Callback"]

_running = loader_of("trainer_hooks.compat.composer.running", {"join": "guests"})
"""What runs the callbacks, and knows this class."""


def _empty(event: str) -> Callable[..., None]:
    def method(self: object, state: State, logger: Logger) -> None:
        pass

    method.__name__ = event
    method.__doc__ = f"Do nothing at `Event.{event.upper()}`; override it."
    method.__dict__["is_empty_hook"] = True
    return method


_Events: type[Hooks] = type(
    "_Events", (Hooks,), {name: _empty(name) for name in (*(e.value for e in Event), "close")}
)
"""The methods that are named for the events; deriving from it makes their names known."""


class Callback(_Events, callback.Callback):  # type: ignore[misc, valid-type]
    """Override the methods that are named for the events; each is given the state and the logger.

    Or override `run_event(event, state, logger)`, which then receives every event; the named
    methods are then called by `super().run_event(event, state, logger)`, or not at all.

    It takes part in a trainer of this package and in one of trainer_hooks. No hook of trainer_hooks
    is called on it: its methods are called where Composer calls them, by the trainer's `Engine`.
    State is kept in checkpoints as that of every callback.
    """

    translated_hooks: ClassVar[frozenset[str]] = frozenset(HOOKS)
    """Hooks for which `translated` says what is called."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take any arguments, as Composer's does."""

    def run_event(self, event: Event, state: State, logger: Logger) -> None:  # type: ignore[override]
        """Receive an event: call the method that is named for it.

        Args:
            event: it.
            state: the trainer's state.
            logger: what logs to all destinations.
        """
        getattr(self, Event(event).value)(state, logger)

    def post_close(self) -> None:
        """Do nothing after `close` was called on every callback; override it."""

    @property
    def routes_events(self) -> bool:
        """Whether it receives the hooks of trainer_hooks in `run_event`: never."""
        return False

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what is called at a hook of trainer_hooks: it makes sure of the engine."""
        return self._take_part if hook in ("on_init_end", "setup") else None

    def _take_part(self, trainer: Any, *_: Any) -> None:
        _running("join")(trainer)

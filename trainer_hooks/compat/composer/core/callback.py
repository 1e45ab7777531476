"""Callback: Composer's, with methods that receive `(state, logger)`; also one of trainer_hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import callback
from trainer_hooks.compat.composer.core.event_methods import EventMethods
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Callback"]


class Callback(EventMethods, callback.Callback):  # type: ignore[misc] # run_event differs
    """Override the methods that are named for the events; each receives the state and the logger.

    Or override `run_event(event, state, logger)`, which then receives every event; the named
    methods are then called by `super().run_event(event, state, logger)`, or not at all.

    It takes part in a trainer of this package and in one of trainer_hooks. No hook of trainer_hooks
    is called on it: its methods are called where Composer calls them, by the trainer's `Engine`.
    State is kept in checkpoints as that of every callback.
    """

    translated_hooks: ClassVar[frozenset[str]] = frozenset(HOOKS)
    """Hooks for which `translated` returns the function to call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept any arguments, as Composer's class does."""

    @property
    def routes_events(self) -> bool:
        """Whether `run_event` receives the hooks of trainer_hooks: never, it receives events."""
        return False

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at a hook of trainer_hooks: two add it to the events."""
        return self._take_part if hook in ("on_init_end", "setup") else None

    def _take_part(self, trainer: Any, *_: Any) -> None:
        # here and not above: it loads the engine and the state, which a program may never need
        from trainer_hooks.compat.composer.native_trainer import add_events

        add_events(trainer)

"""ComposerBuiltIn: Composer's Callback for classes that work by the hooks of trainer_hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from trainer_hooks.compat.composer.core.callback import Callback
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.state import State
from trainer_hooks.compat.composer.models.base import ComposerModel
from trainer_hooks.hooks.spec import overrides

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks import callback
    from trainer_hooks.compat.composer.loggers.logger import Logger

__all__ = ["ComposerBuiltIn", "built_in"]

_METHODS = (*(event.value for event in Event), "close", "post_close", "run_event")


class ComposerBuiltIn(Callback):
    """A callback of Composer's package, which has both hooks and the methods of events.

    Its work is in hooks of trainer_hooks; a subclass may override methods of events beside them.
    """

    def __init__(self) -> None:
        # Composer's base class takes any arguments; here a misspelt one must stay an error
        super().__init__()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Composer's own methods are empty: a class that overrides none needs no engine
        cls.receives_events = any(
            getattr(cls, name) is not getattr(Callback, name) for name in _METHODS
        )

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at a hook: the class's own, after that for the events."""
        method: Callable[..., object] | None = (
            getattr(self, hook) if overrides(self, hook) else None
        )
        join = super().translated(hook) if self.receives_events else None
        if method is None or join is None:
            return method or join

        def both(*args: Any) -> None:
            join(*args)
            method(*args)

        return both


def composer_state(trainer: Any) -> State | None:
    """Return Composer's State of a trainer; None if no callback there receives its events."""
    sources = (getattr(callback, "source", None) for callback in trainer.callbacks)
    states = (getattr(source, "state", None) for source in sources)
    return next((state for state in states if isinstance(state, State)), None)


def composer_logger(trainer: Any) -> Logger | None:
    """Return the Logger of Composer's Trainer; None of a trainer of trainer_hooks alone."""
    sources = (getattr(callback, "source", None) for callback in trainer.callbacks)
    host = next(
        (source for source in sources if getattr(source, "is_of_composers_trainer", False)), None
    )
    return None if host is None else host.engine.logger


def composer_model(module: Any) -> Any:
    """Return the model whose names Composer logs: of its Trainer's module the ComposerModel."""
    model = getattr(module, "model", None)
    return model if isinstance(model, ComposerModel) and hasattr(module, "source") else module


K = TypeVar("K", bound="callback.Callback")


def built_in(kind: type[K], package: str) -> type[K]:
    """Return a class of trainer_hooks as one of Composer's, a subclass of both.

    Args:
        kind: the class.
        package: the package in which it is found by the same name.
    """
    # guest_class: a search by name, as for a command line, finds the class of trainer_hooks
    contents = {"__module__": package, "__doc__": kind.__doc__, "guest_class": kind}
    return type(kind.__name__, (kind, ComposerBuiltIn), contents)

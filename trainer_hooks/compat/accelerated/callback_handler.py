"""CallbackHandler: a list of callbacks whose methods are called by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["CallbackHandler", "as_callback"]


class CallbackHandler:
    """Keep callbacks, and call a method of theirs by its name.

    A trainer's own handler, `trainer.callback_handler`, is another class: it works on the callbacks
    registered with the trainer.

    Args:
        callbacks: instances, or classes that are made without arguments.

    Attributes:
        callbacks: the instances.
    """

    def __init__(self, callbacks: Iterable[Callback | type[Callback]] = ()) -> None:
        self.callbacks: list[Callback] = []
        self.add_callbacks(callbacks)

    def add_callbacks(self, callbacks: Iterable[Callback | type[Callback]]) -> None:
        """Add callbacks in their order."""
        for callback in callbacks:
            self.add_callback(callback)

    def add_callback(self, callback: Callback | type[Callback]) -> None:
        """Add a callback, or an instance of a class that takes no arguments.

        Raises:
            CallbackError: it is neither.
        """
        self.callbacks.append(as_callback(callback))

    def clear_callbacks(self) -> None:
        """Remove all callbacks."""
        self.callbacks = []

    def __iter__(self) -> Iterator[Callback]:
        return iter(self.callbacks)

    @property
    def callback_list(self) -> list[str]:
        """The class names of the callbacks."""
        return [type(callback).__name__ for callback in self.callbacks]

    def call_event(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call the method named `event` of each callback that has it, with these arguments."""
        for callback in self.callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(*args, **kwargs)


def as_callback(callback: object) -> Callback:
    """Return a callback as it is, or an instance of a callback class.

    Raises:
        CallbackError: it is no callback, and no class of one.
    """
    made = callback() if isinstance(callback, type) and issubclass(callback, Callback) else callback
    if not isinstance(made, Callback):
        raise CallbackError(
            f"{callback!r} in Trainer(callbacks=...): it must be a callback or a class of one. "
            "Derive it from trainer_hooks.compat.accelerated.TrainerCallback."
        )
    return made

"""CallbackHandler: a trainer's callbacks, under the names of pytorch-accelerated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer_hooks.context import Trainer

__all__ = ["CallbackHandler"]


class CallbackHandler:
    """What a trainer's callbacks are, and how to tell them of an event.

    Args:
        trainer: whose callbacks.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def add_callbacks(self, callbacks: Iterable[Callback | type[Callback]]) -> None:
        """Register callbacks, one after another."""
        for callback in callbacks:
            self.add_callback(callback)

    def add_callback(self, callback: Callback | type[Callback]) -> None:
        """Register an instance, or one that is made of a class without arguments.

        Several instances of a class are fine; those with a state need a `state_key` each.

        Raises:
            CallbackError: it is neither, or registered already.
            StateKeyError: another stateful callback has its state_key.
        """
        is_class = isinstance(callback, type) and issubclass(callback, Callback)
        self._trainer.add_callback(callback() if is_class else callback)  # type: ignore[arg-type, operator]

    def clear_callbacks(self) -> None:
        """Take all callbacks out, those that the trainer added by itself too."""
        for callback in self._trainer.callbacks:
            self._trainer.remove_callback(callback)

    def __iter__(self) -> Iterator[Callback]:
        return iter(self._trainer.callbacks)

    @property
    def callback_list(self) -> list[str]:
        """The names of the callbacks' classes in the order of their turns."""
        return [type(callback).__name__ for callback in self]

    def call_event(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call the method named `event` on each callback that has it, with these arguments.

        Args:
            event: a name of your own; hooks are fired by the trainer itself.
            *args: what the method is given, the trainer first; where there is neither this nor a
                `trainer` by name, it is given this trainer by name.
            **kwargs: what else it is given.

        Raises:
            UsageError: the event is a hook of trainer_hooks, or looks like one.
        """
        if not args:
            kwargs.setdefault("trainer", self._trainer)
        self._trainer.call_event(event, *args, **kwargs)

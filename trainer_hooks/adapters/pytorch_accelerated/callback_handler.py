"""CallbackHandler: callbacks whose methods are called by name, in a list or of a Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks.check import is_own_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class CallbackHandler:
    """Keep callbacks, and call a method of theirs by its name.

    A trainer's own handler, `trainer.callback_handler`, works on the callbacks that are registered
    with the trainer.

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
        """The class names of the callbacks, in the order in which they are called."""
        return [type(callback).__name__ for callback in self]

    def call_event(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call the method named `event` of each callback that has it, with these arguments."""
        for callback in self.callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(*args, **kwargs)


class TrainerCallbackHandler(CallbackHandler):
    """`trainer.callback_handler`: a trainer's callbacks, and events of the user's own.

    Args:
        trainer: the Trainer.
        hidden: classes of callbacks that are the trainer's own work: they are not listed, and stay
            when the others are removed.
    """

    def __init__(self, trainer: Any, hidden: tuple[type, ...] = ()) -> None:
        self._trainer = trainer
        self._hidden = hidden

    def _listed(self) -> list[Callback]:
        listed = self._trainer.callbacks
        return [callback for callback in listed if not isinstance(callback, self._hidden)]

    callbacks = property(_listed)
    """The callbacks, in the order in which they are called."""

    def add_callback(self, callback: Callback | type[Callback]) -> None:
        """Register a callback, or an instance of a class that takes no arguments.

        Several instances of a class are allowed; those with a state need a `state_key` each.

        Raises:
            CallbackError: it is neither a callback nor a class of one, or is registered already.
            StateKeyError: another stateful callback has its state_key.
        """
        # a foreign callback is no Callback, and the trainer adapts it
        self._trainer.add_callback(_instance_of(callback))

    def clear_callbacks(self) -> None:
        """Remove all callbacks, those that the trainer added by itself too."""
        for callback in self.callbacks:
            self._trainer.remove_callback(callback)

    def call_event(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Call the method named `event` of each callback that has it.

        Args:
            event: a name of the user's own, also one that begins with `on_`; hooks are fired by the
                trainer itself.
            *args: positional arguments of the method, the trainer first. Without any, and without
                a `trainer` by name, this trainer is passed by name.
            **kwargs: keyword arguments of the method.

        Raises:
            UsageError: the event is a hook of trainer_hooks, or is written nearly as one.
        """
        if not args:
            kwargs.setdefault("trainer", self._trainer)
        if event.startswith("on_") and is_own_event(event):
            for callback in self.callbacks:
                method = getattr(getattr(callback, "guest", callback), event, None)
                if method is not None:
                    method(*args, **kwargs)
            return
        self._trainer.call_event(event, *args, **kwargs)


def as_callback(callback: object) -> Callback:
    """Return a callback as it is, or an instance of a callback class.

    Raises:
        CallbackError: it is no callback, and no class of one.
    """
    made = _instance_of(callback)
    if not isinstance(made, Callback):
        raise CallbackError(
            f"{callback!r} in Trainer(callbacks=...): it must be a callback or a class of one. "
            "Derive it from trainer_hooks.compat.accelerated.TrainerCallback."
        )
    return made


def _instance_of(callback: Any) -> Any:
    is_class = isinstance(callback, type) and issubclass(callback, Callback)
    return callback() if is_class else callback

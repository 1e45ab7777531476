"""LambdaCallback: a callback made of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, suggest
from trainer_hooks.hooks.discovery import installed_hooks
from trainer_hooks.hooks.spec import ALIASES, HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable


class LambdaCallback(Callback):
    """Call a function at each of the given hooks.

    Args:
        **hooks: a function for each hook, by the hook's name. It receives the hook's arguments
            without `self`.

    Raises:
        CallbackError: no hook has such a name, or the value is not callable.

    Example::

        def show(trainer, module):
            print(trainer.current_epoch)

        callback = LambdaCallback(on_train_epoch_end=show)
        Trainer(max_epochs=2, callbacks=[callback]).fit(module, train_loader)
    """

    def __init__(self, **hooks: Callable[..., object] | None) -> None:
        names = {*HOOKS, *ALIASES}
        if not names.issuperset(hooks):
            # hooks of plugins are looked up only for an unknown name: that reads the entry points
            names.update(installed_hooks())
        # by name: the repr of a function holds its address, which differs in the next process
        self._functions: dict[str, str] = {}
        for name, function in hooks.items():
            if name not in names:
                raise CallbackError(
                    f"hook {name!r} of LambdaCallback: there is no hook of that name."
                    f"{suggest('hooks', name, sorted(names))} "
                    "The command `trainer-hooks hooks` lists them."
                )
            if name in ALIASES and ALIASES[name] in hooks:
                raise CallbackError(
                    f"hook {name!r} of LambdaCallback: is the older name of {ALIASES[name]!r}, "
                    "which is given too. Give one of them."
                )
            if function is None:  # as in Lightning: no function for this hook
                continue
            if not callable(function):
                raise CallbackError(
                    f"hook {name!r} of LambdaCallback: {function!r} cannot be called. "
                    "Give a function that takes the hook's arguments."
                )
            # the relay finds hooks on the instance too, so an attribute makes the hook overridden
            setattr(self, name, function)
            self._functions[name] = _qualified_name(function)

    @property
    def state_key(self) -> str:
        """The class name with the hooks and the names of their functions."""
        return self._generate_state_key(**self._functions)

    def __repr__(self) -> str:
        return f"LambdaCallback({', '.join(self._functions)})"


def _qualified_name(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"

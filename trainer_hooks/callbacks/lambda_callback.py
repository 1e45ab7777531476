"""LambdaCallback: hooks from functions, without a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError, nearest
from trainer_hooks.hooks import ALIASES, HOOKS, installed_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LambdaCallback"]


class LambdaCallback(Callback):
    """Call a function at a hook.

    Args:
        **hooks: a function for each hook that you want, by the hook's name. It is given what the
            hook is given, less `self`.

    Raises:
        CallbackError: there is no hook of that name, or its value cannot be called.

    Example::

        def show(trainer, module):
            print(trainer.current_epoch)

        callback = LambdaCallback(on_train_epoch_end=show)
        Trainer(max_epochs=2, callbacks=[callback]).fit(module, train_loader)
    """

    def __init__(self, **hooks: Callable[..., object]) -> None:
        known = {*HOOKS, *ALIASES}
        if not known.issuperset(hooks):
            known.update(installed_hooks())
        for name, function in hooks.items():
            if name not in known:
                raise CallbackError(
                    f"hook {name!r} of LambdaCallback: there is no hook of that name."
                    f"{nearest(name, sorted(known))} The command `trainer-hooks hooks` lists them."
                )
            if name in ALIASES and ALIASES[name] in hooks:
                raise CallbackError(
                    f"hook {name!r} of LambdaCallback: is the older name of {ALIASES[name]!r}, "
                    "which is given too. Give one of them."
                )
            if not callable(function):
                raise CallbackError(
                    f"hook {name!r} of LambdaCallback: {function!r} cannot be called. "
                    "Give a function that takes the hook's arguments."
                )
            setattr(self, name, function)
        self._functions = {name: _qualified_name(function) for name, function in hooks.items()}

    @property
    def state_key(self) -> str:
        """The hooks and their functions by name, so that one does not replace another."""
        return self._generate_state_key(**self._functions)

    def __repr__(self) -> str:
        return f"LambdaCallback({', '.join(self._functions)})"


def _qualified_name(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"

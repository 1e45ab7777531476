"""What the files of this folder share: which hooks go along, where a callback logs, what lacks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.adapters.views import View
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks import HOOKS, Member

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from trainer_hooks.callback import Callback

__all__ = [
    "LogsTo",
    "ProgressThere",
    "TrainerThere",
    "imported_there",
    "lacking_there",
    "listeners_of",
    "tensors_of",
]


def listeners_of(
    callback: Callback, framework: str, hooks: Collection[str], verb: str
) -> dict[str, Callable[..., object]]:
    """Return what is called of a callback, by hook.

    Args:
        callback: one of ours.
        framework: where it is to run.
        hooks: those that both have.
        verb: the function that was called, for the error.

    Raises:
        CallbackError: it overrides a hook that the framework has not.
    """
    member = Member(callback, type(callback).__qualname__)
    listeners = {hook: call for hook in HOOKS if (call := member.listener(hook)) is not None}
    missing = [hook for hook in listeners if hook not in hooks]
    if missing:
        raise CallbackError(
            f"{verb}({type(callback).__qualname__}): {framework} has no hook "
            f"{', '.join(map(repr, missing))}. Run the callback in trainer_hooks.Trainer, or do "
            "what it does there in a hook that both have."
        )
    return listeners


def imported_there(module: str, framework: str, verb: str, install: str) -> Any:
    """Return a module of another framework.

    Args:
        module: its name.
        framework: whose it is, for the error.
        verb: the function that was called, likewise.
        install: what pip is to install, likewise.

    Raises:
        CallbackError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CallbackError(
            f"{verb}: {framework} is not installed. Install it: pip install {install}."
        ) from error


def lacking_there(name: str, framework: str, callback: Callback) -> AttributeError:
    """Return the error for an attribute of our Trainer that another's has not.

    Args:
        name: the attribute's.
        framework: whose trainer it was looked for in.
        callback: who looked for it.
    """
    return AttributeError(
        f"{name!r} of trainer_hooks' Trainer, which {type(callback).__qualname__} looked for, has "
        f"no counterpart in {framework}'s. Run the callback in trainer_hooks.Trainer.",
        name=name,
    )


class TrainerThere(View):
    """Another framework's Trainer; what it lacks is an error that names framework and callback.

    Args:
        target: the trainer.
        callback: who is handed it.
    """

    __slots__ = ("_callback",)

    framework: ClassVar[str]

    def __init__(self, target: Any, callback: Callback) -> None:
        super().__init__(target)
        object.__setattr__(self, "_callback", callback)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.view_target, name)
        except AttributeError as error:
            if error.name != name or error.obj is not self.view_target:
                raise
            raise lacking_there(name, self.framework, self._callback) from None


class ProgressThere:
    """Stand for `trainer.progress`: what can be told there of how far a training has come.

    Args:
        epochs_completed: whole epochs.
        is_fresh: whether nothing was trained yet.
        framework: whose trainer it is.
        callback: who asks.
    """

    def __init__(
        self, epochs_completed: int, *, is_fresh: bool, framework: str, callback: Callback
    ) -> None:
        self.epochs_completed = epochs_completed
        self.is_fresh = is_fresh
        self._asked = framework, callback

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise lacking_there(f"progress.{name}", *self._asked)


class LogsTo:
    """Stand for the module to which a callback's `self.log` goes.

    Args:
        note: is given each name and its value, a float.
    """

    def __init__(self, note: Callable[[str, float], None]) -> None:
        self._note = note

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """Note a value as it is now; how it is reduced is the framework's affair."""
        self._note(name, float(value))

    def log_dict(self, dictionary: Mapping[str, Any], *_: Any, **__: Any) -> None:
        """Note several."""
        for name, value in dictionary.items():
            self._note(name, float(value))


def tensors_of(values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the numbers among some values, as `trainer.callback_metrics` holds them."""
    return {
        name: torch.as_tensor(value, dtype=torch.float32)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }

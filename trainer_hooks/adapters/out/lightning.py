"""to_lightning: one of our callbacks in Lightning's Trainer."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.views import View
from trainer_hooks.errors import CallbackError, StopTraining, UsageError
from trainer_hooks.hooks import HOOKS, Member

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

__all__ = ["to_lightning"]

_SAME = tuple(name for name, spec in HOOKS.items() if spec.lightning == "same")


def to_lightning(callback: Callback) -> Any:
    """Return a callback of Lightning that stands for one of ours.

    Its hooks are those that both have. They are called with Lightning's trainer and module, whose
    names are the same; `trainer.stop(reason)` and `StopTraining` end the fit. State is kept in
    Lightning's checkpoints, under `trainer_hooks:` and the callback's `state_key`.

    Args:
        callback: one of ours.

    Raises:
        CallbackError: it overrides a hook that Lightning has not, or Lightning is not installed.
    """
    member = Member(callback, type(callback).__qualname__)
    listeners = {hook: member.listener(hook) for hook in HOOKS}
    lacking = [hook for hook, call in listeners.items() if call and hook not in _SAME]
    if lacking:
        raise CallbackError(
            f"to_lightning({type(callback).__qualname__}): Lightning has no hook "
            f"{', '.join(map(repr, lacking))}. Run the callback in trainer_hooks.Trainer, or do "
            "what it does there in a hook that both have."
        )
    methods: dict[str, Any] = {
        hook: _method(call) for hook, call in listeners.items() if call is not None
    }
    key = f"trainer_hooks:{callback.state_key}"
    methods["state_key"] = property(lambda _: key)
    methods["setup"] = _setup(callback, listeners["setup"])
    if callback.is_stateful:
        methods["state_dict"] = lambda _: callback.state_dict()
        methods["load_state_dict"] = lambda _, state_dict: callback.load_state_dict(state_dict)
    kind = type(callback)
    methods["__module__"] = kind.__module__
    return type(kind.__name__, (_lightning().Callback,), methods)()


class _TrainerView(View):
    """Lightning's Trainer, with the verb that ours has."""

    __slots__ = ()

    def stop(self, reason: str = "") -> None:  # noqa: ARG002 - Lightning keeps none
        """End the fit after the batch in work."""
        self.view_target.should_stop = True

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.view_target, name)
        except AttributeError:
            raise UsageError(
                f"{name!r} of trainer_hooks' Trainer was looked for in Lightning's, which has no "
                "such attribute. Run the callback in trainer_hooks.Trainer."
            ) from None


def _method(call: Callable[..., object]) -> Callable[..., None]:
    def hook(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        try:
            call(_TrainerView(trainer), pl_module, *args, *kwargs.values())
        except StopTraining:
            trainer.should_stop = True

    return hook


def _setup(callback: Callback, call: Callable[..., object] | None) -> Callable[..., None]:
    """Return a `setup` that lets the callback log through Lightning's module."""

    def setup(self: Any, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG001
        callback.attach_module(pl_module)
        if call is not None:
            call(_TrainerView(trainer), pl_module, str(getattr(stage, "value", stage)))

    return setup


def _lightning() -> Any:
    """Return the package of Lightning that is imported, or else one that is installed."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            return sys.modules[name]
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise CallbackError(
        "to_lightning: Lightning is not installed. Install it: pip install lightning."
    )

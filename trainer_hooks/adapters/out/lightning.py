"""to_lightning: one of our callbacks in Lightning's Trainer."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.out.shared import ProgressThere, TrainerThere, listeners_of
from trainer_hooks.connector import checked
from trainer_hooks.errors import CallbackError, StopTraining
from trainer_hooks.hooks import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.callback import Callback

__all__ = ["lightning_factory", "to_lightning"]

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
    listeners = listeners_of(callback, "Lightning", _SAME, "to_lightning")
    methods: dict[str, Any] = {hook: _method(callback, call) for hook, call in listeners.items()}
    key = f"trainer_hooks:{callback.state_key}"
    methods["state_key"] = property(lambda _: key)
    methods["setup"] = _setup(callback, listeners.get("setup"))
    if callback.is_stateful:
        methods["state_dict"] = lambda _: callback.state_dict()
        methods["load_state_dict"] = lambda _, state_dict: callback.load_state_dict(state_dict)
    kind = type(callback)
    methods["__module__"] = kind.__module__
    return type(kind.__name__, (_lightning().Callback,), methods)()


class _TrainerView(TrainerThere):
    """Lightning's Trainer, with the verb that ours has."""

    __slots__ = ()

    framework = "Lightning"

    def stop(self, reason: str = "") -> None:  # noqa: ARG002 - Lightning keeps none
        """End the fit after the batch in work."""
        self.view_target.should_stop = True

    @property
    def progress(self) -> ProgressThere:
        """How far the training has come."""
        trainer = self.view_target
        return ProgressThere(
            trainer.current_epoch,
            # there the counters are restored after `on_fit_start`
            is_fresh=trainer.global_step == 0 and not trainer.ckpt_path,
            framework=self.framework,
            callback=self._callback,
        )


def _method(callback: Callback, call: Callable[..., object]) -> Callable[..., None]:
    def hook(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        try:
            call(_TrainerView(trainer, callback), pl_module, *args, *kwargs.values())
        except StopTraining:
            trainer.should_stop = True

    return hook


def _setup(callback: Callback, call: Callable[..., object] | None) -> Callable[..., None]:
    """Return a `setup` that lets the callback log through Lightning's module."""

    def setup(self: Any, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG001
        callback.attach_module(pl_module)
        if call is not None:
            call(_TrainerView(trainer, callback), pl_module, str(getattr(stage, "value", stage)))

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


def lightning_factory(
    factory: Callable[[], Callback | Sequence[Callback]],
) -> Callable[[], list[Any]]:
    """Return a factory for Lightning's entry points, of one for `trainer_hooks.callbacks_factory`.

    A package whose callbacks of ours register here by themselves lets them register in Lightning's
    Trainer, too: with this in its code, ::

        for_lightning = lightning_factory(make_callbacks)

    and an entry point to it in the group `lightning.pytorch.callbacks_factory`, and for the package
    `pytorch_lightning` in `pytorch_lightning.callbacks_factory`. Nothing of Lightning is imported
    before it asks.

    Args:
        factory: returns a callback of ours, or a list of them.
    """

    def make() -> list[Any]:
        made = factory()
        several = made if isinstance(made, list | tuple) else [made]
        return [to_lightning(checked(callback, "what the factory made")) for callback in several]

    return make

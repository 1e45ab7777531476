"""to_lightning: export one of our callbacks to Lightning's Trainer."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.adapters.export.host_trainer import (
    HostProgress,
    HostTrainerProxy,
    overridden_hooks,
)
from trainer_hooks.adapters.hook_names import LIGHTNING_NAMES
from trainer_hooks.connector.registry import validate_callback
from trainer_hooks.errors import CallbackError, StopTraining

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.callback import Callback

_SAME_HOOKS = tuple(hook for hook, name in LIGHTNING_NAMES.items() if name == "same")


def to_lightning(callback: Callback) -> Any:
    """Return a callback of Lightning that calls the hooks of one of ours.

    It may override the hooks that both frameworks have. They are called with Lightning's trainer
    and module, whose names are the same; `trainer.stop(reason)` and `StopTraining` end the fit.
    State is kept in Lightning's checkpoints, under `trainer_hooks:` and the callback's `state_key`.

    Args:
        callback: one of our callbacks.

    Raises:
        CallbackError: it overrides a hook that Lightning does not have, or Lightning is not
            installed.
    """
    calls = overridden_hooks(callback, "Lightning", _SAME_HOOKS, "to_lightning")
    methods: dict[str, Any] = {hook: _method(callback, call) for hook, call in calls.items()}
    key = f"trainer_hooks:{callback.state_key}"
    methods["state_key"] = property(lambda _: key)
    methods["setup"] = _setup(callback, calls.get("setup"))
    if ours(callback).is_stateful:
        methods["state_dict"] = lambda _: callback.state_dict()
        methods["load_state_dict"] = lambda _, state_dict: callback.load_state_dict(state_dict)
    kind = type(callback)
    methods["__module__"] = kind.__module__
    return type(kind.__name__, (_lightning().Callback,), methods)()


class _LightningHostTrainer(HostTrainerProxy):
    """Lightning's Trainer with `stop()` and `progress`, which ours has."""

    __slots__ = ()

    _framework = "Lightning"

    def stop(self, reason: str = "") -> None:  # noqa: ARG002 - Lightning keeps none
        """End the fit after the current batch."""
        self.proxy_target.should_stop = True

    @property
    def progress(self) -> HostProgress:
        """The number of epochs, and whether the training is fresh."""
        trainer = self.proxy_target
        return HostProgress(
            trainer.current_epoch,
            is_untrained=trainer.global_step == 0,
            # not by the counters, which Lightning restores after `on_fit_start`
            is_resumed=bool(trainer.ckpt_path),
            framework=self._framework,
            callback=self._callback,
        )


def _method(callback: Callback, call: Callable[..., object]) -> Callable[..., None]:
    def hook(self: Any, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ARG001
        try:
            # Lightning passes `stage` by name
            call(_LightningHostTrainer(trainer, callback), pl_module, *args, *kwargs.values())
        except StopTraining:
            trainer.should_stop = True

    return hook


def _setup(callback: Callback, call: Callable[..., object] | None) -> Callable[..., None]:
    """Return a `setup` that attaches Lightning's module, through which the callback logs."""

    def setup(self: Any, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG001
        ours(callback).attach_module(pl_module)
        if call is not None:
            call(
                _LightningHostTrainer(trainer, callback),
                pl_module,
                str(getattr(stage, "value", stage)),
            )

    return setup


def _lightning() -> Any:
    """Return the package of Lightning that is imported, or else one that is installed.

    Raises:
        CallbackError: neither is installed.
    """
    for name in ("lightning.pytorch", "pytorch_lightning"):
        # its Callback is another class in each package, and the imported one's Trainer will run it
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
    """Return a factory for Lightning's entry points, made from one for ours.

    A package that registers our callbacks by an entry point can register them in Lightning's
    Trainer, too. It needs this in its code::

        for_lightning = lightning_factory(make_callbacks)

    and an entry point to it in the group `lightning.pytorch.callbacks_factory`, and for the package
    `pytorch_lightning` in `pytorch_lightning.callbacks_factory`. Lightning is imported when it
    calls the factory, and not before.

    Args:
        factory: returns one of our callbacks, or a list of them.
    """

    def make() -> list[Any]:
        made = factory()
        callbacks = made if isinstance(made, list | tuple) else [made]
        return [
            to_lightning(validate_callback(callback, "what the factory made"))
            for callback in callbacks
        ]

    return make

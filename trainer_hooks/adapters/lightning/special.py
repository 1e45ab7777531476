"""Adapters of callbacks of Lightning that reach deeper into its Trainer than others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.lightning.callbacks import LightningGuest
from trainer_hooks.adapters.lightning.module_view import unwrapped
from trainer_hooks.adapters.lightning.views import trainer_view
from trainer_hooks.callbacks import BatchSizeFinder, LearningRateFinder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TunerGuest", "WriterGuest"]


class WriterGuest(LightningGuest):
    """Stand for a writer of predictions, which asks the trainer's loop what was predicted."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest at `hook`, after the loop's notes were made."""
        called = super().translated(hook)
        if hook == "on_predict_start":
            return self._opening(called)
        if hook == "on_predict_batch_end":
            return self._noting(called)
        return called

    def _opening(self, called: Callable[..., object] | None) -> Callable[..., object]:
        def call(trainer: Any, module: Any) -> None:
            trainer.note_batch_indices()
            trainer_view(trainer, self.guest).predict_loop.open()
            if called is not None:
                called(trainer, module)

        return call

    def _noting(self, called: Callable[..., object] | None) -> Callable[..., object]:
        def call(trainer: Any, module: Any, outputs: Any, batch: Any, *place: int) -> None:
            loop = trainer_view(trainer, self.guest).predict_loop
            loop.note(outputs, place[1] if len(place) > 1 else 0)
            if called is not None:
                called(trainer, module, outputs, batch, *place)

        return call


class TunerGuest(LightningGuest):
    """Stand for a finder of learning rates or batch sizes.

    When it searches is the guest's matter. The search runs loops, so it is ours, with the guest's
    settings; the guest gets the result.
    """

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        if hasattr(guest, "lr_find"):
            vars(guest)["lr_find"] = self._find_rate
        else:
            vars(guest)["scale_batch_size"] = self._find_size

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest at `hook`, less the checks of Lightning's own `setup`."""
        if hook == "setup" and "lightning" in type(self.guest).setup.__module__:
            return None
        return super().translated(hook)

    def _find_rate(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's own
        has = vars(self.guest)
        finder = LearningRateFinder(
            min_lr=has["_min_lr"],
            max_lr=has["_max_lr"],
            num_training_steps=has["_num_training_steps"],
            mode=has["_mode"],
            early_stop_threshold=has["_early_stop_threshold"],
            update_attr=has["_update_attr"],
            attr_name=has["_attr_name"],
        )
        real = unwrapped(trainer)
        finder.lr_find(real, real.module)
        self.guest.optimal_lr = finder.optimal_lr

    def _find_size(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's own
        has = vars(self.guest)
        finder = BatchSizeFinder(
            mode=has["_mode"],
            steps_per_trial=has["_steps_per_trial"],
            init_val=has["_init_val"],
            max_trials=has["_max_trials"],
            batch_arg_name=has["_batch_arg_name"],
            margin=has["_margin"],
            max_val=has["_max_val"],
        )
        real = unwrapped(trainer)
        finder.scale_batch_size(real, real.module)
        self.guest.optimal_batch_size = finder.optimal_batch_size

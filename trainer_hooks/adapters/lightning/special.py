"""Adapters of callbacks of Lightning that reach deeper into its Trainer than others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.lightning.callbacks import LightningGuest
from trainer_hooks.adapters.lightning.views import trainer_view

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AveragingGuest", "WriterGuest"]


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


class AveragingGuest(LightningGuest):
    """Stand for averages of weights that take an epoch more to measure a BatchNorm's inputs.

    In that epoch forwards are run, and no backward.
    """

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest at `hook`; before a backward, what leaves it out."""
        called = super().translated(hook)
        if hook == "on_fit_start":
            return self._heeding(called)
        return self._leaving_out(called) if hook == "on_before_backward" else called

    def _heeding(self, called: Callable[..., object] | None) -> Callable[..., object]:
        def call(trainer: Any, module: Any) -> None:
            trainer_view(trainer, self.guest).skipping.is_heeded = True
            if called is not None:
                called(trainer, module)

        return call

    def _leaving_out(self, called: Callable[..., object] | None) -> Callable[..., object]:
        def call(trainer: Any, module: Any, loss: Any) -> None:
            if trainer_view(trainer, self.guest).skipping.is_on:
                trainer.skip_batch()
            elif called is not None:
                called(trainer, module, loss)

        return call

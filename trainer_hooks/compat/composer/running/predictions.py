"""PredictionEvents: Composer's events of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks import callback
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.timestamp import Timestamp
from trainer_hooks.data import measure

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.running.links import Links
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["PredictionEvents"]


class PredictionEvents(callback.Callback):
    """Fire Composer's events of a prediction.

    Args:
        links: what it shares with the model's carrier.
    """

    def __init__(self, links: Links) -> None:
        self.links = links
        self._before: tuple[Any, Any, Any] = (None, None, None)

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Fire `PREDICT_START`."""
        state = self.links.state
        self._before = (state.dataloader, state.dataloader_label, state.dataloader_len)
        length = sum(trainer.num_predict_batches)
        loaders = trainer.predict_dataloaders
        state.set_dataloader(loaders, "predict", -1 if length == float("inf") else int(length))
        state.predict_timestamp = Timestamp()
        self.links.fire(Event.PREDICT_START)

    def on_predict_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Fire `PREDICT_BATCH_START`."""
        spec = self.links.predicted
        if spec is not None:
            batch = spec.microbatch_transforms(spec.batch_transforms(batch))
        self.links.state.batch = batch
        self.links.fire(Event.PREDICT_BATCH_START)

    def on_predict_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Fire `PREDICT_BEFORE_FORWARD`."""
        self.links.fire(Event.PREDICT_BEFORE_FORWARD)

    def on_predict_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Fire `PREDICT_AFTER_FORWARD`."""
        self.links.state.outputs = outputs
        self.links.fire(Event.PREDICT_AFTER_FORWARD)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and fire `PREDICT_BATCH_END`."""
        state = self.links.state
        state.predict_timestamp = state.predict_timestamp.to_next_batch(*measure(state.batch))
        self.links.fire(Event.PREDICT_BATCH_END)

    def on_predict_end(self, trainer: Trainer, module: Module) -> None:
        """Fire `PREDICT_END`."""
        self.links.fire(Event.PREDICT_END)
        loader, label, length = self._before
        self.links.state.set_dataloader(loader, label, -1 if length is None else length)

"""TrainingEvents: Composer's events of a training, out of the hooks of trainer_hooks."""

from __future__ import annotations

from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

from trainer_hooks import callback
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.timestamp import Timestamp
from trainer_hooks.compat.composer.running import figures, taking_over

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.running.links import Links
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["TrainingEvents"]


class TrainingEvents(callback.Callback):
    """Fire Composer's events of a training where they are in Composer, and keep its state.

    Args:
        links: what it shares with the model's carrier.

    State: the timestamp, and whether schedulers that count epochs have still to step.
    """

    volatile_state = frozenset({"total_wct", "iteration_wct", "epoch_wct", "batch_wct"})

    def __init__(self, links: Links) -> None:
        self.links = links
        self.state = links.state
        self._put_there: Any = None
        self._since = 0.0
        self._is_exhausted = False
        self._is_known = False

    @property
    def state_key(self) -> str:
        """One for all: there is one in a trainer."""
        return "ComposerState"

    def state_dict(self) -> dict[str, Any]:
        """Return how far the training is."""
        return {"timestamp": self.state.timestamp.state_dict(), "waiting": self.links.waiting}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self.state.timestamp = Timestamp()
        self.state.timestamp.load_state_dict(state_dict["timestamp"])
        self.links.waiting = state_dict["waiting"]
        self._is_known = True

    # --- a run begins ---

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Let the state of a guest be of this module."""
        self._is_known = False
        if self.links.is_guest:
            self.state.model = module

    def on_before_load(self, trainer: Trainer, module: Module, path: str | None) -> None:
        """Fire `BEFORE_LOAD`; Composer's trainer did so when it was made."""
        if self.links.is_guest:
            self.state.load_path = path
            self.links.fire(Event.BEFORE_LOAD)

    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Fire `AFTER_LOAD`, likewise."""
        if checkpoint is not None and not self._is_known:
            self.state.timestamp = taking_over.timestamp_of(trainer)
        if self.links.is_guest:
            self.links.fire(Event.AFTER_LOAD)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Fire `FIT_START`."""
        state = self.state
        if trainer.progress.is_fresh:
            state.timestamp = Timestamp()
        state.scaler = trainer.scaler
        if self.links.is_guest:
            taking_over.look_at(trainer, self.links)
            taking_over.warn_of_own_step(self.links, module)
        self.links.endings.begin_fit()
        self._is_exhausted = False
        self.links.fire(Event.FIT_START)
        self._since = perf_counter()

    # --- an epoch and a batch ---

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Fire `ITERATION_START` where one begins, and `EPOCH_START`."""
        now = self.state.timestamp
        self.links.endings.begin_epoch()
        self._is_exhausted = False
        if now.epoch_in_iteration == 0 and now.batch_in_epoch == 0:
            self.links.fire(Event.ITERATION_START)
        if now.batch_in_epoch != 0:  # the last fit ended inside an epoch, and this begins another
            nothing = {"batch_in_epoch": 0, "sample_in_epoch": 0, "token_in_epoch": 0}
            self.state.timestamp = now.copy(**nothing)
        self.links.fire(Event.EPOCH_START)
        if not self.links.is_guest:
            self.links.engine.logger.log_metrics({"time/epoch": now.epoch.value})

    def on_before_dataloader(self, trainer: Trainer, module: Module) -> None:
        """Fire `BEFORE_DATALOADER`."""
        self.links.fire(Event.BEFORE_DATALOADER)

    def on_after_dataloader(self, trainer: Trainer, module: Module, batch: Any) -> None:
        """Fire `AFTER_DATALOADER`, unless the loader had no batch left."""
        if batch is None:
            self._is_exhausted = True
            return
        state, spec = self.state, self.links.spec
        state.batch = batch if spec is None else spec.batch_transforms(batch)
        self.links.fire(Event.AFTER_DATALOADER)
        self._put_there = state.batch if state.batch is not batch else None

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Fire `BATCH_START`, once for all batches that make one step."""
        state = self.state
        other, self._put_there = self._put_there, None
        self.links.begin_batch(batch if other is None else state.device.batch_to_device(other))
        if trainer.progress.batches_in_window:
            return
        self.links.fire(Event.BATCH_START)
        self.links.whole = state.batch
        if not self.links.is_guest:
            figures.log_progress(state, self.links.engine.logger, with_epoch=False)
        for metric in state.train_metrics.values():
            metric.reset()

    def on_before_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Fire `BEFORE_TRAIN_BATCH`."""
        self.links.fire(Event.BEFORE_TRAIN_BATCH)

    def on_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Put the microbatch on the state, and fire `BEFORE_FORWARD`."""
        links = self.links
        if links.parts is not None:
            self.state.batch = next(links.parts)
        if links.spec is not None:
            self.state.batch = links.spec.microbatch_transforms(self.state.batch)
        links.fire(Event.BEFORE_FORWARD)

    def on_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Fire `AFTER_FORWARD`."""
        self.state.outputs = outputs
        self.links.fire(Event.AFTER_FORWARD)

    def on_before_loss(self, trainer: Trainer, module: Module) -> None:
        """Fire `BEFORE_LOSS`."""
        self.links.fire(Event.BEFORE_LOSS)

    def on_after_loss(self, trainer: Trainer, module: Module, loss: Any) -> None:
        """Fire `AFTER_LOSS`."""
        if self.links.is_guest:
            self.state.keep_loss(loss)
        self.links.fire(Event.AFTER_LOSS)

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Any) -> None:
        """Fire `BEFORE_BACKWARD`."""
        self.links.fire(Event.BEFORE_BACKWARD)

    def on_after_backward(self, trainer: Trainer, module: Module) -> None:
        """Fire `AFTER_BACKWARD`, and take the microbatch into the metrics."""
        self.links.fire(Event.AFTER_BACKWARD)
        figures.train_metrics(self.state, self.state.model)

    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Fire `AFTER_TRAIN_BATCH`, with the whole batch again."""
        self.state.batch = self.links.whole
        self.links.fire(Event.AFTER_TRAIN_BATCH)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch, and fire `BATCH_END`."""
        progress, state, now = trainer.progress, self.state, self.state.timestamp
        if progress.batches_in_window:
            return
        if not self.links.is_guest:
            figures.log_batch(state, self.links.engine.logger, self.links.losses)
        elif outputs:
            state.keep_loss(outputs["loss"])
        spent, self._since = perf_counter() - self._since, perf_counter()
        state.previous_timestamp = now
        state.timestamp = now.to_next_batch(
            progress.samples_completed - int(now.sample),
            progress.tokens_completed - int(now.token),
            timedelta(seconds=spent),
        )
        self.links.fire(Event.BATCH_END)
        self.links.endings.choose(Event.BATCH_END)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Fire `BATCH_CHECKPOINT`."""
        if trainer.progress.batches_in_window == 0:
            self.links.saving_event = Event.BATCH_CHECKPOINT
            self.links.fire(Event.BATCH_CHECKPOINT)
            is_last = not self.links.is_guest and self.links.endings.is_enough
            if is_last and trainer.checkpoint_callbacks:  # so that a resume comes back to here
                trainer.request_checkpoint()

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Fire `EPOCH_END`, if the epoch is whole."""
        state, endings = self.state, self.links.endings
        endings.is_complete = trainer.is_last_batch
        if endings.is_complete:
            if not self._is_exhausted and not endings.is_enough:
                self.links.fire(Event.BEFORE_DATALOADER)
            figures.compute(state, self.links.engine.logger, "train", state.train_metrics)
            self.links.step_schedulers()
            state.previous_timestamp = state.timestamp
            state.timestamp = state.timestamp.to_next_epoch()
            self.links.fire(Event.EPOCH_END)
        endings.choose(Event.EPOCH_END if endings.is_complete else None)

    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Leave the time of evaluations out of that of the training."""
        self._since = perf_counter()

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Fire `EPOCH_CHECKPOINT`, unless it had to come before an evaluation."""
        self.links.saving_event = Event.EPOCH_CHECKPOINT
        self.links.endings.save_epoch()

    def on_iteration_end(self, trainer: Trainer, module: Module) -> None:
        """Fire `ITERATION_END`."""
        self.state.previous_timestamp = self.state.timestamp
        self.state.timestamp = self.state.timestamp.to_next_iteration()
        self.links.fire(Event.ITERATION_END)

    def on_iteration_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Fire `ITERATION_CHECKPOINT`."""
        self.links.saving_event = Event.ITERATION_CHECKPOINT
        self.links.fire(Event.ITERATION_CHECKPOINT)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Fire `FIT_END`, unless it had to come before an evaluation."""
        self.links.endings.end_fit()

    def on_close(self, trainer: Trainer, module: Module) -> None:
        """Close the callbacks."""
        self.links.engine.close()

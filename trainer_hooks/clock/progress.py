"""How far a training has come: counters that carry their own state."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

__all__ = ["EpochStage", "Progress"]


class EpochStage(StrEnum):
    """Where in a training epoch a run stands; what a resume has still to do follows from it."""

    BETWEEN = "between"
    """No epoch is under way: the next thing is its start hooks."""
    BATCHES = "batches"
    """Inside an epoch: the next thing is its next batch, or its end if there is none."""
    VALIDATING = "validating"
    """All batches are done and ended: the next thing is the epoch's validation if it is due."""
    CLOSING = "closing"
    """All batches are done and the epoch's validation too: the next thing is its end hooks."""
    ENDED = "ended"
    """The end hooks are done: the next thing is to count the epoch as completed."""


@dataclass(slots=True)
class Progress:
    """Counters of the training of one module.

    Attributes:
        epochs_completed: whole epochs; the index of the epoch under way (`current_epoch`).
        batches_completed: batches of all epochs, skipped ones included.
        batches_in_epoch: batches of the epoch under way.
        batches_in_last_epoch: batches of the epoch that was completed last.
        batches_in_window: batches whose gradients are accumulated and not yet stepped with.
        has_gradients: whether one of those batches gave gradients; skipped ones do not.
        is_batch_open: whether the last batch has still to be logged and validated after, where that
            is due; so it is while its `on_train_batch_end` and a validation after it run.
        steps_completed: optimizer steps, over all optimizers (`global_step`).
        batches_stepped: batches that closed a window; the x axis of what loggers are given.
        microbatch_size: samples of a part of a batch, as `microbatch_size="auto"` found it, or 0.
        samples_completed: samples of the batches completed, as the module counts them.
        tokens_completed: tokens of them, likewise.
        validated_at: `batches_completed` at the last validation inside fit, or -1.
        is_validation_requested: whether `trainer.request_validation()` has still to be served.
        is_checkpoint_requested: whether `trainer.request_checkpoint()` has still to be served.
        is_epoch_end_requested: whether `trainer.end_epoch()` has still to be served.
        stage: where in the epoch the run stands.
    """

    epochs_completed: int = 0
    batches_completed: int = 0
    batches_in_epoch: int = 0
    batches_in_last_epoch: int = 0
    batches_in_window: int = 0
    has_gradients: bool = False
    is_batch_open: bool = False
    steps_completed: int = 0
    batches_stepped: int = 0
    microbatch_size: int = 0
    samples_completed: int = 0
    tokens_completed: int = 0
    validated_at: int = -1
    is_validation_requested: bool = False
    is_checkpoint_requested: bool = False
    is_epoch_end_requested: bool = False
    stage: EpochStage = EpochStage.BETWEEN

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was trained yet."""
        return self.batches_completed == 0 and self.epochs_completed == 0

    def begin_epoch(self) -> None:
        """Open the next epoch."""
        self.batches_in_epoch = 0
        self.batches_in_window = 0
        self.is_epoch_end_requested = False
        self.stage = EpochStage.BATCHES

    def count_batch(self, closes_window: bool, samples: int = 1, tokens: int = 0) -> None:
        """Count a batch that was done, and where it was a window's last, the window."""
        self.batches_completed += 1
        self.samples_completed += samples
        self.tokens_completed += tokens
        self.batches_in_epoch += 1
        self.batches_in_window += 1
        self.is_batch_open = True
        if closes_window:
            self.batches_in_window = 0
            self.batches_stepped += 1

    def close_window(self) -> None:
        """Count a window whose batches are all done."""
        self.batches_in_window = 0
        self.batches_stepped += 1

    def abandon_window(self) -> None:
        """Leave out the batches whose gradients were accumulated and are not stepped with."""
        self.batches_in_window = 0
        self.has_gradients = False

    def abandon_epoch(self) -> None:
        """Go back to the start of the epoch under way; what it counted over all epochs stays."""
        self.abandon_window()
        self.batches_in_epoch = 0
        self.stage = EpochStage.BETWEEN

    def complete_epoch(self) -> None:
        """Count the epoch under way as completed."""
        self.epochs_completed += 1
        self.batches_in_last_epoch = self.batches_in_epoch
        self.batches_in_epoch = 0
        self.stage = EpochStage.BETWEEN

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain data."""
        return {**asdict(self), "stage": str(self.stage)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the counters back; a counter that the state does not know starts where it is.

        What was asked for before, as in a `setup` hook, still stands.
        """
        stage = EpochStage(state_dict.get("stage", self.stage))
        validates, saves = self.is_validation_requested, self.is_checkpoint_requested
        for field in fields(self):
            if field.name in state_dict:
                setattr(self, field.name, state_dict[field.name])
        self.stage = stage
        self.is_validation_requested |= validates
        self.is_checkpoint_requested |= saves

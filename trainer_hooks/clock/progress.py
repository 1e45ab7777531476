"""Progress: the counters of a training, which save and restore themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any


class EpochStage(StrEnum):
    """The part of a training epoch that comes next, at which a resume goes on."""

    # checkpoints hold these texts, so none may change
    BETWEEN = "between"
    """Before an epoch: its start hooks come next."""
    BATCHES = "batches"
    """Inside an epoch: its next batch comes next, or its end if there is none."""
    VALIDATING = "validating"
    """After the last batch: the epoch's validation comes next, if it is due."""
    CLOSING = "closing"
    """After the epoch's validation: its end hooks come next."""
    ENDED = "ended"
    """After the end hooks: counting the epoch as completed comes next."""


@dataclass(slots=True)
class Progress:
    """Counters of the training of one module.

    Attributes:
        epochs_completed: completed epochs; also the index of the current epoch (`current_epoch`).
        batches_completed: completed batches of all epochs, skipped ones included.
        batches_in_epoch: completed batches of the current epoch.
        batches_in_last_epoch: batches of the epoch that was completed last.
        batches_in_window: batches of the unfinished accumulation window.
        has_gradients: whether one of those batches gave gradients; skipped ones do not.
        is_batch_open: whether the last batch has still to be logged, and to be followed by a
            validation that is due; true during its `on_train_batch_end` and that validation.
        steps_completed: optimizer steps, over all optimizers (`global_step`).
        batches_stepped: completed accumulation windows. Minus one, it is the x axis of logged
            values in a fit (`present_step`). The name is the key in checkpoints.
        windows_repeated: of those, the ones in epochs that were left, and begun again from their
            start.
        microbatch_size: samples of a microbatch that `microbatch_size="auto"` chose, or 0.
        samples_completed: samples of the completed batches, as the module counts them.
        tokens_completed: tokens of the completed batches, as the module counts them.
        is_plateau_due: whether a scheduler that counts steps and monitors a metric has still to
            step for the last one, after the validation of its batch.
        validated_at: `batches_completed` at the last validation inside fit, or -1.
        is_validation_requested: whether a `trainer.request_validation()` is not fulfilled yet.
        is_checkpoint_requested: whether a `trainer.request_checkpoint()` is not fulfilled yet.
        is_epoch_end_requested: whether a `trainer.end_epoch()` is not fulfilled yet.
        stage: the epoch stage, which is not the stage of the run (`RunState.stage`).
        is_restored: whether a fit has restored a checkpoint into them. No checkpoint holds this.
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
    windows_repeated: int = 0
    microbatch_size: int = 0
    samples_completed: int = 0
    tokens_completed: int = 0
    is_plateau_due: bool = False
    validated_at: int = -1
    is_validation_requested: bool = False
    is_checkpoint_requested: bool = False
    is_epoch_end_requested: bool = False
    stage: EpochStage = EpochStage.BETWEEN
    is_restored: bool = field(default=False, compare=False)

    @property
    def is_untrained(self) -> bool:
        """Whether no batch and no epoch is completed, as in a resume from step 0, too."""
        return self.batches_completed == 0 and self.epochs_completed == 0

    @property
    def is_new_training(self) -> bool:
        """Whether the training begins here: no checkpoint was restored, no batch is completed.

        In hooks before `on_after_load`, the checkpoint of this fit is not restored yet: there it
        says whether an earlier fit of this trainer has trained the module.
        """
        return self.is_untrained and not self.is_restored

    def describe_batch(self, index: int) -> str:
        """Return a phrase for messages that names a training batch of this epoch."""
        return f"epoch {self.epochs_completed}, training batch {index}"

    def begin_epoch(self) -> None:
        """Begin the next epoch."""
        self.batches_in_epoch = 0
        self.batches_in_window = 0
        # a request that came too late for the last epoch must not end this one
        self.is_epoch_end_requested = False
        self.stage = EpochStage.BATCHES

    def count_batch(self, closes_window: bool, samples: int = 1, tokens: int = 0) -> None:
        """Count a completed batch.

        Args:
            closes_window: whether it was the last of its accumulation window.
            samples: its number of samples.
            tokens: its number of tokens.
        """
        self.batches_completed += 1
        self.samples_completed += samples
        self.tokens_completed += tokens
        self.batches_in_epoch += 1
        self.batches_in_window += 1
        self.is_batch_open = True
        if closes_window:
            self.batches_in_window = 0
            self.batches_stepped += 1

    def uncount_batch(self, closes_window: bool, samples: int, tokens: int) -> None:
        """Take the last batch out of the counts again, but for its optimizer steps.

        Args:
            closes_window: whether it was the last of its accumulation window.
            samples: its number of samples.
            tokens: its number of tokens.
        """
        self.batches_completed -= 1
        self.samples_completed -= samples
        self.tokens_completed -= tokens
        self.batches_in_epoch -= 1
        self.is_batch_open = False
        if closes_window:
            self.batches_stepped -= 1
        else:
            self.batches_in_window -= 1

    def close_window(self) -> None:
        """Count an accumulation window whose batches are counted already."""
        self.batches_in_window = 0
        self.batches_stepped += 1

    def abandon_window(self) -> None:
        """Drop the unfinished accumulation window, whose gradients are not stepped with."""
        self.batches_in_window = 0
        self.has_gradients = False

    def abandon_epoch(self, window: int) -> None:
        """Go back to the start of the current epoch; counts over all epochs stay.

        Args:
            window: batches of an accumulation window in it.
        """
        # rounded up, as in `estimate_steps`: the last window of an epoch may not be full
        self.windows_repeated += -((self.batches_in_window - self.batches_in_epoch) // window)
        self.abandon_window()
        self.batches_in_epoch = 0
        self.stage = EpochStage.BETWEEN

    def complete_epoch(self) -> None:
        """Count the current epoch as completed."""
        self.epochs_completed += 1
        self.batches_in_last_epoch = self.batches_in_epoch
        self.batches_in_epoch = 0
        self.stage = EpochStage.BETWEEN

    def state_dict(self) -> dict[str, Any]:
        """Return the counters as plain data."""
        # a plain str: a checkpoint that holds an Enum could not be loaded safely
        state = {counter.name: getattr(self, counter.name) for counter in fields(self)}
        state["stage"] = str(self.stage)
        del state["is_restored"]
        # format 4 began without this count, and few trainings have any
        if not self.windows_repeated:
            del state["windows_repeated"]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the counters; one that the state lacks, as an older one may, stays as it is.

        Requests that were made before, as in a `setup` hook, stay.
        """
        # before the counters are set: an unknown one raises and leaves them as they are
        epoch_stage = EpochStage(state_dict.get("stage", self.stage))
        validates, saves = self.is_validation_requested, self.is_checkpoint_requested
        self.windows_repeated = 0
        for counter in fields(self):
            if counter.name in state_dict:
                # as the type of the counter: a wrong one would fail far from here
                kind = type(getattr(self, counter.name))
                setattr(self, counter.name, kind(state_dict[counter.name]))
        self.stage = epoch_stage
        self.is_validation_requested |= validates
        self.is_checkpoint_requested |= saves

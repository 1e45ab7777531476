"""Engines: two real engines of Ignite, for training and for validation, that our run drives."""

from __future__ import annotations

import time
from typing import Any, Protocol

from trainer_hooks.adapters.ignite.hosted_engine import new_engine
from trainer_hooks.clock import EpochStage
from trainer_hooks.data import number_of_batches
from trainer_hooks.errors import StopTraining, UsageError

__all__ = ["TRAIN_EVENTS", "VALIDATION_EVENTS", "Engines"]

TRAIN_EVENTS = {
    "on_train_start": ("STARTED",),
    "on_train_epoch_start": ("EPOCH_STARTED",),
    "on_before_dataloader": ("GET_BATCH_STARTED", "DATALOADER_STOP_ITERATION"),
    "on_after_dataloader": ("GET_BATCH_COMPLETED",),
    "on_train_batch_start": ("ITERATION_STARTED",),
    "on_train_batch_end": ("ITERATION_COMPLETED",),
    "on_train_batches_end": ("TERMINATE_SINGLE_EPOCH",),
    "on_train_epoch_end": ("EPOCH_COMPLETED",),
    "on_train_end": ("TERMINATE", "COMPLETED"),
    "on_exception": ("EXCEPTION_RAISED",),
}
"""What the engine of the training fires at each hook of ours; `INTERRUPT` where it is asked for."""

VALIDATION_EVENTS = {
    "on_validation_start": ("STARTED",),
    "on_validation_epoch_start": ("EPOCH_STARTED",),
    "on_validation_batch_start": ("ITERATION_STARTED",),
    "on_validation_batch_end": ("ITERATION_COMPLETED",),
    "on_validation_epoch_end": ("EPOCH_COMPLETED",),
    "on_validation_end": ("COMPLETED",),
}
"""What the engine of a validation in a fit fires, but for that of a sanity check."""

_BEFORE_A_BATCH = frozenset(
    {
        "GET_BATCH_STARTED", "DATALOADER_STOP_ITERATION", "GET_BATCH_COMPLETED",
        "ITERATION_STARTED",
    }
)  # fmt: skip
_WITH_METRICS = frozenset({"EPOCH_COMPLETED", "COMPLETED"})
_WHY = "a handler of Ignite called engine.terminate()"
_WHY_INTERRUPTED = "a handler of Ignite called engine.interrupt()"


class Guest(Protocol):
    """What attaches to the engines."""

    def attach_to(self, train: Any, validation: Any) -> None:
        """Add handlers to them."""


class Engines:
    """The engines of one fit, which all guests of a trainer share."""

    def __init__(self) -> None:
        self.train = new_engine()
        self.validation = new_engine()
        self._train_drivers: dict[str, Guest] = {}
        self._validation_drivers: dict[str, Guest] = {}
        self._begun = self._epoch_begun = time.monotonic()
        self._batches = 0
        self._is_told = self._is_over = self._is_interrupted = False
        self._opened: int | None = None
        self._is_exhausted = False
        self._last: Guest | None = None

    def enter(self, guest: Guest) -> None:
        """Let a guest attach; it fires what no guest before it fires."""
        guest.attach_to(self.train, self.validation)
        self._last = guest
        for event in self.train.wanted:
            self._train_drivers.setdefault(event, guest)
        for event in self.validation.wanted:
            self._validation_drivers.setdefault(event, guest)

    def fire_train(self, guest: Guest, events: tuple[str, ...], trainer: Any, *given: Any) -> None:
        """Fire events of the training whose driver a guest is."""
        engine = self.train
        for event in events:
            if self._train_drivers.get(event) is not guest:
                continue
            if event == "ITERATION_COMPLETED" and not engine.should_terminate:  # one of each batch
                self._refresh_train(trainer, event, given)
                engine.fire_hosted(event)
            elif self._is_due(event, trainer):
                self._refresh_train(trainer, event, given)
                self._fire_train(event, given)
            if engine.should_terminate or engine.should_terminate_single_epoch:
                self._heed(trainer, event)
            if engine.should_interrupt:
                self._interrupt(trainer)

    def fire_validation(
        self, guest: Guest, events: tuple[str, ...], trainer: Any, *given: Any
    ) -> None:
        """Fire events of a validation whose driver a guest is."""
        if trainer.sanity_checking:
            return
        for event in events:
            if self._validation_drivers.get(event) is guest:
                self._refresh_validation(trainer, event, given)
                self.validation.fire_hosted(event)
                if self.validation.should_terminate or self.validation.should_interrupt:
                    raise UsageError(
                        "a handler of Ignite called terminate() or interrupt() on the engine of a "
                        "validation: a "
                        "validation here runs to its end. Pass Trainer(limit_val_batches=...)."
                    )
                self._heed(trainer, event)

    def begin_epoch(self, trainer: Any) -> None:
        """Take the time, and forget that the epoch before was ended early; guests all call it."""
        if self._opened == trainer.current_epoch:
            return
        self.train.should_terminate_single_epoch = self._is_over = False
        self._epoch_begun = time.monotonic()
        # there, the iterator of an epoch is found at its end when the next one asks it for a batch
        length = number_of_batches(trainer.train_dataloader)
        if length == float("inf"):
            length = trainer.num_training_batches
        is_whole = trainer.progress.batches_in_last_epoch >= length
        self._is_exhausted = self._opened is not None and is_whole
        self._opened = trainer.current_epoch

    def go_on_inside(self, guest: Guest, trainer: Any) -> None:
        """Begin an epoch once more where a fit is resumed inside it, as there.

        Args:
            guest: whose turn it is; the last one sees to it, when all were told of the start.
            trainer: the trainer.
        """
        progress = trainer.progress
        has_more = progress.batches_in_epoch < trainer.num_training_batches
        if guest is self._last and progress.stage is EpochStage.BATCHES and has_more:
            self.begin_epoch(trainer)
            driver = self._train_drivers.get("EPOCH_STARTED")
            if driver is not None:
                self.fire_train(driver, ("EPOCH_STARTED",), trainer)

    def _is_due(self, event: str, trainer: Any) -> bool:
        engine = self.train
        if self._is_interrupted and event != "EXCEPTION_RAISED":
            return False
        if event == "DATALOADER_STOP_ITERATION":
            return self._is_exhausted and trainer.progress.batches_in_epoch == 0
        ends, ends_epoch = engine.should_terminate, engine.should_terminate_single_epoch
        if not ends and not ends_epoch:
            return event not in ("TERMINATE", "TERMINATE_SINGLE_EPOCH")
        if event == "EXCEPTION_RAISED":
            return True
        if event == "COMPLETED":
            return bool(ends != "skip_completed")
        if ends:
            return event == "TERMINATE"
        return event != "TERMINATE" and not (
            event == "EPOCH_COMPLETED" and ends_epoch == "skip_epoch_completed"
        )

    def _fire_train(self, event: str, given: tuple[Any, ...]) -> None:
        engine = self.train
        if event == "EXCEPTION_RAISED":
            engine.fire_hosted(event, given[0])
        elif event == "TERMINATE_SINGLE_EPOCH":
            engine.fire_hosted(event, iter_counter=self._batches)
        else:
            engine.fire_hosted(event)

    def _refresh_train(self, trainer: Any, event: str, given: tuple[Any, ...]) -> None:
        state, progress = self.train.state, trainer.progress
        self._batches = progress.batches_in_epoch
        if self._batches <= 1 or state.dataloader is None:
            self._refresh_run(trainer)
        if event == "ITERATION_COMPLETED":
            state.epoch = progress.epochs_completed + 1
            state.iteration = progress.batches_completed
            state.batch, state.output = given[1], output_of(given[0])
            return
        is_inside = event not in ("STARTED", "TERMINATE", "COMPLETED")
        state.epoch = progress.epochs_completed + is_inside
        state.iteration = progress.batches_completed + (event == "ITERATION_STARTED")
        if event in ("GET_BATCH_COMPLETED", "ITERATION_STARTED"):
            state.batch, state.output = given[0], None
        elif event in _WITH_METRICS:
            begun = self._begun if event == "COMPLETED" else self._epoch_begun
            state.times[event] = time.monotonic() - begun
            self._take_metrics(state, trainer)

    def _refresh_run(self, trainer: Any) -> None:
        """Take over what lasts for an epoch."""
        state, batches = self.train.state, trainer.num_training_batches
        state.epoch_length = None if batches == float("inf") else int(batches)
        state.max_epochs = None if trainer.max_epochs < 0 else trainer.max_epochs
        state.dataloader = trainer.train_dataloader

    def _refresh_validation(self, trainer: Any, event: str, given: tuple[Any, ...]) -> None:
        state = self.validation.state
        if event == "STARTED":
            state.iteration = state.epoch = 0
        state.max_epochs, state.dataloader = 1, trainer.val_dataloaders
        if event != "STARTED":
            state.epoch = 1
        if event == "ITERATION_STARTED":
            state.batch, state.output = given[0], None
            state.iteration = given[1] + 1
        elif event == "ITERATION_COMPLETED":
            state.output, state.batch = given[:2]
            state.iteration = given[2] + 1
        if event in _WITH_METRICS:
            self._take_metrics(state, trainer)

    def _take_metrics(self, state: Any, trainer: Any) -> None:
        for name, value in trainer.callback_metrics.items():
            state.metrics[name] = value.item()

    def _interrupt(self, trainer: Any) -> None:
        """Stop after the batch in work; what is left of the events is for a run that goes on."""
        self.train.should_interrupt = False
        self.train.fire_hosted("INTERRUPT")
        self._is_interrupted = True
        trainer.stop(_WHY_INTERRUPTED)

    def _heed(self, trainer: Any, event: str) -> None:
        """Do what handlers asked of the engine."""
        engine = self.train
        if engine.should_terminate and not self._is_told:
            self._is_told = True
            trainer.stop(_WHY)
            if event in _BEFORE_A_BATCH:
                raise StopTraining(_WHY)
        if engine.should_terminate_single_epoch and not self._is_over:
            if event == "EPOCH_COMPLETED":  # which is over
                engine.should_terminate_single_epoch = False
                return
            self._is_over = True
            if event == "ITERATION_STARTED":
                trainer.skip_batch()
            trainer.end_epoch()


def output_of(outputs: Any) -> Any:
    """Return a step's result as a supervised trainer there does: the loss as a number."""
    if isinstance(outputs, dict) and set(outputs) == {"loss"}:
        return outputs["loss"].item()
    return outputs

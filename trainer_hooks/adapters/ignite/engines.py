"""Engines: two real engines of Ignite, for training and for validation, that our run drives."""

from __future__ import annotations

import importlib
import time
from functools import cache
from typing import Any, Protocol

from trainer_hooks.errors import StopTraining, UsageError

__all__ = ["TRAIN_EVENTS", "VALIDATION_EVENTS", "Engines", "new_engine"]

TRAIN_EVENTS = {
    "on_train_start": ("STARTED",),
    "on_train_epoch_start": ("EPOCH_STARTED",),
    "on_before_dataloader": ("GET_BATCH_STARTED",),
    "on_after_dataloader": ("GET_BATCH_COMPLETED",),
    "on_train_batch_start": ("ITERATION_STARTED",),
    "on_train_batch_end": ("ITERATION_COMPLETED",),
    "on_train_batches_end": ("TERMINATE_SINGLE_EPOCH",),
    "on_train_epoch_end": ("EPOCH_COMPLETED",),
    "on_train_end": ("TERMINATE", "COMPLETED"),
    "on_exception": ("EXCEPTION_RAISED",),
}
"""What the engine of the training fires at each hook of ours."""

VALIDATION_EVENTS = {
    "on_validation_start": ("STARTED",),
    "on_validation_epoch_start": ("EPOCH_STARTED",),
    "on_validation_batch_start": ("ITERATION_STARTED",),
    "on_validation_batch_end": ("ITERATION_COMPLETED",),
    "on_validation_epoch_end": ("EPOCH_COMPLETED",),
    "on_validation_end": ("COMPLETED",),
}
"""What the engine of a validation in a fit fires, but for that of a sanity check."""

_BEFORE_A_BATCH = frozenset({"GET_BATCH_STARTED", "GET_BATCH_COMPLETED", "ITERATION_STARTED"})
_WITH_METRICS = frozenset({"EPOCH_COMPLETED", "COMPLETED"})
_WHY = "a handler of Ignite called engine.terminate()"


@cache
def _engine_class() -> Any:
    """Return a class of engines that know on which events somebody listens."""
    base: Any = importlib.import_module("ignite.engine").Engine

    class HostedEngine(base):  # type: ignore[misc]  # not known before
        """An engine whose run is a fit of trainer_hooks."""

        def add_event_handler(self, event_name: Any, *args: Any, **kwargs: Any) -> Any:
            """Add a handler, and note its event."""
            if not hasattr(event_name, "__iter__"):  # a list of events comes back one by one
                self.__dict__.setdefault("wanted", set()).add(event_name.name)
            return super().add_event_handler(event_name, *args, **kwargs)

        def fire_hosted(self, event: str, *args: Any, **kwargs: Any) -> None:
            """Fire an event, with what its handlers are given."""
            self._fire_event(
                importlib.import_module("ignite.engine").Events[event], *args, **kwargs
            )

        def run(self, *_: Any, **__: Any) -> Any:
            """Refuse: the Trainer runs.

            Raises:
                UsageError: always.
            """
            raise UsageError(
                "engine.run() was called by a handler of Ignite, on the engine of a fit of "
                "trainer_hooks: the Trainer runs it. Call trainer.request_validation() in a hook."
            )

    return HostedEngine


def new_engine() -> Any:
    """Return an engine that does nothing by itself."""
    made = _engine_class()(lambda _engine, _batch: None)
    made.wanted = set()
    return made


class Guest(Protocol):
    """What attaches to the engines."""

    def attach_to(self, train: Any, validation: Any) -> None:
        """Add handlers to them."""


class Engines:
    """The engines of one fit, which all guests of a trainer share."""

    def __init__(self) -> None:
        self.train = new_engine()
        self.validation = new_engine()
        self._drivers: dict[tuple[str, str], Guest] = {}
        self._length: float = 0
        self._begun = self._epoch_begun = time.monotonic()
        self._batches = 0
        self._is_told = self._is_over = False

    def enter(self, guest: Guest) -> None:
        """Let a guest attach; it fires what no guest before it fires."""
        guest.attach_to(self.train, self.validation)
        for on, engine in (("train", self.train), ("validation", self.validation)):
            for event in engine.wanted:
                self._drivers.setdefault((on, event), guest)

    def fire_train(self, guest: Guest, events: tuple[str, ...], trainer: Any, *given: Any) -> None:
        """Fire events of the training whose driver a guest is."""
        for event in events:
            if self._drivers.get(("train", event)) is guest and self._is_due(event):
                self._refresh_train(trainer, event, given)
                self._fire_train(event, given)
                self._heed(trainer, event)

    def fire_validation(
        self, guest: Guest, events: tuple[str, ...], trainer: Any, *given: Any
    ) -> None:
        """Fire events of a validation whose driver a guest is."""
        if trainer.sanity_checking:
            return
        for event in events:
            if self._drivers.get(("validation", event)) is guest:
                self._refresh_validation(trainer, event, given)
                self.validation.fire_hosted(event)
                if self.validation.should_terminate:
                    raise UsageError(
                        "a handler of Ignite called terminate() on the engine of a validation: a "
                        "validation here runs to its end. Pass Trainer(limit_val_batches=...)."
                    )
                self._heed(trainer, event)

    def begin_epoch(self) -> None:
        """Take the time, and forget that the epoch before was ended early."""
        self.train.should_terminate_single_epoch = self._is_over = False
        self._epoch_begun = time.monotonic()

    def _is_due(self, event: str) -> bool:
        engine = self.train
        if event == "EXCEPTION_RAISED":
            return True
        if event == "TERMINATE":
            return bool(engine.should_terminate)
        if event == "COMPLETED":
            return bool(engine.should_terminate != "skip_completed")
        if engine.should_terminate:
            return False
        if event == "TERMINATE_SINGLE_EPOCH":
            return bool(engine.should_terminate_single_epoch)
        if event == "EPOCH_COMPLETED":
            return bool(engine.should_terminate_single_epoch != "skip_epoch_completed")
        return True

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
        if not self._length or 0 < self._batches < trainer.num_training_batches:
            self._length = trainer.num_training_batches  # one that is ended early is as long, there
        is_known = self._length != float("inf")
        state.epoch_length = int(self._length) if is_known else None
        state.max_epochs = None if trainer.max_epochs < 0 else trainer.max_epochs
        state.dataloader = trainer.train_dataloader
        is_inside = event not in ("STARTED", "TERMINATE", "COMPLETED")
        state.epoch = trainer.current_epoch + is_inside
        state.iteration = progress.batches_completed + (event == "ITERATION_STARTED")
        if event == "GET_BATCH_COMPLETED" or event == "ITERATION_STARTED":
            state.batch, state.output = given[0], None
        elif event == "ITERATION_COMPLETED":
            state.batch, state.output = given[1], output_of(given[0])
        if event in _WITH_METRICS:
            begun = self._begun if event == "COMPLETED" else self._epoch_begun
            state.times[event] = time.monotonic() - begun
            self._take_metrics(state, trainer)

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

    def _heed(self, trainer: Any, event: str) -> None:
        """Do what handlers asked of the engine."""
        engine, is_before = self.train, event in _BEFORE_A_BATCH
        if engine.should_terminate and not self._is_told:
            self._is_told = True
            trainer.stop(_WHY)
            if is_before:
                raise StopTraining(_WHY)
        if (
            engine.should_terminate_single_epoch
            and not self._is_over
            and event != "EPOCH_COMPLETED"
        ):
            self._is_over = True
            if event == "ITERATION_STARTED":
                trainer.skip_batch()
            trainer.end_epoch()


def output_of(outputs: Any) -> Any:
    """Return a step's result as a supervised trainer there does: the loss as a number."""
    if isinstance(outputs, dict) and set(outputs) == {"loss"}:
        return outputs["loss"].item()
    return outputs

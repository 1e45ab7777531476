"""Engines of Ignite, for training and for validation, that a fit of ours drives.

Handlers attach to real engines. The engines do not run by themselves: the adapters fill their state
from our run and fire their events at our hooks.
"""

from __future__ import annotations

import importlib
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.loaders import number_of_batches
from trainer_hooks.errors import StopTraining, UsageError, add_note

if TYPE_CHECKING:
    from collections.abc import Callable

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
"""Events of the training engine at each hook of ours; `INTERRUPT` is fired on request."""

VALIDATION_EVENTS = {
    "on_validation_start": ("STARTED",),
    "on_validation_epoch_start": ("EPOCH_STARTED",),
    "on_validation_batch_start": ("ITERATION_STARTED",),
    "on_validation_batch_end": ("ITERATION_COMPLETED",),
    "on_validation_epoch_end": ("EPOCH_COMPLETED",),
    "on_validation_end": ("COMPLETED",),
    "on_exception": ("EXCEPTION_RAISED",),
}
"""Events of the validation engine at each hook of ours; a sanity check fires none."""

_BEFORE_A_BATCH = frozenset(
    {
        "GET_BATCH_STARTED", "DATALOADER_STOP_ITERATION", "GET_BATCH_COMPLETED",
        "ITERATION_STARTED",
    }
)  # fmt: skip
_WITH_NEW_BATCH = frozenset({"GET_BATCH_COMPLETED", "ITERATION_STARTED"})
_WITH_METRICS = frozenset({"EPOCH_COMPLETED", "COMPLETED"})
_VALIDATION = "a validation"
"""Stands for an event where a validation begins, at which the training's engine fires none."""
_TERMINATED = "a handler of Ignite called engine.terminate()"
_INTERRUPTED = "a handler of Ignite called engine.interrupt()"


# --- an engine ---


@cache
def _engine_class() -> Any:
    """Return the class of engines that a run of ours drives; made once, as Ignite is optional."""
    package: Any = importlib.import_module("ignite.engine")
    base: Any = package.Engine
    events = {event.name: event for event in package.Events}

    class DrivenEngine(base):  # type: ignore[misc]  # a base that is not known before
        """An engine whose run is a fit of trainer_hooks.

        Attributes:
            wanted: names of the events that have a handler.
            added: the handlers, each with its further arguments, in the order of their addition.
        """

        def add_event_handler(self, event_name: Any, *args: Any, **kwargs: Any) -> Any:
            """Add a handler, and note it and its event."""
            # Ignite calls this again for each event of a list; a text is no event that it knows
            if not hasattr(event_name, "__iter__"):
                self.__dict__.setdefault("wanted", set()).add(event_name.name)
                self.__dict__.setdefault("added", []).append((*args, kwargs))
            return super().add_event_handler(event_name, *args, **kwargs)

        def fire_driven(self, event: str, *args: Any, **kwargs: Any) -> None:
            """Fire an event; an error of a handler gains a note with the handler's name.

            Args:
                event: the name of the event.
                *args: positional arguments of its handlers.
                **kwargs: keyword arguments of its handlers.
            """
            try:
                self._fire_event(events[event], *args, **kwargs)
            except StopTraining:
                raise
            except Exception as error:
                add_note(error, f"in {_handler_of(error, base)} of Ignite, on Events.{event}")
                raise

        def run(self, *_: Any, **__: Any) -> Any:
            """Refuse to run, which the Trainer does.

            Raises:
                UsageError: always.
            """
            raise UsageError(
                "engine.run() was called by a handler of Ignite, on the engine of a fit of "
                "trainer_hooks: the Trainer runs it. Call trainer.request_validation() in a hook."
            )

    return DrivenEngine


@cache
def _state_class() -> Any:
    """Return the class of the states of these engines; made once, as Ignite is optional."""
    base: Any = importlib.import_module("ignite.engine").State

    class DrivenState(base):  # type: ignore[misc]  # a base that is not known before
        """State that looks its loader and metrics up in the run.

        It must not hold the loader: checkpoints save the random generators that can be reached from
        a callback, and those of the loaders are saved already, with their positions.

        Attributes:
            find_dataloader: returns the loader.
            find_metrics: returns the run's metrics since the last event; None once they were read.
        """

        find_dataloader: Callable[[], Any]
        find_metrics: Callable[[], Any] | None = None

        @property
        def metrics(self) -> dict[str, Any]:
            """The logged metrics as numbers, beside those that handlers have set."""
            # to read a value waits for the device, so it is done where a handler looks
            if self.find_metrics is not None:
                metrics, self.find_metrics = self.find_metrics(), None
                self._metrics.update((name, value.item()) for name, value in metrics.items())
            return self._metrics

        @metrics.setter
        def metrics(self, metrics: dict[str, Any]) -> None:
            self.find_metrics, self._metrics = None, metrics

        @property
        def dataloader(self) -> Any:
            """The loader, or the list or dict of loaders; None before the first event."""
            return self.find_dataloader()

        @dataloader.setter
        def dataloader(self, loader: Any) -> None:
            self.find_dataloader = lambda: loader

    return DrivenState


def _handler_of(error: Exception, engine_class: Any) -> str:
    """Return the name of the handler that an engine had called when an error was raised.

    All handlers of an event hang on one engine, so that the callback whose hook fires it need not
    be the one that failed.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is engine_class._fire_event.__code__:  # noqa: SLF001 - its frame
            return f"the handler {name_of(trace.tb_frame.f_locals.get('func'))}"
        trace = trace.tb_next
    return "an engine"


def name_of(handler: Any) -> str:
    """Return the name of a function, or of an object's class."""
    return str(getattr(handler, "__qualname__", type(handler).__qualname__))


def new_engine() -> Any:
    """Return an engine whose step does nothing."""
    engine = _engine_class()(lambda _engine, _batch: None)
    engine.state = _state_class()()
    engine.wanted = set()
    engine.added = []
    return engine


# --- the engines of a fit ---


class EngineListener(Protocol):
    """An adapter whose handlers are attached to the engines."""

    def attach_to(self, train: Any, validation: Any) -> None:
        """Add the handlers to the engines.

        Args:
            train: the engine of the training.
            validation: the engine of the validations.
        """


class EnginePair:
    """The two engines of a fit, which all adapters of a trainer share.

    Several adapters hear of each hook, but an event is fired once: by its driver, the first adapter
    whose handlers want the event.

    Attributes:
        train: the engine of the training.
        validation: the engine of the validations.
    """

    def __init__(self) -> None:
        self.train = new_engine()
        self.validation = new_engine()
        self._train_drivers: dict[str, EngineListener] = {}
        self._validation_drivers: dict[str, EngineListener] = {}
        self._started_at = self._epoch_started_at = time.monotonic()
        self._batches = 0
        self._is_filled = False
        self._max_epochs: int | None = None
        self._last_batch: tuple[Any, ...] | None = None
        self._has_stopped = self._has_ended_epoch = self._is_interrupted = False
        self._owes_epoch_end = False
        self._open_epoch: int | None = None
        self._is_exhausted = False
        self._last_listener: EngineListener | None = None

    def enter(self, listener: EngineListener) -> None:
        """Attach an adapter's handlers; it drives the events that no adapter before it wants."""
        listener.attach_to(self.train, self.validation)
        self._last_listener = listener
        for event in self.train.wanted:
            self._train_drivers.setdefault(event, listener)
        for event in self.validation.wanted:
            self._validation_drivers.setdefault(event, listener)

    def fire_train(
        self, listener: EngineListener, events: tuple[str, ...], trainer: Any, *arguments: Any
    ) -> None:
        """Fire the events of the training that an adapter drives.

        Args:
            listener: the adapter whose hook is called.
            events: names of the events at that hook.
            trainer: the Trainer.
            *arguments: the hook's arguments after trainer and module.
        """
        engine = self.train
        for event in events:
            if self._train_drivers.get(event) is not listener:
                if event == "ITERATION_COMPLETED":
                    # not read before a handler can see it: to read a loss waits for the device
                    self._last_batch = arguments[:2]
                continue
            # the first branch is for speed: this one is fired for every batch
            if event == "ITERATION_COMPLETED" and not engine.should_terminate:
                self._refresh_train(trainer, event, arguments)
                engine.fire_driven(event)
            elif self._is_due(event, trainer):
                self._refresh_train(trainer, event, arguments)
                self._fire_train(event, arguments)
            if engine.should_terminate or engine.should_terminate_single_epoch:
                self._apply_termination(trainer, event)
            if engine.should_interrupt:
                self._interrupt(trainer)
            if engine.state.max_epochs != self._max_epochs:
                self._apply_max_epochs(trainer)

    def fire_validation(
        self, listener: EngineListener, events: tuple[str, ...], trainer: Any, *arguments: Any
    ) -> None:
        """Bring both states up to date, and fire the events of a validation; see `fire_train`."""
        if trainer.sanity_checking:
            return
        if "EXCEPTION_RAISED" in events:
            if trainer.validating and self._validation_drivers.get(events[0]) is listener:
                self.validation.fire_driven(events[0], arguments[0])
            return
        for event in events:
            # without a driver too: handlers of other events read what this hook tells
            self._refresh_validation(trainer, event, arguments)
            if self._validation_drivers.get(event) is listener:
                self.validation.fire_driven(event)
                _refuse_new_batch(self.validation, event, arguments)
                if self.validation.should_terminate or self.validation.should_interrupt:
                    raise UsageError(
                        "a handler of Ignite called terminate() or interrupt() on the engine of a "
                        "validation: a "
                        "validation here runs to its end. Pass Trainer(limit_val_batches=...)."
                    )
                # a handler of a validation may terminate the training: early stopping does
                if not self._has_stopped:
                    # in Ignite a handler of EPOCH_COMPLETED runs the validation after an epoch, so
                    # that the training's other handlers of that event are called all the same
                    self._owes_epoch_end = trainer.progress.stage is not EpochStage.BATCHES
                self._apply_termination(trainer, event)
                if self.train.state.max_epochs != self._max_epochs:
                    self._apply_max_epochs(trainer)

    def begin_epoch(self, trainer: Any) -> None:
        """Start the epoch's clock and reset its termination; every adapter calls it."""
        if self._open_epoch == trainer.current_epoch:
            return
        self.train.should_terminate_single_epoch = self._has_ended_epoch = False
        self._epoch_started_at = time.monotonic()
        # in Ignite, an epoch's iterator turns out to be exhausted when the next epoch asks it for a
        # batch: DATALOADER_STOP_ITERATION comes then, unless the epoch before was ended early
        length = number_of_batches(trainer.train_dataloader)
        if length == float("inf"):
            length = trainer.num_training_batches
        is_whole = trainer.progress.batches_in_last_epoch >= length
        self._is_exhausted = self._open_epoch is not None and is_whole
        self._open_epoch = trainer.current_epoch

    def resume_inside_epoch(self, listener: EngineListener, trainer: Any) -> None:
        """Fire EPOCH_STARTED again where a fit is resumed inside an epoch, as Ignite does.

        Args:
            listener: the adapter whose hook is called; the last one fires, when the handlers of all
                were told of the start.
            trainer: the Trainer.
        """
        progress = trainer.progress
        has_more = progress.batches_in_epoch < trainer.num_training_batches
        is_last = listener is self._last_listener
        if is_last and progress.stage is EpochStage.BATCHES and has_more:
            self.begin_epoch(trainer)
            driver = self._train_drivers.get("EPOCH_STARTED")
            if driver is not None:
                self.fire_train(driver, ("EPOCH_STARTED",), trainer)

    def _is_due(self, event: str, trainer: Any) -> bool:
        """Return whether Ignite would fire an event now, after the requests of handlers."""
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
        # the text is how terminate(skip_completed=True) is noted on the engine
        if event == "COMPLETED":
            return bool(ends != "skip_completed")
        # terminate() leaves Ignite's loops at once: TERMINATE and COMPLETED follow, and no more
        if ends:
            is_owed = event == "EPOCH_COMPLETED" and self._owes_epoch_end
            return event == "TERMINATE" or is_owed
        # terminate_epoch() leaves the loop over batches; the epoch has its end all the same
        return event != "TERMINATE" and not (
            event == "EPOCH_COMPLETED" and ends_epoch == "skip_epoch_completed"
        )

    def _fire_train(self, event: str, arguments: tuple[Any, ...]) -> None:
        engine = self.train
        if event == "EXCEPTION_RAISED":
            engine.fire_driven(event, arguments[0])
        # a keyword of Ignite's: how many batches the epoch had until then
        elif event == "TERMINATE_SINGLE_EPOCH":
            engine.fire_driven(event, iter_counter=self._batches)
        else:
            engine.fire_driven(event)
            _refuse_new_batch(engine, event, arguments)

    # --- the state of the engines ---

    def _refresh_train(self, trainer: Any, event: str, arguments: tuple[Any, ...]) -> None:
        """Fill the training engine's state for an event."""
        state, progress = self.train.state, trainer.progress
        self._batches = progress.batches_in_epoch
        # these last for an epoch: not for every batch
        if self._batches <= 1 or not self._is_filled:
            self._is_filled = True
            batches = trainer.num_training_batches
            state.epoch_length = None if batches == float("inf") else int(batches)
            self._max_epochs = None if trainer.max_epochs < 0 else trainer.max_epochs
            state.max_epochs = self._max_epochs
            state.find_dataloader = lambda: trainer.train_dataloader
        state.find_metrics = lambda: trainer.callback_metrics
        if event == "ITERATION_COMPLETED":
            state.epoch = progress.epochs_completed + 1
            state.iteration = progress.batches_completed
            state.batch, state.output = arguments[1], output_of(arguments[0])
            return
        # Ignite counts an epoch and an iteration before the events that start them
        if event == _VALIDATION:
            is_inside = self._open_epoch == progress.epochs_completed
        else:
            is_inside = event not in ("STARTED", "TERMINATE", "COMPLETED")
        state.epoch = progress.epochs_completed + is_inside
        state.iteration = progress.batches_completed + (event == "ITERATION_STARTED")
        # Ignite forgets the last output when it has a batch
        if event in _WITH_NEW_BATCH:
            state.batch, state.output = arguments[0], None
            self._last_batch = None
        elif self._last_batch is not None:
            state.batch, state.output = self._last_batch[1], output_of(self._last_batch[0])
            self._last_batch = None
        if event in _WITH_METRICS:
            started_at = self._started_at if event == "COMPLETED" else self._epoch_started_at
            state.times[event] = time.monotonic() - started_at

    def _refresh_validation(self, trainer: Any, event: str, arguments: tuple[Any, ...]) -> None:
        """Fill the validation engine's state for an event."""
        state = self.validation.state
        if event == "STARTED":
            # a run of an evaluator counts from zero again
            state.iteration = state.epoch = 0
            # a handler of the validation may read it; it stands still until the validation is over
            self._refresh_train(trainer, _VALIDATION, ())
        state.max_epochs, state.find_dataloader = 1, lambda: trainer.val_dataloaders
        if event != "STARTED":
            state.epoch = 1
        if event == "ITERATION_STARTED":
            state.batch, state.output = arguments[0], None
            state.iteration = arguments[1] + 1
        elif event == "ITERATION_COMPLETED":
            state.output, state.batch = arguments[:2]
            state.iteration = arguments[2] + 1
        if event in _WITH_METRICS:
            state.find_metrics = lambda: trainer.callback_metrics

    # --- requests of handlers ---

    def _interrupt(self, trainer: Any) -> None:
        """Stop after the current batch; the other events are for the run that is resumed."""
        self.train.should_interrupt = False
        self.train.fire_driven("INTERRUPT")
        self._is_interrupted = True
        trainer.stop(_INTERRUPTED)

    def _apply_max_epochs(self, trainer: Any) -> None:
        """Train as long as a handler asked for by `engine.state.max_epochs = ...`."""
        self._max_epochs = self.train.state.max_epochs
        trainer.max_epochs = -1 if self._max_epochs is None else self._max_epochs

    def _apply_termination(self, trainer: Any, event: str) -> None:
        """Stop the fit or end the epoch, if a handler of `event` asked the engine for it."""
        engine = self.train
        if engine.should_terminate and not self._has_stopped:
            self._has_stopped = True
            trainer.stop(_TERMINATED)
            if event in _BEFORE_A_BATCH:
                # trainer.stop() alone would still run this batch
                raise StopTraining(_TERMINATED)
        if engine.should_terminate_single_epoch and not self._has_ended_epoch:
            if event == "EPOCH_COMPLETED":  # the epoch is over
                engine.should_terminate_single_epoch = False
                return
            self._has_ended_epoch = True
            if event == "ITERATION_STARTED":
                trainer.skip_batch()
            trainer.end_epoch()


def _refuse_new_batch(engine: Any, event: str, arguments: tuple[Any, ...]) -> None:
    """Raise an error if a handler of `event` replaced the batch, which the step would not get."""
    if event in _WITH_NEW_BATCH and engine.state.batch is not arguments[0]:
        raise UsageError(
            f"a handler of Ignite set engine.state.batch at Events.{event}: the module's step gets "
            "the trainer's own batch, and would not see the new one. Change the batch's tensors in "
            "place, or replace the batch in the module's on_before_batch_transfer."
        )


def output_of(outputs: Any) -> Any:
    """Return a step's outputs as Ignite's supervised trainer does: a lone loss as a float."""
    if isinstance(outputs, dict) and set(outputs) == {"loss"}:
        return outputs["loss"].item()
    return outputs

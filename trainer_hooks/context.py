"""RunContext: what one run consists of, in one object that the loops work on."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import TimeUnit
from trainer_hooks.data import generators_of
from trainer_hooks.errors import TerminationSignal
from trainer_hooks.module import Optimization
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from trainer_hooks.checkpoint import BackgroundSaves
    from trainer_hooks.clock import Filter, Progress, Time, Timekeeper
    from trainer_hooks.connector import CallbackConnector
    from trainer_hooks.data import BatchTransfer, DataModule, Evaluator, TrainStream
    from trainer_hooks.errors import StopTraining
    from trainer_hooks.hooks import HookRelay
    from trainer_hooks.metrics import History, MetricStore
    from trainer_hooks.module import Module
    from trainer_hooks.runtime import Precision
    from trainer_hooks.trainer import Trainer as Trainer

__all__ = ["IN_OTHER_LIMITS", "EvalData", "Plan", "RunContext", "RunState", "present_step"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The numbers that the loops go by: the Trainer's options with their defaults filled in.

    Attributes:
        max_epochs: epochs to train, -1 for no end.
        min_epochs: epochs before a stop is heeded.
        max_steps: optimizer steps to train, -1 for no end.
        min_steps: optimizer steps before a stop is heeded.
        max_duration: what to train, in any unit, or None; of epochs, iterations and steps it is in
            `max_epochs` and `max_steps`, too.
        max_seconds: wall time after which a Timer asks to stop, or None.
        limit_train_batches: batches an epoch: a number (int) or a share (float).
        limit_val_batches: likewise, of each validation loader.
        limit_test_batches: likewise, of each test loader.
        limit_predict_batches: likewise, of each predict loader.
        overfit_batches: a number or share of training and validation batches, unshuffled; 0 is off.
        val_check_interval: a share of an epoch (float), a number of batches (int), a time, or a
            filter.
        check_val_every_n_epoch: epochs between validations; None counts batches over all epochs.
        num_sanity_val_steps: validation batches to run before training; -1 for all.
        accumulate_grad_batches: batches of a window.
        microbatch_size: samples of a part that a batch is split into, `"auto"`, or None: the whole.
        gradient_clip_val: bound on the gradients, or None.
        gradient_clip_algorithm: `"norm"` or `"value"`.
        log_every_n_steps: windows between two hand-overs to the loggers.
        iteration_length: epochs of an iteration, or None.
        inference_mode: whether evaluation outside fit uses `torch.inference_mode`.
        detect_anomaly: whether autograd looks for the origin of a NaN.
    """

    max_epochs: int = 1000
    min_epochs: int = 0
    max_steps: int = -1
    min_steps: int = 0
    max_duration: Time | None = None
    max_seconds: float | None = None
    limit_train_batches: int | float = 1.0
    limit_val_batches: int | float = 1.0
    limit_test_batches: int | float = 1.0
    limit_predict_batches: int | float = 1.0
    overfit_batches: int | float = 0
    val_check_interval: int | float | Time | Filter = 1.0
    check_val_every_n_epoch: int | None = 1
    num_sanity_val_steps: int = 2
    accumulate_grad_batches: int = 1
    microbatch_size: int | str | None = None
    gradient_clip_val: float | None = None
    gradient_clip_algorithm: str = "norm"
    log_every_n_steps: int = 50
    iteration_length: int | None = None
    inference_mode: bool = True
    detect_anomaly: bool = False

    @property
    def ends(self) -> tuple[tuple[TimeUnit, int | float], ...]:
        """What a training ends with, whichever comes first: units and how many of them."""
        ends: list[tuple[TimeUnit, int | float]] = []
        if self.max_epochs >= 0:
            ends.append((TimeUnit.EPOCH, self.max_epochs))
        if self.max_steps >= 0:
            ends.append((TimeUnit.STEP, self.max_steps))
        if self.max_seconds is not None:
            ends.append((TimeUnit.SECOND, self.max_seconds))
        if self.max_duration is not None and self.max_duration.unit not in IN_OTHER_LIMITS:
            ends.append((self.max_duration.unit, self.max_duration.value))
        return tuple(ends)


IN_OTHER_LIMITS = frozenset({TimeUnit.ITERATION, TimeUnit.EPOCH, TimeUnit.STEP})
"""Units of a `max_duration` that `max_epochs` and `max_steps` stand for."""


@dataclass(slots=True)
class RunState:
    """What a trainer is doing.

    Attributes:
        fn: `"fit"`, `"validate"`, `"test"`, `"predict"`, or None between runs.
        stage: `"train"`, `"sanity_check"`, `"validate"`, `"test"`, `"predict"`, or None.
        status: `"initializing"`, `"running"`, `"finished"` or `"interrupted"`.
    """

    fn: str | None = None
    stage: str | None = None
    status: str = "initializing"


def present_step(fn: str | None, progress: Progress) -> int:
    """Return the place on the x axis of what is logged now, which is Lightning's.

    It is the last window that was done, and after a fit the number of them.
    """
    return max(0, progress.batches_stepped - 1) if fn == "fit" else progress.batches_stepped


@dataclass(slots=True)
class EvalData:
    """The loaders of an evaluation.

    Attributes:
        loaders: run one after another.
        num_batches: how many batches of each; infinity where the loader cannot say.
        evaluators: what they were given in, if in evaluators.
        chosen: the numbers of those that are run in the validation under way; None for all.
    """

    loaders: list[Any] = field(default_factory=list)
    num_batches: list[int | float] = field(default_factory=list)
    evaluators: list[Evaluator] = field(default_factory=list)
    chosen: list[int] | None = None

    def __bool__(self) -> bool:
        return any(self.num_batches)

    def is_chosen(self, index: int) -> bool:
        """Return whether a loader takes part in the validation under way."""
        return self.chosen is None or index in self.chosen

    def suffix(self, index: int) -> str:
        """Return what is added to the names of what is logged for a loader."""
        if self.evaluators:
            return f"/{self.evaluators[index].label}"
        return f"/dataloader_idx_{index}" if len(self.loaders) > 1 else ""

    def generator_states(self) -> list[Any]:
        """Return the states of the loaders' own random generators."""
        return [generator.get_state() for generator in generators_of(self.loaders)]

    def set_generator_states(self, states: list[Any]) -> None:
        """Take them back, as far as the loaders still have generators."""
        for generator, state in zip(generators_of(self.loaders), states, strict=False):
            generator.set_state(state)


@dataclass(slots=True)
class RunContext:
    """One run of fit, validate, test or predict.

    Attributes:
        trainer: what hooks are given.
        module: likewise.
        datamodule: the data module, or None.
        connector: the callbacks.
        background: what is written while the training goes on.
        hooks: call a hook here to call it on every callback and the module.
        plan: the numbers to go by.
        progress: the counters of the module's training.
        timekeeper: what its clock needs besides.
        metrics: the logged values.
        history: what of them was due, over the whole training.
        state: what the trainer is doing.
        device: where the module is.
        precision: what the forward runs in.
        transfer: takes a batch to the device.
        optimization: optimizers and schedulers; empty outside fit.
        stream: the training batches; None outside fit.
        evaluation: loaders by stage: validate, test, predict.
        resumed: what a checkpoint says on the place in the epoch, until the loop has taken it.
        evaluator_state: when evaluators with an interval of their own were asked and run last.
        dataloader_label: the evaluator whose loader is in use, or an empty text.
        before_validation: `random_states()` as a validation inside fit began, while it runs.
        pending_signal: the number of a signal to heed at the next batch, or 0.
        is_leaving: whether one was heeded, so that another does not wait for anything.
        is_stopping: whether somebody asked the run to stop.
        stop_requests: how often `StopTraining` was raised.
        is_in_batch: whether a training batch is taken or in work, and not yet counted as done.
        is_last_batch: whether the batch in work is the epoch's last.
        skips_batch: whether somebody asked to leave the batch in work out.
        batch_losses: methods of the trainer that run the module's step for it, by `"train"` and
            `"eval"`; only those that are overridden.
        own_step: the module's own step, while a method that the trainer overrides is in its place.
        validation_limit: batches of each loader of the validation under way at most, or None.
        notes_indices: whether somebody asked which samples the batches of a prediction consist of.
        batch_indices: those of the batch in work, or None where that is not known.
    """

    trainer: Trainer
    module: Module
    datamodule: DataModule | None
    connector: CallbackConnector
    background: BackgroundSaves
    hooks: HookRelay
    plan: Plan
    progress: Progress
    timekeeper: Timekeeper
    metrics: MetricStore
    history: History
    state: RunState
    device: torch.device
    precision: Precision
    transfer: BatchTransfer
    optimization: Optimization = field(default_factory=Optimization)
    stream: TrainStream | None = None
    evaluation: dict[str, EvalData] = field(default_factory=dict)
    resumed: dict[str, Any] = field(default_factory=dict)
    evaluator_state: dict[str, Any] = field(default_factory=dict)
    dataloader_label: str = ""
    before_validation: dict[str, Any] = field(default_factory=dict)
    pending_signal: int = 0
    is_leaving: bool = False
    is_stopping: bool = False
    stop_requests: int = 0
    is_in_batch: bool = False
    is_last_batch: bool = False
    skips_batch: bool = False
    batch_losses: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    own_step: Callable[[Any], Any] | None = None
    validation_limit: int | None = None
    notes_indices: bool = False
    batch_indices: list[Any] | None = None

    @property
    def has_data(self) -> bool:
        """Whether the loaders were found."""
        return self.stream is not None or bool(self.evaluation)

    @property
    def has_to_stop(self) -> bool:
        """Whether a stop was asked for, and the run has the length that it must have."""
        if self.stop_requests:
            return True
        return (
            self.is_stopping
            and self.progress.epochs_completed >= self.plan.min_epochs
            and self.progress.steps_completed >= self.plan.min_steps
        )

    def stop_by(self, request: StopTraining) -> None:
        """Heed a `StopTraining`: nothing new is begun, and what is open is closed."""
        self.is_stopping = True
        self.skips_batch = True
        self.stop_requests += 1
        if self.stop_requests == 1:
            self.hooks.on_stop_training_error(self.trainer, self.module, request)

    def random_states(self) -> dict[str, Any]:
        """Return the global random numbers and those of the validation loaders.

        Beside them is what a validation adds to, too.
        """
        return {
            "history": self.history.state_dict(),
            "evaluated": dict(self.metrics.evaluated),
            "rng": rng.capture(),
            "val_generators": self.evaluation["validate"].generator_states(),
        }

    def heed_signal(self) -> None:
        """Raise what a signal that came since the last batch stands for."""
        signum, self.pending_signal = self.pending_signal, 0
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        if signum:
            self.is_leaving = True
            raise TerminationSignal(signum, is_in_order=True)

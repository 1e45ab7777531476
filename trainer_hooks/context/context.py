"""RunContext: what one run consists of, in one object that the loops work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.context.asked import Asked
from trainer_hooks.context.data import RunData
from trainer_hooks.context.moving import MovingParts
from trainer_hooks.context.work import BatchInWork, CycleInWork, OverriddenSteps, ValidationInWork
from trainer_hooks.data import samples_of
from trainer_hooks.errors import message_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from trainer_hooks.checkpoint import BackgroundSaves
    from trainer_hooks.connector import CallbackConnector
    from trainer_hooks.context.plan import Plan
    from trainer_hooks.context.state import RunState
    from trainer_hooks.context.training import Training
    from trainer_hooks.data import BatchTransfer
    from trainer_hooks.errors import StopTraining
    from trainer_hooks.hooks import HookRelay
    from trainer_hooks.module import DataModule, Module
    from trainer_hooks.runtime import Precision, Processes
    from trainer_hooks.trainer import Trainer as Trainer

__all__ = ["RunContext"]


@dataclass(slots=True)
class RunContext:
    """One run of fit, validate, test or predict: a list of parts, each with a job of its own.

    Attributes:
        trainer: what hooks are given.
        module: likewise.
        datamodule: the data module, or None.
        connector: the callbacks.
        hooks: call a hook here to call it on every callback and the module.
        background: what is written while the training goes on.
        plan: the numbers to go by.
        state: what the trainer is doing.
        training: counters, metrics and optimizers of the module's training.
        precision: what the forward runs in.
        transfer: takes a batch to the device.
        data: the loaders.
        asked: what was asked of the run while it goes on, and the loops go by.
        wishes: what this process asks, which is the same until there are several; then it is what
            they have yet to agree on.
        processes: all processes of the run.
        batch: the batch in work.
        cycle: the cycle of epochs in work.
        validation: the validations inside fit.
        steps: methods of the trainer in place of the module's step.
        parts: everything that moves in the run: what is saved, restored and undone.
        resumed: the checkpoint whose place in the epoch the loop has yet to take up, or nothing.
        retake: lets the step of a fit take the optimizers that there are now.
    """

    trainer: Trainer
    module: Module
    datamodule: DataModule | None
    connector: CallbackConnector
    hooks: HookRelay
    background: BackgroundSaves
    plan: Plan
    state: RunState
    training: Training
    precision: Precision
    transfer: BatchTransfer
    processes: Processes
    data: RunData = field(default_factory=RunData)
    asked: Asked = field(default_factory=Asked)
    batch: BatchInWork = field(default_factory=BatchInWork)
    cycle: CycleInWork = field(default_factory=CycleInWork)
    validation: ValidationInWork = field(default_factory=ValidationInWork)
    steps: OverriddenSteps = field(default_factory=OverriddenSteps)
    parts: MovingParts = field(default_factory=MovingParts)
    resumed: dict[str, Any] = field(default_factory=dict)
    retake: Callable[[], None] | None = None
    wishes: Asked = field(init=False)

    def __post_init__(self) -> None:
        """Wish and be heard at once, but for a fit of several processes."""
        has_to_agree = self.processes.is_several and self.state.fn == "fit"
        self.wishes = Asked() if has_to_agree else self.asked

    @property
    def has_to_stop(self) -> bool:
        """Whether a stop was asked for, and the run has the length that it must have."""
        if self.asked.stop_requests:
            return True
        progress = self.training.progress
        return (
            self.asked.is_stopping
            and progress.epochs_completed >= self.plan.min_epochs
            and progress.steps_completed >= self.plan.min_steps
        )

    @property
    def why_stopping(self) -> str:
        """That a stop was asked for, in the words of who did."""
        words = self.asked.stop_message or self.trainer.stop_reason
        return f"a stop was asked for: {words}" if words else "a stop was asked for"

    @property
    def is_inside_epoch(self) -> bool:
        """Whether the training batches of an epoch are being taken."""
        return self.batch.is_taken or self.training.progress.batches_in_epoch > 0

    def stop_by(self, request: StopTraining) -> None:
        """Heed a `StopTraining`: nothing new is begun, and what is open is closed."""
        self.wishes.is_stopping = True
        self.asked.skips_batch = True
        self.wishes.stop_requests += 1
        if self.wishes.stop_requests == 1:
            self.asked.stop_message = message_of(request)
            if self.asked.stop_message and not self.trainer.stop_reason:
                self.trainer.stop(self.asked.stop_message)
            self.hooks.on_stop_training_error(self.trainer, self.module, request)

    def end_epoch(self) -> None:
        """End the epoch's batches after the one in work; of several processes, when all know."""
        if self.processes.is_several:
            self.wishes.ends_epoch = True
        else:
            self.training.progress.is_epoch_end_requested = True

    def leave_epoch(self) -> None:
        """Leave out the batch in work, and what is left of its epoch's batches."""
        self.asked.skips_batch = True
        self.end_epoch()

    def take_optimizers(self, optimizers: list[Optimizer]) -> None:
        """Go on with other optimizers, from the next step on.

        Raises:
            OptimizationError: they are not such as the step can take; nothing is changed then.
        """
        before, self.training.optimization.optimizers = (
            self.training.optimization.optimizers,
            optimizers,
        )
        if self.retake is not None:
            try:
                self.retake()
            except BaseException:
                self.training.optimization.optimizers = before
                raise

    def let_go(self) -> None:
        """End: leave to the training what it goes on with, and forget the rest."""
        if self.state.fn == "fit":
            self.training.left = self._places()
            self.training.scaler = self.precision.state_dict()
            if self.data.stream is not None:
                stream = self.data.stream
                self.training.num_batches = stream.num_batches
                self.training.length = stream.length
                self.training.samples = samples_of(stream.loader, stream.length)
        self.data.let_go()

    def loop_state(self) -> dict[str, Any]:
        """Return, as plain data, what the training loop knows of its place."""
        return {
            "is_last_batch": self.batch.is_last,
            "is_in_cycle": self.cycle.is_open,
            "has_scheduled": self.batch.has_scheduled,
        }

    def _places(self) -> dict[str, Any]:
        """Return, as plain data, where the loaders stand and what they are like."""
        found: dict[str, Any] = {
            "evaluators": dict(self.validation.evaluators),
            "inside_batch": self.batch.is_taken,
            "renewed": dict(self.data.renewed),
            "loop": self.loop_state(),
        }
        if self.data.stream is not None:
            found |= {
                "stream": self.data.stream.state_dict(inside_batch=self.batch.is_taken),
                "val_generators": self.data.evaluation["validate"].generator_states(),
                "accumulate_grad_batches": self.plan.accumulate_grad_batches,
            }
        return found

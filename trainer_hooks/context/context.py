"""RunContext: the object that the loops of one run work on, and the parts that they change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.context.loaders import RunLoaders
from trainer_hooks.context.requests import RunRequests
from trainer_hooks.context.state_registry import StateRegistry
from trainer_hooks.data.loaders import sample_counts
from trainer_hooks.errors import error_message
from trainer_hooks.module.optimization import require_optimizers

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from trainer_hooks.checkpoint.background import BackgroundSaves
    from trainer_hooks.connector.connector import CallbackConnector
    from trainer_hooks.context.plan import RunPlan
    from trainer_hooks.context.run_state import RunState
    from trainer_hooks.context.training import TrainingState
    from trainer_hooks.data.data_hooks import BatchTransfer
    from trainer_hooks.errors import StopTraining
    from trainer_hooks.hooks.relay import HookRelay
    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.module import Module
    from trainer_hooks.runtime.precision import Precision
    from trainer_hooks.runtime.processes import Processes
    from trainer_hooks.trainer.trainer import Trainer as Trainer


@dataclass(slots=True)
class CurrentBatch:
    """The state of the batch that a loop has taken.

    Attributes:
        is_taken: whether a training batch was requested from the loader and is not counted yet.
            After that, until it is logged and validated, `progress.is_batch_open` is true.
        is_last: whether the current training batch is the epoch's last.
        has_scheduled: whether the schedulers that step by epoch have stepped in this epoch.
        window: batches of an accumulation window in this epoch; 0 outside of its batches.
        indices: sample indices of the predict batch, or None if unknown.
        loader_label: label of the evaluator whose loader is in use, or an empty string.
    """

    is_taken: bool = False
    is_last: bool = False
    has_scheduled: bool = False
    window: int = 0
    indices: list[Any] | None = None
    loader_label: str = ""


@dataclass(slots=True)
class CurrentValidation:
    """The state of the validations inside a fit.

    Attributes:
        snapshot: while a validation runs, the states that it may change as they were when it began.
            A checkpoint that is saved in it holds those, so that a resume runs it again.
        limit: largest number of batches of each of its loaders, or None.
        evaluators: for evaluators with an interval of their own, when they were last checked and
            last run.
    """

    snapshot: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    evaluators: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StepCalls:
    """How the module's steps are called: compiled, or watched by a profiler.

    Attributes:
        compiled: the result of `torch.compile(module)`, whose compiler runs the steps; or None.
        watch: wraps a step of a name for a profiler; None if there is none.
    """

    compiled: Any = None
    watch: Callable[[str, Callable[..., Any]], Callable[..., Any]] | None = None

    def watched(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step, wrapped by `watch` if there is one."""
        return step if self.watch is None else self.watch(name, step)

    def compile(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step, compiled if the module is a compiled one."""
        if self.compiled is None:
            return step
        # torch.compile(module) compiles the forward alone; its context compiles any function
        compiled: Callable[..., Any] = self.compiled.dynamo_ctx(step)
        return compiled

    def forward_of(self, module: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that runs a module's forward: the module, or its compiled form."""
        return module if self.compiled is None else self.compiled


@dataclass(slots=True)
class RunContext:
    """The parts of one run of fit, validate, test or predict.

    Attributes:
        trainer: the first argument of hooks.
        module: the second argument of hooks.
        datamodule: the data module, or None.
        connector: the callbacks.
        hooks: the relay, `connector.relay`: `hooks.on_x(...)` calls every member that overrides it.
        background: checkpoint writes that go on while the training does.
        plan: the options that the loops go by.
        plan_at_start: those with which the run began; hooks may have changed `plan` since.
        state: what the trainer is doing: method, stage and status.
        training: counters, metrics and optimizers of the module's training.
        precision: the autocast and loss scaling of the forward.
        transfer: moves a batch to the device.
        data: the loaders.
        requests: the requests on which the loops act.
        local_requests: the requests of this rank. In a run of one rank they are `requests`; with
            several ranks, those on which the ranks have yet to agree.
        processes: all ranks of the run.
        batch: the current batch.
        is_in_cycle: whether a fit is in a cycle of `iteration_length` epochs.
        validation: the validations inside fit.
        steps: how the module's steps are called.
        state_registry: everything that changes in the run: what is saved, restored and undone.
        resumed: the checkpoint of which the loop has yet to restore its part, or empty.
        resumed_path: the path of that checkpoint.
        continues_epoch: whether the current epoch was begun in an earlier run.
        predictions: the predictions that a prediction returns, so far: a list for each loader.
        rebind_optimizers: lets the step of a fit use the present optimizers; None outside fit.
        after_first_batches: functions to call after each training batch while they return True.
    """

    trainer: Trainer
    module: Module
    datamodule: DataModule | None
    connector: CallbackConnector
    hooks: HookRelay
    background: BackgroundSaves
    plan: RunPlan
    state: RunState
    training: TrainingState
    precision: Precision
    transfer: BatchTransfer
    processes: Processes
    data: RunLoaders = field(default_factory=RunLoaders)
    requests: RunRequests = field(default_factory=RunRequests)
    batch: CurrentBatch = field(default_factory=CurrentBatch)
    is_in_cycle: bool = False
    validation: CurrentValidation = field(default_factory=CurrentValidation)
    steps: StepCalls = field(default_factory=StepCalls)
    state_registry: StateRegistry = field(default_factory=StateRegistry)
    resumed: dict[str, Any] = field(default_factory=dict)
    resumed_path: str = ""
    continues_epoch: bool = False
    predictions: list[list[Any]] = field(default_factory=list)
    rebind_optimizers: Callable[[], None] | None = None
    after_first_batches: list[Callable[[], bool | None]] = field(default_factory=list)
    local_requests: RunRequests = field(init=False)
    plan_at_start: RunPlan = field(init=False)

    def __post_init__(self) -> None:
        """Keep this rank's requests apart if the ranks must agree before they act on them."""
        self.plan_at_start = self.plan
        # a rank that acted at once would leave the others waiting for it in a collective
        has_to_agree = self.processes.is_distributed and self.state.fn == "fit"
        self.local_requests = RunRequests() if has_to_agree else self.requests

    @property
    def should_stop(self) -> bool:
        """Whether a stop was requested and the run has its minimum length."""
        # StopTraining ends the run at once; a mere request waits for the minimum length
        if self.requests.stop_requests:
            return True
        progress = self.training.progress
        return (
            self.requests.is_stopping
            and progress.epochs_completed >= self.plan.min_epochs
            and progress.steps_completed >= self.plan.min_steps
        )

    @property
    def stop_explanation(self) -> str:
        """The reason of a requested stop, for messages."""
        reason = self.requests.stop_message or self.trainer.stop_reason
        return f"a stop was asked for: {reason}" if reason else "a stop was asked for"

    @property
    def is_inside_epoch(self) -> bool:
        """Whether the run is between the first and the last training batch of an epoch."""
        return self.batch.is_taken or self.training.progress.batches_in_epoch > 0

    def request_stop(self) -> None:
        """Record that the code that is running, in a callback's hook perhaps, requested a stop."""
        requests, stopper = self.local_requests, self.connector.current_state_key()
        requests.is_stopping = True
        if stopper not in requests.stoppers:
            requests.stoppers.append(stopper)

    def withdraw_stop(self) -> None:
        """Withdraw this rank's request for a stop; one by `StopTraining` stays."""
        self.local_requests.is_stopping = False
        self.local_requests.stoppers = []

    def stop_by(self, request: StopTraining) -> None:
        """Act on a `StopTraining`: skip the rest of the batch, begin no other, close open hooks."""
        local = self.local_requests
        # the relay calls this when all listeners had their turn: whose error it is, is unknown
        stoppers = [*local.stoppers] if local.is_stopping else [""]
        # not a local request: each rank may cut off its own batch, as it still takes part in the
        # reduction of the gradients
        self.requests.skips_batch = True
        local.stop_requests += 1
        is_first = local.stop_requests == 1
        # the first one gives the reason and fires the hook; a hook that raises again must not loop
        if is_first:
            self.requests.stop_message = error_message(request)
            if self.requests.stop_message and not self.trainer.stop_reason:
                self.trainer.stop(self.requests.stop_message)
        # after `stop`, which adds the last listener, as if it were the one that asked
        local.is_stopping, local.stoppers = True, stoppers
        if is_first:
            self.hooks.on_stop_training_error(self.trainer, self.module, request)

    def end_epoch(self) -> None:
        """End the epoch after the current batch; with several ranks, once all of them know."""
        if self.processes.is_distributed:
            # a rank that ended its epoch alone would leave the others waiting in a collective
            self.local_requests.ends_epoch = True
        else:
            self.training.progress.is_epoch_end_requested = True

    @property
    def closes_window(self) -> bool:
        """Whether the current batch is the last of its accumulation window."""
        in_window = self.training.progress.batches_in_window
        return self.batch.is_last or in_window + 1 >= self.batch.window

    def fix_window(self) -> int:
        """Fix the batches of a window for this epoch, and return them.

        What a hook sets inside the epoch counts from the next one on, also after a resume.
        """
        self.batch.window = self.batch.window or self.plan.accumulate_grad_batches
        return self.batch.window

    def leave_epoch(self) -> None:
        """Skip the rest of the current batch and the remaining batches of the epoch."""
        self.requests.skips_batch = True
        self.end_epoch()

    def replace_optimizers(self, optimizers: list[Optimizer]) -> None:
        """Replace the optimizers from the next step on.

        Raises:
            OptimizationError: the step cannot use them, or one is no optimizer; the former ones
                stay.
        """
        require_optimizers(optimizers)
        before, self.training.optimization.optimizers = (
            self.training.optimization.optimizers,
            optimizers,
        )
        # outside fit no step holds references to the former optimizers
        if self.rebind_optimizers is not None:
            try:
                self.rebind_optimizers()
            except BaseException:
                self.training.optimization.optimizers = before
                raise

    def end_run(self) -> None:
        """End the run: keep the counts of its loaders, and drop them."""
        stream = self.data.stream
        if self.state.fn == "fit" and stream is not None:
            self.training.num_batches = stream.num_batches
            self.training.length = stream.length
            self.training.samples = sample_counts(stream.loader, stream.length)
        self.data.drop_loaders()

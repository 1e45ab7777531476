"""RunContext: the object that the loops of one run work on, and the parts that they change."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.context.loaders import RunLoaders
from trainer_hooks.context.state_registry import StateRegistry
from trainer_hooks.data.loaders import sample_counts
from trainer_hooks.errors import TerminationSignal, error_message
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


_REQUESTED = {
    "wants_validation": "is_validation_requested",
    "wants_checkpoint": "is_checkpoint_requested",
    "ends_epoch": "is_epoch_end_requested",
}
"""Requests of one rank, with the counter that holds them once the ranks have agreed."""

REQUESTS_OF_A_RANK = ("is_stopping", *_REQUESTED)
"""The requests on which the ranks agree at the end of an accumulation window."""


@dataclass(slots=True)
class RunRequests:
    """The requests of callbacks, the user and signals, on which the loops act between two batches.

    Attributes:
        is_stopping: whether a stop of the run was requested.
        stop_requests: number of `StopTraining` errors that were raised.
        stop_message: message of the first of them.
        stoppers: the state keys of the callbacks that requested a stop, each once; empty for what
            is no callback.
        sent: the names of the requests that the last backward could send to the other ranks; later
            ones are sent with the next backward. None before the first backward.
        skips_batch: whether the rest of the current batch is to be skipped.
        records_indices: whether the sample indices of prediction batches are to be recorded.
        pending_signal: number of a signal to act on at the next batch, or 0.
        agreed_signal: number of a signal on which all ranks act together, or 0.
        is_leaving: whether a signal was acted on, so that a second one ends the run at once.
        wants_validation: whether a validation was requested that not all ranks know of yet.
        wants_checkpoint: whether a checkpoint was requested that not all ranks know of yet.
        ends_epoch: whether the end of the epoch was requested that not all ranks know of yet.
        serving: the state key of the saver that serves a requested checkpoint, or an empty string.
    """

    is_stopping: bool = False
    stop_requests: int = 0
    stop_message: str = ""
    stoppers: list[str] = field(default_factory=list)
    sent: frozenset[str] | None = None
    skips_batch: bool = False
    records_indices: bool = False
    pending_signal: int = 0
    agreed_signal: int = 0
    is_leaving: bool = False
    wants_validation: bool = False
    wants_checkpoint: bool = False
    ends_epoch: bool = False
    serving: str = ""

    @property
    def made(self) -> frozenset[str]:
        """The names of the requests that wait for the ranks' agreement."""
        return frozenset(name for name in REQUESTS_OF_A_RANK if getattr(self, name))

    @property
    def unsent(self) -> frozenset[str]:
        """The names of those that came after the last backward."""
        return frozenset() if self.sent is None else self.made - self.sent

    def raise_pending_signal(self) -> None:
        """Raise the exception of a signal that came since the last batch, if one did.

        Raises:
            KeyboardInterrupt: it was SIGINT.
            TerminationSignal: it was another one.
        """
        # cleared first, so that no later check raises for the same signal again
        signum, self.pending_signal = self.pending_signal, 0
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        if signum:
            self.is_leaving = True
            raise TerminationSignal(signum, is_in_order=True)


@dataclass(slots=True)
class CurrentBatch:
    """The state of the batch that a loop has taken.

    Attributes:
        is_taken: whether a training batch was requested from the loader and is not counted yet.
            After that, until it is logged and validated, `progress.is_batch_open` is true.
        is_last: whether the current training batch is the epoch's last.
        has_scheduled: whether the schedulers that step by epoch have stepped in this epoch.
        indices: sample indices of the predict batch, or None if unknown.
        loader_label: label of the evaluator whose loader is in use, or an empty string.
    """

    is_taken: bool = False
    is_last: bool = False
    has_scheduled: bool = False
    indices: list[Any] | None = None
    loader_label: str = ""


@dataclass(slots=True)
class CurrentCycle:
    """The cycle of `iteration_length` epochs that a fit is in.

    Attributes:
        is_open: whether one has begun and not ended.
    """

    is_open: bool = False


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
        cycle: the current cycle of epochs.
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
    cycle: CurrentCycle = field(default_factory=CurrentCycle)
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

    def __post_init__(self) -> None:
        """Keep this rank's requests apart if the ranks must agree before they act on them."""
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

    def let_go(self) -> None:
        """End the run: keep the state that the next fit of the training needs; drop the loaders."""
        if self.state.fn == "fit":
            # a checkpoint that is saved after the run needs the positions, and the loaders are gone
            self.training.left = self._loader_positions()
            if self.resumed:
                # the run failed before its loop: what it had yet to restore is what it goes on with
                self.training.left["pending"] = self.state_registry.pending(self.resumed)
                own = self.resumed["trainer_hooks"]
                names = ("slot", "inside_batch", "broken_off", "accumulate_grad_batches")
                self.training.left |= {name: own[name] for name in names if name in own}
            # the next run makes a new Precision, and takes the loss scale from here
            self.training.scaler = self.precision.state_dict()
            if self.data.stream is not None:
                stream = self.data.stream
                self.training.num_batches = stream.num_batches
                self.training.length = stream.length
                self.training.samples = sample_counts(stream.loader, stream.length)
        # last: the positions above are read from the loaders
        self.data.let_go()

    def loop_state(self) -> dict[str, Any]:
        """Return the training loop's flags, which no counter holds, as plain data."""
        return {
            "is_last_batch": self.batch.is_last,
            "is_in_cycle": self.cycle.is_open,
            "has_scheduled": self.batch.has_scheduled,
        }

    def load_loop_state(self, state: dict[str, Any]) -> None:
        """Restore the training loop's flags."""
        self.batch.is_last = state["is_last_batch"]
        self.cycle.is_open = state["is_in_cycle"]
        self.batch.has_scheduled = state["has_scheduled"]

    def stop_state(self) -> dict[str, Any] | None:
        """Return the request for a stop that the run has yet to follow; None if there is none."""
        return self._request_state() if _is_requested(self.requests) else None

    def own_stop_state(self) -> dict[str, Any] | None:
        """Return this rank's request for a stop that the ranks have yet to agree on, or None."""
        is_agreed = _is_requested(self.requests) or not _is_requested(self.local_requests)
        if is_agreed:
            return None
        return {
            **self._request_state(), "is_sent": "is_stopping" not in self.local_requests.unsent
        }  # fmt: skip

    def own_requests_state(self) -> dict[str, bool] | None:
        """Return this rank's other requests that the ranks have yet to agree on, or None.

        Each has its name, and whether the last backward has sent it to the other ranks.
        """
        local = self.local_requests
        if local is self.requests:  # one rank: its counters hold them
            return None
        return {name: name not in local.unsent for name in local.made - {"is_stopping"}} or None

    def _request_state(self) -> dict[str, Any]:
        requests, local = self.requests, self.local_requests
        # empty if another rank alone requested it
        stoppers = list(local.stoppers) or [""]
        renewing = {c.state_key for c in self.connector.callbacks if ours(c).renews_stop}
        return {
            # callbacks that renew their request give their reason anew
            "reason": "" if renewing.issuperset(stoppers) else self.trainer.stop_reason,
            "stoppers": stoppers,
            "is_raised": bool(requests.stop_requests or local.stop_requests),
            "limits": self._limits(),
        }

    def load_stop_state(self, state: dict[str, Any]) -> None:
        """Request the stop again that a checkpoint holds, unless the run is to go on beyond it.

        It goes on if it has other limits, or if the callbacks that requested the stop take no part
        any more or decide about it themselves.
        """
        self._request_again(state, self.requests, self.local_requests)

    def load_own_stop_state(self, state: dict[str, Any]) -> None:
        """Do the same for this rank's request, on which the ranks have yet to agree."""
        self._request_again(state, self.local_requests)
        self._note_sent("is_stopping", state["is_sent"])

    def load_own_requests_state(self, state: dict[str, bool]) -> None:
        """Make this rank's other requests again, on which the ranks have yet to agree."""
        progress = self.training.progress
        for name, is_sent in state.items():
            if self.local_requests is not self.requests:
                setattr(self.local_requests, name, True)
                self._note_sent(name, is_sent)
            else:  # one rank goes on with the checkpoint of several
                setattr(progress, _REQUESTED[name], True)

    def _note_sent(self, name: str, is_sent: bool) -> None:
        """Note of a restored request whether the last backward had sent it."""
        local = self.local_requests
        local.sent = (local.sent or frozenset()) | ({name} if is_sent else set())

    def _request_again(self, state: dict[str, Any], *places: RunRequests) -> None:
        deciding = {c.state_key: not ours(c).renews_stop for c in self.connector.callbacks}
        # an empty key is that of the module, or of code outside of all hooks
        stoppers = [key for key in state["stoppers"] if deciding.get(key, not key)]
        if not stoppers or state["limits"] != self._limits():
            return
        self.trainer.stop(state["reason"])
        for requests in places:
            requests.is_stopping, requests.stoppers = True, stoppers
            requests.stop_requests = int(state["is_raised"])

    def _limits(self) -> dict[str, Any]:
        plan = self.plan
        duration = None if plan.max_duration is None else str(plan.max_duration)
        return {
            "max_epochs": plan.max_epochs,
            "max_steps": plan.max_steps,
            "max_duration": duration,
        }

    def _loader_positions(self) -> dict[str, Any]:
        """Return the positions of the loaders and the flags of the loop, as plain data."""
        positions: dict[str, Any] = {
            "evaluators": dict(self.validation.evaluators),
            "inside_batch": self.batch.is_taken,
            "renewed": dict(self.data.renewed),
            "sharding_seed": self.data.sharding_seed,
            "loop": self.loop_state(),
        }
        # a `setup` hook that asks for the fit's length makes the stream alone, and may end the run
        if self.data.stream is not None and "validate" in self.data.evaluation:
            positions |= {
                "stream": self.data.stream.state_dict(inside_batch=self.batch.is_taken),
                "val_generators": self.data.evaluation["validate"].generator_states(),
                "accumulate_grad_batches": self.plan.accumulate_grad_batches,
            }
        return positions


def _is_requested(requests: RunRequests) -> bool:
    """Return whether a stop is among these requests."""
    return requests.is_stopping or requests.stop_requests > 0

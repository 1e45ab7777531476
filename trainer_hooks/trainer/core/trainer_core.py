"""The core of a trainer: everything that outlives a single run, how it is made and shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks._names import ours
from trainer_hooks._text import count_with_noun
from trainer_hooks.clock.progress import EpochStage, Progress
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.connector.run_lock import RunLock
from trainer_hooks.context.position import end_position
from trainer_hooks.context.run_state import RunState
from trainer_hooks.context.training import TrainingState
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.loggers.logger_guards import LoggerGuards
from trainer_hooks.runtime.device import pick_device
from trainer_hooks.runtime.precision import make_precision
from trainer_hooks.runtime.processes import Processes
from trainer_hooks.runtime.strategy import make_process_group, resolve_strategy
from trainer_hooks.runtime.strategy_options import DDPStrategy
from trainer_hooks.trainer.options.limits import check_duration, with_duration, with_number

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    import torch
    from torch.optim import Optimizer

    from trainer_hooks.callback import Callback
    from trainer_hooks.checkpoint.background import BackgroundSaves
    from trainer_hooks.checkpoint.custom_io import CustomIO
    from trainer_hooks.clock.timing import Time
    from trainer_hooks.connector.callback_state import LoadReport
    from trainer_hooks.context.context import RunContext
    from trainer_hooks.context.loaders import EvalLoaders
    from trainer_hooks.context.plan import RunPlan
    from trainer_hooks.context.state_registry import RegisteredState
    from trainer_hooks.hooks.profile import HookProfile
    from trainer_hooks.loggers import Logger
    from trainer_hooks.metrics.store import MetricStore, MutedMetrics
    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.module import Module
    from trainer_hooks.profilers import Profiler
    from trainer_hooks.runtime.precision import Precision
    from trainer_hooks.trainer.core.run_inputs import RunInputs
    from trainer_hooks.trainer.options.config import TrainerConfig


@dataclass(slots=True)
class StartCheckpoint:
    """The checkpoint that a run starts from, or that the last run started from.

    Attributes:
        path: its path, or None.
        named_path: the path, but None where `"last"`, `"best"` or `"auto"` chose it.
        is_auto: whether `"auto"` was passed: resume if there is a checkpoint, else start anew.
        is_open: whether a callback may still choose another path, as until `on_before_load`.
        report: the load report with changed plugins and upgraded states.
        record: the record of a failed start that is to be removed once a batch is trained, or "".
    """

    path: str | None = None
    named_path: str | None = None
    is_auto: bool = False
    is_open: bool = False
    report: LoadReport | None = None
    record: str = ""

    def choose(self, path: str | os.PathLike[str] | None) -> None:
        """Set another checkpoint for the running run to start from.

        Raises:
            UsageError: no run is waiting to read it.
        """
        from trainer_hooks.checkpoint.paths import absolute_path

        if not self.is_open:
            raise UsageError(
                f"trainer.ckpt_path was set to {path!r} when no run had yet to read it: a callback "
                "may set it in setup, on_configure_model or on_before_load. Otherwise pass it: "
                "fit(ckpt_path=...)."
            )
        self.path = self.named_path = None if path is None else absolute_path(path)


@dataclass(slots=True)
class TrainerCore:
    """The lasting parts of a trainer, shared by its runs one after another.

    Attributes:
        config: the options as passed.
        plan: the limits and intervals in effect; `trainer.max_epochs = n` replaces it.
        connector: the callbacks.
        background: the saves that are written in another thread.
        loggers: the loggers.
        device: the device that modules are moved to.
        processes: this process and the other ranks.
        precision: the precision of forward passes; each run makes a new one.
        guards: the guards that hold back errors of loggers in a run.
        state: the stage and status of the trainer.
        run_lock: the lock that keeps a callback from being in two runs at once.
        hook_profile: the active or last profile of the hooks.
        profiler: the profiler of its runs, or None.
        custom_io: the user's `CheckpointIO` as the trainer calls it, or None.
        module: the module of the last run.
        compiled: the wrapper that `torch.compile` returned, if it was passed; or None.
        datamodule: the data module of the last run.
        training: the training state of the last fit's module.
        start_checkpoint: the checkpoint of the last run.
        broken_off: the hook of an epoch that the error of the last run has broken off, if it did.
        warned_hooks: hooks for which a warning about saving was given.
        advised: subjects on which advice was given.
        was_stopping: whether the last run was requested to stop.
        has_run: whether there has been a run.
        is_sent: whether it is being pickled for the ranks of a run.
        is_trial: whether its runs are trial runs, which are not reported.
        inputs: the arguments of the running call; None between runs.
        context: the running run; None between runs.
        evaluation: the loaders and batch counts of the last run's evaluations, by stage.
        muted: the sink for logged metrics that are to have no effect, or None.
        extra_states: states of the user's own loop, which checkpoints hold too.
        entry_point: the name of the user's call that trains, for messages.
    """

    config: TrainerConfig
    plan: RunPlan
    connector: CallbackConnector
    background: BackgroundSaves
    loggers: list[Logger]
    device: torch.device
    processes: Processes
    precision: Precision
    guards: LoggerGuards = field(default_factory=LoggerGuards)
    state: RunState = field(default_factory=RunState)
    run_lock: RunLock = field(default_factory=RunLock)
    hook_profile: HookProfile | None = None
    profiler: Profiler | None = None
    custom_io: CustomIO | None = None
    module: Module | None = None
    compiled: Any = None
    datamodule: DataModule | None = None
    training: TrainingState = field(default_factory=TrainingState)
    start_checkpoint: StartCheckpoint = field(default_factory=StartCheckpoint)
    broken_off: str = ""
    warned_hooks: set[str] = field(default_factory=set)
    advised: set[str] = field(default_factory=set)
    was_stopping: bool = False
    has_run: bool = False
    is_sent: bool = False
    is_trial: bool = False
    inputs: RunInputs | None = None
    context: RunContext | None = None
    evaluation: dict[str, EvalLoaders] = field(default_factory=dict)
    muted: MutedMetrics | None = None
    extra_states: list[RegisteredState] = field(default_factory=list)
    entry_point: str = "fit"

    def begin_run(self, inputs: RunInputs) -> None:
        """Begin a run; a fit with another module than before starts from zero."""
        self.inputs = inputs
        self.module, self.compiled, self.datamodule = (
            inputs.module,
            inputs.compiled,
            inputs.datamodule,
        )
        # by identity: an equal module, or another of the same class, has not been trained here
        if inputs.fn == "fit" and inputs.module is not self.training.module:
            # counters that the user set before the first fit are its starting point
            begins = self.training.progress if self.training.module is None else Progress()
            self.training = TrainingState(inputs.module, begins)
        if inputs.fn == "fit":
            self.training.hparams, self.training.origin = ours(inputs.module).saved_hparams, None
            self.training.command = ""
            if inputs.label is not None:
                self.training.origin = inputs.label.origin
                self.training.identity = inputs.label.identity
        # a new one for each run, with the loss scale of this training alone
        self.precision = make_precision(self.config.precision, self.device)
        if scaler := self.training.ended.states.get("scaler"):
            self.precision.load_state_dict(scaler)
        self.state.stop_reason = self.broken_off = ""
        self.training.metrics.begin_run()

    def end_run(self) -> None:
        """End a run and drop its context and loaders."""
        if self.context is not None:
            if self.context.state.fn == "fit":
                # before the loaders are dropped: a checkpoint that is saved after the run needs it
                self.training.ended = end_position(self.context)
            self.context.end_run()
            # copied, since users ask for them after the run, whose context is dropped below
            self.was_stopping = self.context.requests.is_stopping
            self.evaluation = self.context.data.evaluation
        self.inputs = self.context = None
        self.start_checkpoint.is_open = False
        self.state.stage = None

    def change_plan(self, option: str, value: int) -> None:
        """Change an option; a running fit applies it from its next epoch on at the latest.

        Raises:
            OptionError: it breaks the option's rule.
        """
        self.plan = with_number(self.plan, option, value)
        if self.context is not None:
            self.context.plan = with_number(self.context.plan, option, value)

    def change_window(self, set_window: Mapping[str, int]) -> None:
        """Set the accumulation window as a hook had set it in the run that was cut."""
        context = self.context
        # another option of this run counts at once
        if context is None or set_window["before"] != context.plan.accumulate_grad_batches:
            return
        context.batch.window = set_window.get("epoch", 0)
        self.change_plan("accumulate_grad_batches", set_window["now"])

    def change_optimizers(self, optimizers: Iterable[Optimizer]) -> None:
        """Replace the optimizers of a running fit, from its next step on.

        Raises:
            UsageError: no fit is running.
            OptimizationError: the module's optimization cannot step them.
        """
        if self.context is None or self.context.state.fn != "fit":
            raise UsageError(
                "trainer.optimizers was set while no fit is under way, and each fit makes its own: "
                "return them from configure_optimizers, or set it in a hook of fit."
            )
        self.context.replace_optimizers(list(optimizers))

    def change_duration(self, value: str | Time | timedelta) -> None:
        """Change the training duration, between two fits or in one.

        Raises:
            OptionError: it is no duration.
        """
        duration = check_duration(value, self.plan.iteration_length)
        self.plan = with_duration(self.plan, duration)
        if self.context is not None:
            self.context.plan = with_duration(self.context.plan, duration)

    def for_trial(self, plan: RunPlan, callbacks: Sequence[Callback]) -> TrainerCore:
        """Return the core of a trial run: the same device and precision, no history, no loggers.

        Args:
            plan: the limits of the trial.
            callbacks: its only callbacks.
        """
        from trainer_hooks.checkpoint.background import BackgroundSaves

        return TrainerCore(
            config=self.config,
            plan=plan,
            # no plugins: only what was passed may act on a trial
            connector=CallbackConnector(callbacks, discover=False),
            background=BackgroundSaves(str),  # which notifies nobody
            loggers=[],
            device=self.device,
            processes=self.processes,
            precision=make_precision(self.config.precision, self.device),
            muted=self.muted,
            is_trial=True,
        )

    @property
    def log_target(self) -> MetricStore | MutedMetrics:
        """The store that receives logged metrics."""
        return self.muted or self.training.metrics

    @property
    def fn(self) -> str | None:
        """The running method: `"fit"`, `"validate"`, `"test"`, `"predict"`, or None."""
        return None if self.inputs is None else self.inputs.fn

    @property
    def hparams(self) -> dict[str, Any]:
        """The hyperparameters for loggers: the data module's, and the module's."""
        # the module's last: of two values of one name, loggers are given the module's
        parts = (self.datamodule, self.module)
        logged = [ours(part).logged_hparams for part in parts if part is not None]
        return {name: value for hparams in logged for name, value in (hparams or {}).items()}


def make_custom_io(config: TrainerConfig) -> CustomIO | None:
    """Return the `CheckpointIO` among the plugins as the trainer calls it, or None."""
    io = config.checkpoint_io
    if io is None:
        return None
    # imported where it is needed: most programs pass none
    from trainer_hooks.checkpoint.custom_io import CustomIO

    log.info(
        "checkpoints are written, read and removed by %s: that they are whole is up to that class",
        type(io).__name__,
    )
    return CustomIO(io)


def make_processes(config: TrainerConfig) -> tuple[Processes, torch.device]:
    """Return the processes that the options request, and the device of this one.

    Raises:
        OptionError: there is no such device or strategy, or BatchNorm cannot be synchronised there.
    """
    topology, options = resolve_strategy(config.strategy, config.devices, config.num_nodes)
    device = pick_device(config.accelerator, config.devices, topology)
    # ranks that are started for each run make their process group there, see `ForkedRuns`
    if topology.world_size > 1 and not topology.starts_each_run:
        processes = make_process_group(device, topology, options)
        if config.sync_batchnorm and device.type != "cuda":
            raise OptionError(
                f"Trainer(sync_batchnorm=True): torch's SyncBatchNorm needs GPUs, and this is "
                f"{device.type}. Leave it out."
            )
        return processes, device
    if topology.world_size == 1 and not isinstance(options, DDPStrategy):
        log.info("strategy 'fsdp' in one process: its weights are not sharded")
    return Processes(device, topology), device


def remove_rank_zero_callbacks(connector: CallbackConnector) -> None:
    """Remove the callbacks that run on rank zero only, on another rank."""
    # a tuple made for this loop, which `remove` does not change
    for callback in connector.callbacks:
        if ours(callback).runs_on == "rank_zero":
            connector.remove(callback)


def picklable_core(core: TrainerCore, name: str) -> TrainerCore:
    """Return a core that can be copied or pickled: without the profile of hooks.

    Args:
        core: the trainer's core.
        name: the trainer's class, for messages.

    Raises:
        TypeError: a run is going on, or there are several processes.
    """
    if core.fn is not None:
        raise TypeError(
            f"a {name} cannot be copied or pickled in its {core.fn}: the loaders, and what they "
            "have given out, belong to it alone. Do it before or after, or save what is trained "
            "with save_checkpoint."
        )
    if core.processes.topology.world_size > 1 and not core.is_sent:
        raise TypeError(
            f"a {name} of several processes cannot be copied or pickled, as the others would not "
            "know of the copy. Make another one with the same options."
        )
    # threads and their buffers cannot be copied
    core.background.finish()
    core.background.release()
    return replace(core, hook_profile=None, is_sent=False)


def trainer_repr(name: str, core: TrainerCore) -> str:
    """Return the repr of a trainer: its arguments, its parts, and its progress.

    Args:
        name: the name of its class.
        core: the trainer's core.
    """
    given = core.config.given
    callbacks = ", ".join(type(each).__name__ for each in core.connector.callbacks)
    module = core.module
    parts = [
        f"{core.device}, {core.precision.name}",
        f"callbacks: {callbacks}" if callbacks else "no callbacks",
        *(["nothing was run yet"] if module is None else [_activity(core, type(module).__name__)]),
    ]
    return f"<{name}({given}): {'; '.join(parts)}>"


def _activity(core: TrainerCore, module: str) -> str:
    """Return the present run or the status of the last, and the progress of the training."""
    progress = core.training.progress
    activity = f"{module}, {core.state.status}" if core.fn is None else f"in {core.fn} of {module}"
    position = f"epoch {progress.epochs_completed}, step {progress.steps_completed}"
    if progress.stage is EpochStage.BATCHES:
        position += f", after {count_with_noun(progress.batches_in_epoch, 'batch')}"
    return activity if progress.is_untrained else f"{activity}, {position}"

"""Session: what of a trainer outlives a single run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks import checkpoint
from trainer_hooks.clock import Progress
from trainer_hooks.connector import CallbackConnector, Occupation
from trainer_hooks.context import EvalData, RunContext, RunState, Training
from trainer_hooks.errors import UsageError
from trainer_hooks.loggers.guards import LoggerGuards
from trainer_hooks.runtime import make_precision
from trainer_hooks.trainer.options import check_duration, with_duration, with_number
from trainer_hooks.trainer.run.start import Start

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    import torch
    from torch.optim import Optimizer

    from trainer_hooks.callback import Callback
    from trainer_hooks.clock import Time
    from trainer_hooks.context import Plan
    from trainer_hooks.hooks import HookProfile
    from trainer_hooks.loggers import Logger
    from trainer_hooks.metrics import MetricStore, MutedMetrics
    from trainer_hooks.module import DataModule, Module
    from trainer_hooks.profilers import Profiler
    from trainer_hooks.runtime import Precision, Processes
    from trainer_hooks.trainer.options import TrainerConfig
    from trainer_hooks.trainer.run.job import Job

__all__ = ["Session"]


@dataclass(slots=True)
class Session:
    """The lasting parts of a trainer, shared by its runs one after another.

    Attributes:
        config: the options as given.
        plan: the numbers to go by; a later `trainer.max_epochs = n` replaces it.
        connector: the callbacks.
        background: what is written while the training goes on.
        loggers: the loggers.
        device: where modules go.
        processes: this process and the others.
        precision: what forwards run in; each run has one of its own.
        guards: what stands in front of the loggers in a run.
        state: what the trainer is doing.
        occupation: who is inside its run.
        hook_profile: what times the callbacks, or did so last.
        profiler: what measures its runs, or None.
        module: the module of the last run.
        compiled: the same as `torch.compile` returned it, if it was given so; None otherwise.
        datamodule: the data module of the last run.
        training: how far the module of the last fit was trained.
        start: the checkpoint that the last run was given.
        stop_reason: why the run was asked to stop.
        told_hooks: hooks in which saving was warned of.
        advised: of what something was said that may not be meant.
        was_stopping: whether somebody asked the last run to stop.
        has_run: whether there was a run before, or is one.
        is_trial: whether its runs are tries, of which nothing is told.
        job: what the run under way was asked to do; None between runs.
        context: the run under way; None between runs.
        evaluation: how many batches the last run's evaluations have, by stage.
        muted: what is given what modules log, where nothing is to become of it.
    """

    config: TrainerConfig
    plan: Plan
    connector: CallbackConnector
    background: checkpoint.BackgroundSaves
    loggers: list[Logger]
    device: torch.device
    processes: Processes
    precision: Precision
    guards: LoggerGuards = field(default_factory=LoggerGuards)
    state: RunState = field(default_factory=RunState)
    occupation: Occupation = field(default_factory=Occupation)
    hook_profile: HookProfile | None = None
    profiler: Profiler | None = None
    module: Module | None = None
    compiled: Any = None
    datamodule: DataModule | None = None
    training: Training = field(default_factory=Training)
    start: Start = field(default_factory=Start)
    stop_reason: str = ""
    told_hooks: set[str] = field(default_factory=set)
    advised: set[str] = field(default_factory=set)
    was_stopping: bool = False
    has_run: bool = False
    is_trial: bool = False
    job: Job | None = None
    context: RunContext | None = None
    evaluation: dict[str, EvalData] = field(default_factory=dict)
    muted: MutedMetrics | None = None

    def take(self, job: Job) -> None:
        """Begin a run; a fit starts from nothing with another module than before."""
        self.job = job
        self.module, self.compiled, self.datamodule = job.module, job.compiled, job.datamodule
        if job.fn == "fit" and job.module is not self.training.module:
            # counters that were set before the first fit are where it begins
            begins = self.training.progress if self.training.module is None else Progress()
            self.training = Training(job.module, begins)
        if job.fn == "fit":
            self.training.hparams = job.module.saved_hparams
        self.precision = make_precision(self.config.precision, self.device)
        if self.training.scaler:
            self.precision.load_state_dict(self.training.scaler)
        self.stop_reason = ""
        self.training.metrics.begin_run()

    def let_go(self) -> None:
        """End a run: drop it whole, with the loaders that it was given."""
        if self.context is not None:
            self.context.let_go()
            self.was_stopping = self.context.asked.is_stopping
            self.evaluation = self.context.data.evaluation
        self.job = self.context = None
        self.start.is_open = False
        self.state.stage = None

    def change_plan(self, option: str, value: int) -> None:
        """Change an option; a fit under way heeds it, from its next epoch on at the latest.

        Raises:
            OptionError: it breaks the option's rule.
        """
        self.plan = with_number(self.plan, option, value)
        if self.context is not None:
            self.context.plan = with_number(self.context.plan, option, value)

    def change_optimizers(self, optimizers: Iterable[Optimizer]) -> None:
        """Let a fit under way go on with other optimizers, from its next step on.

        Raises:
            UsageError: no fit is under way.
            OptimizationError: they are not such as the module's optimization can step.
        """
        if self.context is None or self.context.state.fn != "fit":
            raise UsageError(
                "trainer.optimizers was set while no fit is under way, and each fit makes its own: "
                "return them from configure_optimizers, or set it in a hook of fit."
            )
        self.context.take_optimizers(list(optimizers))

    def change_duration(self, value: str | Time | timedelta) -> None:
        """Change what to train between two fits.

        Raises:
            OptionError: it is no duration.
        """
        self.plan = with_duration(self.plan, check_duration(value, self.plan.iteration_length))

    def for_trial(self, plan: Plan, callbacks: Sequence[Callback]) -> Session:
        """Return a session of the same device and precision in which nothing has happened yet.

        It has no loggers, and of callbacks only those that are given.
        """
        return Session(
            config=self.config,
            plan=plan,
            connector=CallbackConnector(callbacks, discover=False),
            background=checkpoint.BackgroundSaves(str),
            loggers=[],
            device=self.device,
            processes=self.processes,
            precision=make_precision(self.config.precision, self.device),
            muted=self.muted,
            is_trial=True,
        )

    @property
    def log_target(self) -> MetricStore | MutedMetrics:
        """What is given what modules log."""
        return self.muted or self.training.metrics

    @property
    def fn(self) -> str | None:
        """What is under way: `"fit"`, `"validate"`, `"test"`, `"predict"`, or None."""
        return None if self.job is None else self.job.fn

    @property
    def hparams(self) -> dict[str, Any]:
        """The hyperparameters that loggers are given: the data module's, and the module's."""
        parts = (self.datamodule, self.module)
        logged = [part.logged_hparams for part in parts if part is not None]
        return {name: value for one in logged for name, value in (one or {}).items()}

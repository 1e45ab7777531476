"""Session: what of a trainer outlives a single run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint import BackgroundSaves, located
from trainer_hooks.clock import Progress, Timekeeper
from trainer_hooks.connector import CallbackConnector, Occupation
from trainer_hooks.context import RunContext, RunState
from trainer_hooks.errors import UsageError
from trainer_hooks.loggers.guards import LoggerGuards
from trainer_hooks.metrics import History, MetricStore
from trainer_hooks.runtime import make_precision

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import torch

    from trainer_hooks.callback import Callback
    from trainer_hooks.connector import LoadReport
    from trainer_hooks.context import Plan
    from trainer_hooks.data import DataModule
    from trainer_hooks.hooks import HookProfile
    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.module import Module, Optimization
    from trainer_hooks.runtime import Precision
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
        guards: what stands in front of them in a run.
        device: where modules go.
        precision: what forwards run in.
        state: what the trainer is doing.
        job: what the last run was asked to do.
        module: the module of the last run.
        trained: the module of the last fit, to which counters and optimizers belong.
        datamodule: the data module of the last run.
        progress: the counters of its training.
        timekeeper: what its clock needs besides.
        metrics: its logged values.
        history: what of them was due, over the whole training.
        optimization: its optimizers and schedulers, once a fit made them.
        context: the run under way, or the last one.
        fit_context: the last fit, of which a checkpoint is made.
        ckpt_path: the checkpoint that the last run was given.
        named_ckpt_path: the same, but None where `"last"`, `"best"` or `"auto"` chose it.
        takes_ckpt_path: whether the run under way has yet to read it.
        load_report: what restoring it found.
        saved_at: when the last checkpoint was saved, or that which the last fit was given.
        occupation: who is inside its run.
        stop_reason: why the run was asked to stop.
        hook_profile: what times the callbacks, or did so last.
    """

    config: TrainerConfig
    plan: Plan
    connector: CallbackConnector
    background: BackgroundSaves
    loggers: list[Logger]
    device: torch.device
    precision: Precision
    guards: LoggerGuards = field(default_factory=LoggerGuards)
    state: RunState = field(default_factory=RunState)
    job: Job | None = None
    module: Module | None = None
    trained: Module | None = None
    datamodule: DataModule | None = None
    progress: Progress = field(default_factory=Progress)
    timekeeper: Timekeeper = field(default_factory=Timekeeper)
    metrics: MetricStore = field(default_factory=MetricStore)
    history: History = field(init=False)
    optimization: Optimization | None = None
    context: RunContext | None = None
    fit_context: RunContext | None = None
    ckpt_path: str | None = None
    named_ckpt_path: str | None = None
    takes_ckpt_path: bool = False
    load_report: LoadReport | None = None
    saved_at: int = 0
    occupation: Occupation = field(default_factory=Occupation)
    stop_reason: str = ""
    hook_profile: HookProfile | None = None

    def __post_init__(self) -> None:
        self.history = History(self.progress)

    def take(self, module: Module, datamodule: DataModule | None, fn: str) -> None:
        """Make `module` the one that runs; fit starts from nothing with another than before."""
        self.module = module
        if fn == "fit" and module is not self.trained:
            self.trained = module
            self.progress = Progress()
            self.timekeeper = Timekeeper()
            self.metrics = MetricStore()
            self.history = History(self.progress)
            self.optimization = None
            self.fit_context = None
        self.datamodule = datamodule
        self.stop_reason = ""
        self.metrics.begin_run()

    def choose_checkpoint(self, path: str | os.PathLike[str] | None) -> None:
        """Let the run under way start from another checkpoint than it was given.

        Raises:
            UsageError: there is no run that has yet to read it.
        """
        if not self.takes_ckpt_path:
            raise UsageError(
                f"trainer.ckpt_path was set to {path!r} when no run had yet to read it: a callback "
                "may set it in setup, on_configure_model or on_before_load. Otherwise pass it: "
                "fit(ckpt_path=...)."
            )
        self.ckpt_path = self.named_ckpt_path = None if path is None else located(path)

    def for_trial(self, plan: Plan, callbacks: Sequence[Callback]) -> Session:
        """Return a session of the same device and precision in which nothing has happened yet.

        It has no loggers, and of callbacks only those that are given.
        """
        return Session(
            config=self.config,
            plan=plan,
            connector=CallbackConnector(callbacks, discover=False),
            background=BackgroundSaves(str),
            loggers=[],
            device=self.device,
            precision=make_precision(self.config.precision, self.device),
        )

    @property
    def hparams(self) -> dict[str, Any]:
        """The hyperparameters that loggers are given."""
        logged = self.module.logged_hparams if self.module is not None else None
        return dict(logged or {})

"""TrainerView: what callbacks, modules and users read of a trainer."""

from __future__ import annotations

import math
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks import data, loops
from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._log import warn
from trainer_hooks.context import EvalData
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.trainer import run, verbs
from trainer_hooks.trainer.options import root_dir, steps_in, why_endless

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from datetime import timedelta

    import torch
    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.callback import Callback
    from trainer_hooks.callbacks import Checkpoint, EarlyStopping, ProgressBar
    from trainer_hooks.clock import Clock, Filter, Progress, Time
    from trainer_hooks.connector import CallbackReport, LoadReport
    from trainer_hooks.context import RunState
    from trainer_hooks.data import Evaluator
    from trainer_hooks.hooks import HookProfile, Plugin
    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.metrics import History
    from trainer_hooks.module import DataModule, LRSchedulerConfig, Module
    from trainer_hooks.profilers import Profiler
    from trainer_hooks.runtime import Precision
    from trainer_hooks.trainer.run import Session
    from trainer_hooks.trainer.views.fit_loop import FitLoopView
    from trainer_hooks.trainer.views.strategy import AcceleratorView, StrategyView

__all__ = ["TrainerView"]


class TrainerView:
    """The attributes of a trainer, under Lightning 2.x's names where it has them.

    They are read from the parts that its `Session` holds; nothing is kept here.
    """

    _session: Session

    # --- progress ---

    @property
    def progress(self) -> Progress:
        """All counters of the module's training."""
        return self._session.training.progress

    @property
    def clock(self) -> Clock:
        """How far the training has come, in every unit; a snapshot that does not change."""
        session = self._session
        return session.training.timekeeper.read(
            session.training.progress,
            iteration_length=session.plan.iteration_length,
            batches_per_epoch=self.num_training_batches,
            ends=session.plan.ends,
        )

    @property
    def current_epoch(self) -> int:
        """The index of the current epoch; after fit, the number of epochs done."""
        return self._session.training.progress.epochs_completed

    @property
    def global_step(self) -> int:
        """Optimizer steps so far, over all optimizers."""
        return self._session.training.progress.steps_completed

    @property
    def is_last_batch(self) -> bool:
        """Whether the current training batch is the last of its epoch."""
        context = self._session.context
        return context is not None and context.batch.is_last

    @property
    def batch_indices(self) -> list[Any] | None:
        """Which samples of the data set the current predict batch consists of, as indices.

        They are noted if somebody called `trainer.note_batch_indices()`. It is None where there
        are none: the loader is no DataLoader, its data set has no indices, or its batches come in
        any order.
        """
        context = self._session.context
        return None if context is None else context.batch.indices

    # --- state ---

    @property
    def is_leaving(self) -> bool:
        """Whether a signal is ending the run, such as SIGTERM from a cluster's scheduler."""
        context = self._session.context
        return context is not None and context.asked.is_leaving

    @property
    def received_sigterm(self) -> bool:
        """Whether SIGTERM, or another signal that ends the run in order, has come in it."""
        context = self._session.context
        is_waiting = context is not None and context.asked.pending_signal not in (0, signal.SIGINT)
        return is_waiting or self.is_leaving

    @property
    def state(self) -> RunState:
        """What the trainer is doing: `fn`, `stage`, `status`, `finished` and `stopped`."""
        return self._session.state

    @property
    def should_stop(self) -> bool:
        """Whether the fit was asked to stop; may be set."""
        context = self._session.context
        return self._session.was_stopping if context is None else context.wishes.is_stopping

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        if self._session.context is not None:
            self._session.context.wishes.is_stopping = bool(value)

    @property
    def stop_reason(self) -> str:
        """Why it was asked to stop, or an empty string."""
        return self._session.stop_reason

    @property
    def training(self) -> bool:
        """Whether training batches are being run."""
        return self._session.state.stage == "train"

    @property
    def validating(self) -> bool:
        """Whether validation is being run, inside fit or on its own."""
        return self._session.state.stage == "validate"

    @property
    def testing(self) -> bool:
        """Whether the test is being run."""
        return self._session.state.stage == "test"

    @property
    def predicting(self) -> bool:
        """Whether prediction is being run."""
        return self._session.state.stage == "predict"

    @property
    def sanity_checking(self) -> bool:
        """Whether the sanity check is being run: a few validation batches before training."""
        return self._session.state.stage == "sanity_check"

    @property
    def dataloader_label(self) -> str:
        """The label of the current loader, if it was given in an `Evaluator`; else empty."""
        context = self._session.context
        return context.batch.loader_label if context is not None else ""

    @property
    def evaluating(self) -> bool:
        """Whether validation or test is being run."""
        return self.validating or self.testing

    @property
    def interrupted(self) -> bool:
        """Whether the last run ended with an exception."""
        return self._session.state.status == "interrupted"

    # --- metrics and loggers ---

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """The latest value of everything logged, as 0-dim tensors; may be changed."""
        return self._session.training.metrics.callback_metrics

    @property
    def logged_metrics(self) -> dict[str, Tensor]:
        """The latest value of all that goes to the loggers, under the names used there."""
        return self._session.training.metrics.logged_metrics

    @property
    def history(self) -> History:
        """The values logged in training so far, by name."""
        return self._session.training.history

    run_history = history

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The metrics on the progress bar. Reading them copies from the device."""
        return self._session.training.metrics.progress_bar_metrics

    @property
    def loggers(self) -> list[Logger]:
        """The loggers."""
        return self._session.loggers

    @property
    def logger(self) -> Logger | None:
        """The first logger, or None."""
        return self._session.loggers[0] if self._session.loggers else None

    @property
    def log_dir(self) -> str | None:
        """The first logger's folder, or `default_root_dir` without a logger."""
        logger = self.logger
        is_dry = self.fast_dev_run > 0
        return self.default_root_dir if logger is None or is_dry else logger.log_dir

    @property
    def default_root_dir(self) -> str:
        """Where logs and checkpoints go."""
        return root_dir(self._session.config)

    @property
    def ckpt_path(self) -> str | None:
        """The checkpoint that the run starts from.

        A callback may set it until `on_before_load` is over: the run then starts from that one.

        Raises:
            UsageError: it is set at another time.
        """
        return self._session.start.path

    @ckpt_path.setter
    def ckpt_path(self, path: str | os.PathLike[str] | None) -> None:
        self._session.start.choose(path)

    @property
    def named_ckpt_path(self) -> str | None:
        """The checkpoint given by its path; no callback removes it."""
        return self._session.start.named_path

    @property
    def load_report(self) -> LoadReport | None:
        """Which callbacks' states a resume restored, and which were missing or unexpected."""
        return self._session.start.report

    # --- parts ---

    @property
    def callbacks(self) -> list[Callback]:
        """Every callback that takes part, in order. One that is appended takes part, too."""
        from trainer_hooks.trainer.views.callback_list import CallbackList

        session = self._session
        return CallbackList(
            session.connector.callbacks,
            partial(verbs.add_callback, session),
            partial(verbs.remove_callback, session),
        )

    @callbacks.setter
    def callbacks(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks[:] = callbacks

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Every installed plugin, and what became of it."""
        return self._session.connector.plugins

    @property
    def callback_origins(self) -> tuple[tuple[Callback, str], ...]:
        """As `callbacks`, each with who supplied it."""
        return tuple((e.callback, e.supplier) for e in self._session.connector.entries)

    @property
    def callback_report(self) -> tuple[CallbackReport, ...]:
        """The state of each callback: those that take part, in order, then the disabled ones.

        A disabled one is there with the hook that failed, the error and its traceback.
        """
        return self._session.connector.callback_report()

    @property
    def checkpoint_callbacks(self) -> list[Checkpoint]:
        """The callbacks that save checkpoints, those of the last band first."""
        savers = self._callbacks_of("saving.checkpoint", "Checkpoint")
        return sorted(savers, key=lambda saver: -saver.band)

    @property
    def checkpoint_callback(self) -> Checkpoint | None:
        """The first of `checkpoint_callbacks`, or None."""
        return next(iter(self.checkpoint_callbacks), None)

    @property
    def early_stopping_callbacks(self) -> list[EarlyStopping]:
        """The callbacks that stop early."""
        return self._callbacks_of("stopping.early_stopping", "EarlyStopping")

    @property
    def early_stopping_callback(self) -> EarlyStopping | None:
        """The first of `early_stopping_callbacks`, or None."""
        return next(iter(self.early_stopping_callbacks), None)

    @property
    def progress_bar_callback(self) -> ProgressBar | None:
        """The progress bar, or None."""
        return next(iter(self._callbacks_of("progress.progress_bar", "ProgressBar")), None)

    @property
    def module(self) -> Module | None:
        """The module of the run, or of the last one."""
        return self._session.module

    model = lightning_module = module

    @property
    def datamodule(self) -> DataModule | None:
        """The data module of the run, or of the last one."""
        return self._session.datamodule

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers; empty until fit has made them. Set it in a fit to go on with others."""
        return self._session.training.optimization.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Iterable[Optimizer]) -> None:
        self._session.change_optimizers(optimizers)

    @property
    def lr_scheduler_configs(self) -> list[LRSchedulerConfig]:
        """The schedulers and when they step; empty until fit has made them."""
        return self._session.training.optimization.schedulers

    @property
    def hook_profile(self) -> HookProfile | None:
        """The profile that times the callbacks, or None."""
        return run.active_profile(self._session)

    @property
    def profiler(self) -> Profiler:
        """What measures the runs; one that measures nothing unless `Trainer(profiler=...)` is."""
        from trainer_hooks.profilers import PassThroughProfiler

        return self._session.profiler or PassThroughProfiler()

    @property
    def makes_dataloaders(self) -> bool:
        """Whether the loaders come from the module or data module, rather than as arguments."""
        return self._session.job is not None and self._session.job.makes_loaders

    @property
    def train_dataloader(self) -> Any:
        """The training loader, or the list or dict of them; None outside fit."""
        context = self._session.context
        stream = context.data.stream if context is not None else None
        if stream is None:
            return None
        loader = stream.loader
        return loader.loaders if isinstance(loader, data.CombinedLoader) else loader

    @property
    def val_dataloaders(self) -> Any:
        """The validation loaders as they were given: one, or a list or dict; None without any."""
        return self._evaluation("validate").as_given

    @property
    def test_dataloaders(self) -> Any:
        """The test loaders as they were given: one, or a list or dict; None without any."""
        return self._evaluation("test").as_given

    @property
    def predict_dataloaders(self) -> Any:
        """The predict loaders as they were given: one, or a list or dict; None without any."""
        return self._evaluation("predict").as_given

    # --- where it runs ---

    @property
    def device(self) -> torch.device:
        """Where modules and batches go."""
        return self._session.device

    @property
    def precision(self) -> str:
        """The precision of the forward, as in `Trainer(precision=...)`."""
        return self._session.precision.name

    @property
    def precision_plugin(self) -> Precision:
        """The object behind `precision`, with the scaler if there is one."""
        return self._session.precision

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """What scales the loss with `precision="16-mixed"`, or None."""
        return self._session.precision.scaler

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self._session.processes.is_global_zero

    @property
    def global_rank(self) -> int:
        """This process's number among all."""
        return self._session.processes.global_rank

    @property
    def local_rank(self) -> int:
        """This process's number among those of its machine."""
        return self._session.processes.local_rank

    @property
    def node_rank(self) -> int:
        """The number of this process's machine."""
        return self._session.processes.node_rank

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self._session.processes.world_size

    @property
    def num_nodes(self) -> int:
        """The number of machines."""
        return self._session.processes.topology.num_nodes

    @property
    def num_devices(self) -> int:
        """The number of devices on this machine, one for each process."""
        return self._session.processes.topology.local_world_size

    @property
    def device_ids(self) -> list[int]:
        """The indices of this machine's devices, one for each of its processes."""
        given = self._session.config.devices
        if isinstance(given, str) and "," in given:
            return [int(part) for part in given.split(",") if part.strip()]
        return list(given) if isinstance(given, list | tuple) else list(range(self.num_devices))

    @property
    def strategy(self) -> StrategyView:
        """The processes: `broadcast`, `barrier`, `reduce`, `all_gather`, `root_device`."""
        from trainer_hooks.trainer.views.strategy import StrategyView

        return StrategyView(self._session)

    @property
    def accelerator(self) -> AcceleratorView:
        """The kind of device: `name()`, `auto_device_count()`, `root_device`."""
        return self.strategy.accelerator

    @property
    def fit_loop(self) -> FitLoopView:
        """The training: `epoch_progress`, `epoch_loop.batch_progress`, `max_epochs`."""
        from trainer_hooks.trainer.views.fit_loop import FitLoopView

        return FitLoopView(self._session)

    # --- batches ---

    @property
    def num_training_batches(self) -> int | float:
        """Training batches in an epoch, outside fit those of the last one; infinity if unknown.

        An epoch that is ended early changes nothing of it.
        """
        context, training = self._session.context, self._session.training
        if context is None or context.state.fn != "fit":
            return training.length
        return math.inf if context.data.stream is None else context.data.stream.length

    @property
    def num_val_batches(self) -> list[int | float]:
        """Validation batches of each loader; 0 for those that this validation leaves out."""
        data = self._evaluation("validate")
        context = self._session.context
        limit = None if context is None else context.validation.limit
        if data.chosen is None and limit is None:
            return data.most_batches
        most = math.inf if limit is None else limit
        return [
            min(n, most) if data.is_chosen(index) else 0
            for index, n in enumerate(data.most_batches)
        ]

    @property
    def val_evaluators(self) -> list[Evaluator]:
        """The evaluators that the validation loaders were given in, if any."""
        return self._evaluation("validate").evaluators

    @property
    def enable_validation(self) -> bool:
        """Whether the run, or the last one, has something to validate."""
        return bool(self._evaluation("validate"))

    @property
    def num_sanity_val_batches(self) -> list[int | float]:
        """Sanity check batches of each loader."""
        limit = self._session.plan.num_sanity_val_steps
        return [n if limit < 0 else min(n, limit) for n in self.num_val_batches]

    @property
    def num_test_batches(self) -> list[int | float]:
        """Test batches of each loader."""
        return self._evaluation("test").most_batches

    @property
    def num_predict_batches(self) -> list[int | float]:
        """Predict batches of each loader."""
        return self._evaluation("predict").most_batches

    @property
    def estimated_stepping_batches(self) -> int | float:
        """Optimizer steps of the whole fit, as far as its limits tell.

        Where nobody can know it is infinite, and a warning says why. In `setup` of a fit it makes
        the training loader; of several processes all must ask, or none.
        """
        context = self._session.context
        if context is not None and context.data.stream is None and context.data.load_training:
            context.data.load_training()
        plan, length = self._session.plan, self.num_training_batches
        steps = steps_in(plan, length, self._samples(length))
        if steps == math.inf:
            warn(
                f"trainer.estimated_stepping_batches is infinite: {why_endless(plan, length)}. A "
                "schedule that must know its length needs Trainer(max_steps=...) or max_epochs= "
                "too, or a length of its own.",
                TrainerHooksWarning,
            )
        return steps

    def _samples(self, length: int | float) -> tuple[int, int] | None:
        """Return the samples of a batch and of an epoch, None where they are not known."""
        if self.module is not None and loops.overrides(self.module, "num_samples"):
            return None
        loader = self.train_dataloader
        return self._session.training.samples if loader is None else data.samples_of(loader, length)

    # --- limits, some of which may be changed between two fits ---

    @property
    def max_epochs(self) -> int:
        """Epochs to train, -1 for no end. Set it to train longer, also in a fit."""
        return self._session.plan.max_epochs

    @max_epochs.setter
    def max_epochs(self, value: int) -> None:
        self._session.change_plan("max_epochs", value)

    @property
    def max_steps(self) -> int:
        """Optimizer steps to train, -1 for no end. Set it to train longer, also in a fit."""
        return self._session.plan.max_steps

    @max_steps.setter
    def max_steps(self, value: int) -> None:
        self._session.change_plan("max_steps", value)

    @property
    def max_duration(self) -> Time | None:
        """How long to train, or None. Set it to train longer after a fit."""
        return self._session.plan.max_duration

    @max_duration.setter
    def max_duration(self, value: str | Time | timedelta) -> None:
        self._session.change_duration(value)

    @property
    def min_epochs(self) -> int:
        """Epochs that must be done before a request to stop takes effect."""
        return self._session.plan.min_epochs

    @property
    def min_steps(self) -> int:
        """Optimizer steps that must be done before a request to stop takes effect."""
        return self._session.plan.min_steps

    @property
    def fast_dev_run(self) -> int:
        """Batches of a dry run; 0 if this is none."""
        return int(self._session.config.fast_dev_run)

    @property
    def barebones(self) -> bool:
        """Whether what a run does beside the loops is switched off."""
        return self._session.config.barebones

    @property
    def enable_autolog_hparams(self) -> bool:
        """Whether saved hyperparameters are passed to the loggers."""
        return self._session.config.enable_autolog_hparams

    @property
    def reload_dataloaders_every_n_epochs(self) -> int:
        """Epochs until the loaders are asked for anew; 0 for never."""
        return self._session.plan.reload_dataloaders_every_n_epochs

    @property
    def overfit_batches(self) -> int | float:
        """Number or share of the batches that are trained and validated on; 0 for all."""
        return self._session.plan.overfit_batches

    @property
    def accumulate_grad_batches(self) -> int:
        """Batches in a window. May be set; during a fit, it counts from the next epoch on."""
        return self._session.plan.accumulate_grad_batches

    @accumulate_grad_batches.setter
    def accumulate_grad_batches(self, value: int) -> None:
        self._session.change_plan("accumulate_grad_batches", value)

    @property
    def gradient_clip_val(self) -> float | None:
        """The value that gradients are clipped to, or None."""
        return self._session.plan.gradient_clip_val

    @property
    def gradient_clip_algorithm(self) -> str:
        """How gradients are clipped: by norm or by value."""
        return self._session.plan.gradient_clip_algorithm

    @property
    def val_check_interval(self) -> int | float | Time | Filter:
        """What is between two validations: batches, a share of an epoch, or a time."""
        return self._session.plan.val_check_interval

    @property
    def check_val_every_n_epoch(self) -> int | None:
        """Every how many epochs to validate."""
        return self._session.plan.check_val_every_n_epoch

    @property
    def num_sanity_val_steps(self) -> int:
        """Validation batches to run before training, -1 for all."""
        return self._session.plan.num_sanity_val_steps

    @property
    def log_every_n_steps(self) -> int:
        """Every how many steps metrics go to the loggers."""
        return self._session.plan.log_every_n_steps

    @property
    def limit_train_batches(self) -> int | float:
        """Number or share of the training batches to run."""
        return self._session.plan.limit_train_batches

    @property
    def limit_val_batches(self) -> int | float:
        """Number or share of the validation batches to run."""
        return self._session.plan.limit_val_batches

    @property
    def limit_test_batches(self) -> int | float:
        """Number or share of the test batches to run."""
        return self._session.plan.limit_test_batches

    @property
    def limit_predict_batches(self) -> int | float:
        """Number or share of the predict batches to run."""
        return self._session.plan.limit_predict_batches

    def _callbacks_of(self, home: str, name: str) -> list[Any]:
        """Return the callbacks of a built-in class, which is not imported to look for them."""
        kind = class_if_loaded(f"trainer_hooks.callbacks.{home}", name)
        return [one for one in self._session.connector.callbacks if isinstance(one, kind)]

    def _evaluation(self, stage: str) -> EvalData:
        context = self._session.context
        known = self._session.evaluation if context is None else context.data.evaluation
        return known.get(stage, EvalData())

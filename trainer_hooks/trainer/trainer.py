"""Trainer: runs modules, and calls hooks on the way."""

from __future__ import annotations

import math
import os
import signal
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TextIO

from trainer_hooks._files import is_missing
from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._log import ensure_visible_log, log, warn
from trainer_hooks._names import ours
from trainer_hooks._options import answers_keywords, check_option
from trainer_hooks._output import losing_output_to
from trainer_hooks._text import printable
from trainer_hooks.callback import Callback
from trainer_hooks.checkpoint.paths import absolute_path
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.connector.registry import CallbackEntry, adapt_if_foreign, validate_callback
from trainer_hooks.context.run_state import TrainerFn, present_step
from trainer_hooks.errors import (
    OptionError,
    TrainerHooksWarning,
    UsageError,
    add_note,
)
from trainer_hooks.hooks.relay import error_summary_with_notes
from trainer_hooks.module.module import Module
from trainer_hooks.module.torch_wrappers import uncompiled
from trainer_hooks.runtime.precision import make_precision
from trainer_hooks.trainer.options.config import (
    NO_STORAGE_OPTIONS,
    TrainerConfig,
    option_docs,
    takes_options,
)
from trainer_hooks.trainer.options.defaults import (
    check_switches,
    default_callbacks,
    make_loggers,
    make_profiler,
    root_dir,
)
from trainer_hooks.trainer.options.limits import (
    check_limit,
    estimate_steps,
    why_steps_unknown,
    with_limits,
)
from trainer_hooks.trainer.run.signals import ending_at_once, shorten_traceback

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager
    from datetime import timedelta

    import torch
    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.callbacks import Checkpoint, EarlyStopping, ProgressBar
    from trainer_hooks.checkpoint.background import BackgroundSave
    from trainer_hooks.checkpoint.custom_io import CustomIO
    from trainer_hooks.clock.clock import Clock
    from trainer_hooks.clock.progress import Progress
    from trainer_hooks.clock.schedules import DueCondition
    from trainer_hooks.clock.timing import Time
    from trainer_hooks.connector.callback_state import LoadReport
    from trainer_hooks.connector.error_policy import CallbackReport
    from trainer_hooks.context.loaders import EvalLoaders
    from trainer_hooks.context.run_state import RunState
    from trainer_hooks.data.evaluator import Evaluator
    from trainer_hooks.hooks.plugin import Plugin
    from trainer_hooks.hooks.profile import HookProfile
    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.metrics.history import History
    from trainer_hooks.module.datamodule import DataModule
    from trainer_hooks.module.optimization import LRSchedulerConfig
    from trainer_hooks.profilers import Profiler
    from trainer_hooks.runtime.precision import Precision
    from trainer_hooks.trainer.core.run_inputs import RunInputs
    from trainer_hooks.trainer.core.trainer_core import TrainerCore
    from trainer_hooks.trainer.identity.run_identity import RunLabel
    from trainer_hooks.trainer.lightning_attributes import (
        TrainerAccelerator,
        TrainerFitLoop,
        TrainerStrategy,
    )
    from trainer_hooks.trainer.run.forking import ForkedRuns
    from trainer_hooks.trainer.run.lifecycle import TrainerRun


def _plan_option(name: str, note: str = "") -> Any:
    """Return a property that reads an option from the plan of the present or last run.

    Args:
        name: the option, which the plan has under the same name.
        note: a sentence about setting it, added to the option's description; without one the
            property cannot be set.
    """

    def read(self: Trainer) -> Any:
        # that of a run may differ from the options, which the next run begins with
        context = self._core.context
        return getattr(self._core.plan if context is None else context.plan, name)

    def change(self: Trainer, value: Any) -> None:
        self._core.change_plan(name, value)

    read.__doc__ = f"{_OPTION_DOCS[name]} {note}".strip()
    # for tracebacks, in which each option would otherwise be `read`
    read.__qualname__ = f"Trainer.{name}"
    return property(read, change if note else None)


_OPTION_DOCS = {name: doc for name, _, doc in option_docs()}


class Trainer:
    """Fits, validates, tests and predicts with modules, and calls the hooks.

    The options are those of `trainer_hooks.trainer.options.config.TrainerConfig`, by keyword;
    `docs/trainer.md` lists them. A trainer can be used any number of times, and as a context
    manager that closes it.

    Raises:
        OptionError: an option is unknown, or breaks its rule.
        CallbackError: a callback cannot be registered.
        PluginError: an installed plugin is broken and `plugin_errors="raise"`.
    """

    _divides_outputs: ClassVar[bool] = False
    """Whether hooks get a batch's loss divided by `accumulate_grad_batches`, as in Lightning."""

    _validates_after_stop: ClassVar[bool] = True
    """Whether an epoch that a `StopTraining` ends is validated; not in pytorch-accelerated."""

    @takes_options(TrainerConfig)
    def __init__(self, config: TrainerConfig) -> None:
        from trainer_hooks.checkpoint.background import BackgroundSaves
        from trainer_hooks.trainer.core.trainer_core import (
            TrainerCore,
            make_custom_io,
            make_processes,
            remove_rank_zero_callbacks,
        )
        from trainer_hooks.trainer.run.hook_profiling import profile_from_options

        # first: making the processes may log
        ensure_visible_log()
        # before the callbacks, as the defaults depend on the number of ranks
        processes, device = make_processes(config)
        connector = CallbackConnector(
            config.callbacks,
            defaults=default_callbacks(config, is_distributed=processes.topology.world_size > 1),
            discover=config.plugin_names,
            plugin_errors=config.plugin_errors,
            strict_hooks=config.strict_hooks,
            callback_errors=config.callback_errors,
        )
        # with the callbacks of all ranks still there: either every rank raises or none
        check_switches(config, connector)
        if not processes.is_global_zero:
            remove_rank_zero_callbacks(connector)
        # before the first hook, which a profile times as well
        hook_profile = profile_from_options(config, connector.relay)
        # the trainer has no parts yet: a callback can do no more than keep it. What is called is
        # the function that `HookRelay.connect` sets on the relay, over the catalogue's empty method
        connector.relay.on_init_start(self)
        plan = replace(
            config.plan(),
            divides_outputs=self._divides_outputs,
            validates_after_stop=self._validates_after_stop,
        )
        self._core = TrainerCore(
            config=config,
            # torch cannot train with weights that were gathered in inference mode
            plan=replace(plan, inference_mode=False) if processes.is_sharded else plan,
            connector=connector,
            background=BackgroundSaves(self._notify_saved),
            loggers=make_loggers(config, self.default_logger),
            device=device,
            processes=processes,
            precision=make_precision(config.precision, device),
            custom_io=make_custom_io(config),
            hook_profile=hook_profile,
        )
        self._add_logger_callbacks()
        if config.profiler is not None:
            self._core.profiler = make_profiler(config.profiler)
        if config.barebones:
            from trainer_hooks.metrics.store import MutedMetrics

            self._core.muted = MutedMetrics()
            log.info("barebones: no checkpoints, logs, bar, summary, sanity check, plugins")
        self._forks: ForkedRuns | None = None
        self._is_closed = False
        connector.relay.on_init_end(self)

    @classmethod
    def default_logger(cls, root: str) -> Logger:
        """Return the logger of `Trainer(logger=True)`; override it in a trainer of your own.

        Args:
            root: the run's root folder.
        """
        # here, so that a trainer without this logger does not load it
        from trainer_hooks.loggers import CSVLogger

        return CSVLogger(root)

    # --- entry points ---

    if not TYPE_CHECKING:  # type checkers would take any attribute to be there

        def __getattr__(self, name: str) -> Any:
            """Raise an error for an unknown attribute; it has ours for one of another trainer."""
            if hasattr(type(self), name):
                # a property that failed, whose error Python does not show: it fails once more
                return object.__getattribute__(self, name)
            from trainer_hooks._words import advice, instead_of

            if name == "_core":  # which all attributes read
                raise AttributeError(
                    f"an attribute of {type(self).__name__} was read before it was constructed: "
                    "there is none yet. Read it in on_init_end, or after super().__init__()."
                )
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            answer = None if name.startswith("_") else instead_of("calls", name)
            if answer is not None:
                raise AttributeError(f"{message}.{advice(answer)}")
            raise AttributeError(message, name=name, obj=self)

    @answers_keywords
    def fit(
        self,
        model: Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: DataModule | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        weights_only: bool | None = None,  # noqa: ARG002 - as below
        overrides: str | Iterable[str] | None = None,
    ) -> None:
        """Train a module.

        Args:
            model: the module, or the return value of `torch.compile(module)`. With the module of
                the last fit, training continues; another one starts from the beginning.
            train_dataloaders: an iterable of batches, a list or dict of loaders, or a data module.
            val_dataloaders: a loader, or a list of them, which are run one after another.
            datamodule: a data module, instead of loaders.
            ckpt_path: a checkpoint to resume from: a path; `"last"`, the newest that is whole;
                `"best"`, the best one, as the newest one records it; or `"auto"`, which is `"last"`
                if this run has saved one, and else a new training. The words search where this
                trainer's checkpoint callbacks save, also for an earlier process. A file of
                Lightning 2.x is accepted too; from inside an epoch that is not exact, and a warning
                says so.
            weights_only: without effect, for Lightning's scripts: no file is opened in a way that
                could run code.
            overrides: names of optimizer options, such as `["lr"]`, whose values come from this
                run's `configure_optimizers` instead of the checkpoint. `"lr_schedulers"` and
                `"optimizers"` take this run's schedulers, or optimizers, where others were saved.
        """
        with ending_at_once():
            from trainer_hooks.trainer.core.run_inputs import RunInputs, checked_overrides

            inputs = RunInputs(
                TrainerFn.FITTING,
                model,
                datamodule,
                train_dataloaders,
                val_dataloaders,
                # found before the run opens a folder of its own, in which there is none
                **self._start_of_fit(
                    ckpt_path, model, train_dataloaders, val_dataloaders, datamodule
                ),
                overrides=(
                    frozenset() if overrides is None else checked_overrides(overrides, ckpt_path)
                ),
            )
            self._run(inputs)

    @answers_keywords
    def validate(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: DataModule | None = None,
        weights_only: bool | None = None,  # noqa: ARG002 - as for `fit`
    ) -> list[dict[str, float]]:
        """Run validation alone; return the metrics of each loader.

        Args:
            model: the module; by default that of the last run.
            dataloaders: a loader, a list of them, or a data module.
            ckpt_path: a checkpoint whose weights are loaded first: a path, `"last"` or `"best"`, as
                for `fit`. Without it and without a model, the best checkpoint of the last fit, if
                that saved any.
            verbose: whether to print the metrics.
            datamodule: a data module, instead of loaders.
            weights_only: without effect, as for `fit`.
        """
        return self._evaluate("validate", model, dataloaders, ckpt_path, verbose, datamodule)

    @answers_keywords
    def test(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: DataModule | None = None,
        weights_only: bool | None = None,  # noqa: ARG002 - as for `fit`
    ) -> list[dict[str, float]]:
        """Run the test; return the metrics of each loader. The arguments are `validate`'s."""
        return self._evaluate("test", model, dataloaders, ckpt_path, verbose, datamodule)

    @answers_keywords
    def predict(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        datamodule: DataModule | None = None,
        return_predictions: bool | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        weights_only: bool | None = None,  # noqa: ARG002 - as for `fit`
    ) -> list[Any] | None:
        """Predict; return the steps' outputs as a list, or a list for each of several loaders.

        Args:
            model: the module; by default that of the last run.
            dataloaders: a loader, a list of them, or a data module.
            datamodule: a data module, instead of loaders.
            return_predictions: whether to keep and return the outputs; None means True. With False
                the return value is None.
            ckpt_path: a checkpoint whose weights are loaded first, as for `validate`.
            weights_only: without effect, as for `fit`.
        """
        with ending_at_once():
            from trainer_hooks.trainer.core.run_inputs import RunInputs

            sources = (dataloaders, datamodule)
            module, path = self._choose_module_and_checkpoint(model, ckpt_path, "predict", sources)
            inputs = RunInputs(
                TrainerFn.PREDICTING,
                module,
                # by default that of the last run
                self._core.datamodule if datamodule is None and dataloaders is None else datamodule,
                evaluation=dataloaders,
                ckpt_path=path,
                keeps_predictions=return_predictions is None or return_predictions,
            )
            predictions: list[Any] | None = self._run(inputs)
            return predictions

    def init_module(self, empty_init: bool | None = None) -> AbstractContextManager[None]:
        """Return a context that makes layers on the device and in the precision of their runs.

        So a large model is not made on the host first, or in 32 bits. With FSDP, layers are made on
        the meta device, without memory, and get their weights when the run begins.

        Args:
            empty_init: skip the initialisation of weights, which a checkpoint will replace. With
                FSDP, False makes layers with memory.
        """
        from trainer_hooks.runtime.module_init import module_init_context

        core = self._core
        return module_init_context(
            core.device, core.precision, core.processes.is_sharded, empty_init
        )

    def save_checkpoint(
        self,
        filepath: str | os.PathLike[str],
        weights_only: bool | None = False,
        storage_options: Any = None,
    ) -> None:
        """Write a checkpoint, whole or not at all.

        Args:
            filepath: its path; the folder is made. A path that ends in `.safetensors` gets that
                format, with the weights and the hyperparameters that JSON can hold.
            weights_only: leave out what a resume needs beyond the weights; required for a
                `.safetensors` file.
            storage_options: passed to the `CheckpointIO` of `plugins`; without one it must be None,
                as the access to a store is configured in fsspec.

        Raises:
            UsageError: a `.safetensors` file is to hold more than weights, or nothing was run yet.
            OptionError: `storage_options` is not None, without a `CheckpointIO`.
            CheckpointStateError: a state cannot be loaded back safely; the message names it.
            CheckpointError: it cannot be written.
        """
        from trainer_hooks.trainer.run.checkpoint_saving import save_checkpoint

        if self._core.custom_io is None:
            owner, rule = "trainer.save_checkpoint", NO_STORAGE_OPTIONS
            check_option("storage_options", storage_options, owner, rule, is_call=True)
        # this process has the weights of a forked fit, but not all that a resume needs
        if self._forks is not None and self._forks.kept is not None and not weights_only:
            self._forks.copy_kept(filepath, storage_options)
        else:
            save_checkpoint(self._core, self, filepath, bool(weights_only), storage_options)

    def dump_checkpoint(self, weights_only: bool | None = False) -> dict[str, Any]:
        """Return the content of a checkpoint of this moment, as plain data and tensors.

        The tensors are those of the training, not copies. All ranks must call it; rank 0 gets the
        checkpoint, and the others an empty dict.

        Args:
            weights_only: leave out what a resume needs beyond the weights.

        Raises:
            UsageError: nothing was run yet.
            CheckpointStateError: a state cannot be loaded back safely; the message names it.
        """
        from trainer_hooks.trainer.run.checkpoint_saving import build_checkpoint

        return build_checkpoint(self._core, self, bool(weights_only))

    def save_in_background(
        self, *filepaths: str | os.PathLike[str], weights_only: bool = False
    ) -> BackgroundSave:
        """Save a copy of the present state in another thread; as safe as `save_checkpoint`.

        The caller waits while the state is copied in memory, and until the save before is written.
        `on_checkpoint_saved` fires in the main thread once a file is durable: when callbacks may
        save next, at the next save, or at the end of the run, which waits for it.

        Args:
            filepaths: the paths; each gets the same state, one after another.
            weights_only: leave out what a resume needs beyond the weights.

        Raises:
            CheckpointStateError: a state cannot be loaded back safely; the message names it.
            CheckpointError: the save in the background before this one failed.
        """
        from trainer_hooks.trainer.run.checkpoint_saving import save_in_background

        return save_in_background(self._core, self, filepaths, weights_only)

    def finish_saves(self) -> None:
        """Wait until all background saves are durable, and fire `on_checkpoint_saved` for them.

        Raises:
            CheckpointError: one could not be written.
        """
        self._core.background.finish()

    def _notify_saved(self, path: str) -> None:
        """Passed to `BackgroundSaves`, for files of background saves."""
        from trainer_hooks.trainer.run.checkpoint_saving import notify_saved

        # first: a hook of `notify_saved` may raise
        self._core.training.end_save(path)
        notify_saved(self._core, self, path)

    def trial_run(self, *callbacks: Callback, steps: int, validates: bool = False) -> None:
        """Run a few of the coming batches, and restore everything afterwards.

        It is for `on_fit_start`, `on_train_epoch_start`, and the start of an evaluation. The
        module's hooks of training and evaluation fire, and those of `callbacks`, but no others;
        nothing is logged. New optimizers are made for it, without schedulers. Restored afterwards,
        also after an error: weights, gradients and attributes of the module, the random state, and
        the loaders' generators. Counters, metrics and optimizers of this run are never touched.

        Args:
            callbacks: the participating callbacks.
            steps: the number of accumulation windows to train, each of which makes a step, or of
                batches of each loader of an evaluation.
            validates: whether a fit validates too, on as many batches of each loader.

        Raises:
            UsageError: no run is active, an epoch is open, or a parameter is lazy.
        """
        from trainer_hooks.trainer.run.trial import run_trial

        run_trial(self._begin_trial, self._core, callbacks, steps, validates=validates)

    def rehearsal(self, *callbacks: Callback) -> Self:
        """Return a trainer with the same options that has run nothing yet.

        It has the same device, `callbacks` as its only callbacks, and no loggers.
        """
        return self._twin(self._core.for_trial(self._core.plan, callbacks))

    def _begin_trial(
        self, kind: type[TrainerRun], core: TrainerCore, inputs: RunInputs
    ) -> TrainerRun:
        # callbacks in the trial see its counters, not those of the run around it
        return kind(core, self._twin(core), inputs)

    def _twin(self, core: TrainerCore) -> Self:
        # past __init__, which would start processes and fire hooks; attributes of a subclass stay
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._core = core
        return twin

    def close(self) -> None:
        """Finish saves and fire `on_close` and `on_post_close`; a second call does nothing."""
        if self._is_closed:
            return
        # before the steps: a hook of theirs may call `close` again
        self._is_closed = True
        relay, module = self._core.connector.relay, self._core.module
        fault: BaseException | None = None
        steps: list[tuple[Any, tuple[Any, ...]]] = [
            # first: the hooks may use the files
            (self.finish_saves, ()),
            (relay.on_close, (self, module)),
            (relay.on_post_close, (self, module)),
        ]
        for step, arguments in steps:
            try:
                step(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised below, once all have run
                if fault is None:
                    fault = error
                else:
                    add_note(fault, f"and then: {error_summary_with_notes(error)}")
        if fault is not None:
            raise fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except BaseException as fault:
            # an error in the `with` block is the cause, so that one of closing becomes its note
            if error is None:
                raise
            add_note(error, f"and then, while closing: {error_summary_with_notes(fault)}")

    def __getstate__(self) -> dict[str, Any]:
        """Return the parts of a pickle or a copy; a trainer cannot be pickled during a run.

        Raises:
            TypeError: a run is active, or there are several ranks.
        """
        from trainer_hooks.trainer.core.trainer_core import picklable_core

        core = picklable_core(self._core, type(self).__qualname__)
        # the ranks of a run start no others
        return {**vars(self), "_core": core, "_forks": None if self._core.is_sent else self._forks}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy; inside the copy of another object, the same trainer."""
        if memo:  # a callback or logger that refers to its trainer is copied, not the trainer
            return self
        twin = object.__new__(type(self))
        # in `memo` before the parts are copied: their references to this trainer become the twin
        state, memo[id(self)] = self.__getstate__(), twin
        vars(twin).update(deepcopy(state, memo))
        return twin

    def __copy__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__qualname__} cannot be copied in part, as its copy would train the "
            "same module with the same counters. Call copy.deepcopy."
        )

    # --- attributes: progress ---

    @property
    def progress(self) -> Progress:
        """All counters of the module's training."""
        return self._core.training.progress

    @property
    def clock(self) -> Clock:
        """The progress of the training in every unit: a snapshot that does not change."""
        core = self._core
        return core.training.timekeeper.read(
            core.training.progress,
            iteration_length=core.plan.iteration_length,
            batches_per_epoch=self.num_training_batches,
            ends=core.plan.ends,
        )

    @property
    def current_epoch(self) -> int:
        """The index of the current epoch; after fit, the number of epochs done."""
        return self._core.training.progress.epochs_completed

    @property
    def global_step(self) -> int:
        """Optimizer steps so far, over all optimizers."""
        return self._core.training.progress.steps_completed

    @property
    def is_last_batch(self) -> bool:
        """Whether the current training batch is the last of its epoch."""
        context = self._core.context
        return context is not None and context.batch.is_last

    @property
    def batch_indices(self) -> list[Any] | None:
        """The indices of the samples in the current predict batch.

        They are recorded after a call of `trainer.note_batch_indices()`. None without that call, or
        if the loader is no DataLoader, its data set has no indices, or its batches come in any
        order.
        """
        context = self._core.context
        return None if context is None else context.batch.indices

    @property
    def predictions(self) -> list[Any]:
        """The predictions of the running `predict` so far, as it will return them.

        They are empty outside a prediction, and with `return_predictions=False`.
        """
        context = self._core.context
        by_loader = [] if context is None else context.predictions
        return by_loader[0] if len(by_loader) == 1 else by_loader

    # --- attributes: state ---

    @property
    def is_leaving(self) -> bool:
        """Whether a signal is ending the run, such as SIGTERM from a cluster's scheduler."""
        context = self._core.context
        return context is not None and context.requests.is_leaving

    @property
    def received_sigterm(self) -> bool:
        """Whether SIGTERM, or another signal that ends the run in order, was received."""
        context = self._core.context
        # 0 is no signal, and SIGINT is Ctrl-C, which is no notice from a scheduler
        is_waiting = context is not None and context.requests.pending_signal not in (
            0,
            signal.SIGINT,
        )
        return is_waiting or self.is_leaving

    @property
    def state(self) -> RunState:
        """The trainer's state: `fn`, `stage`, `status`, `finished` and `stopped`."""
        return self._core.state

    @property
    def should_stop(self) -> bool:
        """Whether a stop of the fit was requested; may be set."""
        context = self._core.context
        # of several ranks this one's own wish: `requests` changes only when they agree
        return self._core.was_stopping if context is None else context.local_requests.is_stopping

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        # between runs it has no effect, since each run begins with requests of its own
        context = self._core.context
        if context is not None and not value:
            context.withdraw_stop()
        elif context is not None and not context.local_requests.is_stopping:
            context.request_stop()

    @property
    def stop_reason(self) -> str:
        """The reason given for the stop, or an empty string."""
        return self._core.state.stop_reason

    @property
    def training(self) -> bool:
        """Whether a fit is going on, from its set-up to its teardown, and no validation in it."""
        return self._core.state.stage == "train"

    @property
    def validating(self) -> bool:
        """Whether validation is being run, inside fit or on its own, from its set-up on."""
        return self._core.state.stage == "validate"

    @property
    def testing(self) -> bool:
        """Whether the test is being run, from its set-up on."""
        return self._core.state.stage == "test"

    @property
    def predicting(self) -> bool:
        """Whether prediction is being run, from its set-up on."""
        return self._core.state.stage == "predict"

    @property
    def sanity_checking(self) -> bool:
        """Whether the sanity check is being run: a few validation batches before training."""
        return self._core.state.stage == "sanity_check"

    @property
    def dataloader_label(self) -> str:
        """The label of the current loader if it came in an `Evaluator`; else an empty string."""
        context = self._core.context
        return context.batch.loader_label if context is not None else ""

    @property
    def evaluating(self) -> bool:
        """Whether validation, the sanity check or the test is being run, from its set-up on."""
        stage = self._core.state.stage
        return stage is not None and stage.evaluating

    @property
    def interrupted(self) -> bool:
        """Whether the last run ended with an exception."""
        return self._core.state.status == "interrupted"

    # --- attributes: metrics and loggers ---

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """The latest value of every logged metric, as 0-dim tensors; may be changed."""
        return self._core.training.metrics.callback_metrics

    @property
    def logged_metrics(self) -> dict[str, Tensor]:
        """The latest value of every metric that goes to the loggers, under the names used there."""
        return self._core.training.metrics.logged_metrics

    @property
    def history(self) -> History:
        """The values logged in training so far, by name."""
        return self._core.training.history

    run_history = history

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The metrics on the progress bar. Reading them copies from the device."""
        return self._core.training.metrics.progress_bar_metrics

    @property
    def loggers(self) -> list[Logger]:
        """The loggers. May be set between runs; None or an empty list for none."""
        return self._core.loggers

    @loggers.setter
    def loggers(self, loggers: Iterable[Logger] | None) -> None:
        core = self._core
        if core.context is not None:
            raise UsageError(
                "trainer.loggers was set inside a run, whose first values may be written already: "
                "set it before fit, or pass Trainer(logger=...)."
            )
        config = replace(core.config, logger=list(loggers or ()))
        core.loggers = make_loggers(config, self.default_logger)
        core.config = config
        self._add_logger_callbacks()

    def _add_logger_callbacks(self) -> None:
        for logger in self._core.loggers:
            if isinstance(logger, Callback) and logger not in self.callbacks:
                self._core.connector.add(logger)  # such a logger gets the run's hooks, too

    @property
    def logger(self) -> Logger | None:
        """The first logger, or None. May be set between runs, to be the only one."""
        return self._core.loggers[0] if self._core.loggers else None

    @logger.setter
    def logger(self, logger: Logger | None) -> None:
        self.loggers = [] if logger is None else [logger]

    @property
    def log_dir(self) -> str | None:
        """The first logger's folder, or `default_root_dir` without a logger."""
        logger = self.logger
        # a dry run has a DummyLogger, which writes to no folder
        is_dry = self.fast_dev_run > 0
        return self.default_root_dir if logger is None or is_dry else logger.log_dir

    @property
    def default_root_dir(self) -> str:
        """The folder that logs and checkpoints go to."""
        return root_dir(self._core.config)

    @property
    def ckpt_path(self) -> str | None:
        """The checkpoint that the run starts from.

        A callback may set it until the end of `on_before_load`: the run then starts from that one.

        Raises:
            UsageError: it is set at another time.
        """
        return self._core.start_checkpoint.path

    @ckpt_path.setter
    def ckpt_path(self, path: str | os.PathLike[str] | None) -> None:
        self._core.start_checkpoint.choose(path)

    @property
    def named_ckpt_path(self) -> str | None:
        """The checkpoint that was given by its path; no callback removes that one."""
        return self._core.start_checkpoint.named_path

    @property
    def custom_io(self) -> CustomIO | None:
        """The `CheckpointIO` of `Trainer(plugins=...)` as the Trainer calls it, or None."""
        return self._core.custom_io

    @property
    def load_report(self) -> LoadReport | None:
        """The callbacks whose states a resume restored, and those missing or unexpected."""
        return self._core.start_checkpoint.report

    # --- attributes: parts ---

    @property
    def callbacks(self) -> list[Callback]:
        """The participating callbacks in order. A callback that is appended takes part, too."""
        from trainer_hooks.trainer.lightning_attributes import CallbackList

        core = self._core
        return CallbackList(
            core.connector.callbacks,
            self.add_callback,
            self.remove_callback,
        )

    @callbacks.setter
    def callbacks(self, callbacks: Iterable[Callback]) -> None:
        # by way of the list, which adds what is new and removes what is gone
        self.callbacks[:] = callbacks

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Every installed plugin, and whether it takes part."""
        return self._core.connector.plugins

    @property
    def callback_origins(self) -> tuple[tuple[Callback, str], ...]:
        """The participating callbacks in order, each with its supplier."""
        return tuple((e.callback, e.supplier) for e in self._core.connector.entries)

    @property
    def callback_report(self) -> tuple[CallbackReport, ...]:
        """The state of each callback: the participating ones in order, then the disabled ones.

        A disabled callback is listed with the hook that failed, the error and its traceback.
        """
        return self._core.connector.callback_report()

    @property
    def checkpoint_callbacks(self) -> list[Checkpoint]:
        """The callbacks that save checkpoints, those of the last band first."""
        savers = self._callbacks_of("saving.checkpoint", "Checkpoint")
        return sorted(savers, key=lambda saver: -ours(saver).band)

    @property
    def checkpoint_callback(self) -> Checkpoint | None:
        """The first of `checkpoint_callbacks`, or None."""
        return next(iter(self.checkpoint_callbacks), None)

    @property
    def early_stopping_callbacks(self) -> list[EarlyStopping]:
        """The callbacks that stop early."""
        return self._callbacks_of("early_stopping", "EarlyStopping")

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
        return self._core.module

    model = lightning_module = module

    @property
    def datamodule(self) -> DataModule | None:
        """The data module of the run, or of the last one. May be set, for code that reads it."""
        return self._core.datamodule

    @datamodule.setter
    def datamodule(self, datamodule: DataModule | None) -> None:
        self._core.datamodule = datamodule

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers; empty until fit has made them. May be set in a fit."""
        return self._core.training.optimization.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Iterable[Optimizer]) -> None:
        self._core.change_optimizers(optimizers)

    @property
    def lr_scheduler_configs(self) -> list[LRSchedulerConfig]:
        """The schedulers and when they step; empty until fit has made them."""
        return self._core.training.optimization.schedulers

    @property
    def hook_profile(self) -> HookProfile | None:
        """The profile that times the callbacks, or None."""
        from trainer_hooks.trainer.run.hook_profiling import active_profile

        return active_profile(self._core)

    @property
    def profiler(self) -> Profiler:
        """The profiler of the runs; without `Trainer(profiler=...)` one that measures nothing."""
        from trainer_hooks.profilers import PassThroughProfiler

        return self._core.profiler or PassThroughProfiler()

    @property
    def makes_dataloaders(self) -> bool:
        """Whether the loaders come from the module or data module, rather than as arguments."""
        return self._core.inputs is not None and self._core.inputs.makes_loaders

    @property
    def train_dataloader(self) -> Any:
        """The training loader, or the list or dict of loaders; None outside fit."""
        from trainer_hooks.data.loaders import CombinedLoader

        context = self._core.context
        stream = context.data.stream if context is not None else None
        if stream is None:
            return None
        loader = stream.loader
        # the loaders as they were passed, and not our wrapper around them
        return loader.loaders if isinstance(loader, CombinedLoader) else loader

    @property
    def val_dataloaders(self) -> Any:
        """The validation loaders as given: one, or a list or dict; None without any."""
        return self._evaluation("validate").as_given

    @property
    def test_dataloaders(self) -> Any:
        """The test loaders as given: one, or a list or dict; None without any."""
        return self._evaluation("test").as_given

    @property
    def predict_dataloaders(self) -> Any:
        """The predict loaders as given: one, or a list or dict; None without any."""
        return self._evaluation("predict").as_given

    # --- attributes: where it runs ---

    @property
    def device(self) -> torch.device:
        """The device of modules and batches."""
        return self._core.device

    @property
    def precision(self) -> str:
        """The precision of the forward, as in `Trainer(precision=...)`."""
        return self._core.precision.name

    @property
    def precision_plugin(self) -> Precision:
        """The precision object, with its loss scaler if it has one."""
        return self._core.precision

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The loss scaler of `precision="16-mixed"`, or None."""
        return self._core.precision.scaler

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is rank 0, which writes and prints."""
        return self._core.processes.is_global_zero

    @property
    def global_rank(self) -> int:
        """This process's rank among all."""
        return self._core.processes.global_rank

    @property
    def local_rank(self) -> int:
        """This process's rank on its machine."""
        return self._core.processes.local_rank

    @property
    def node_rank(self) -> int:
        """The index of this process's machine."""
        return self._core.processes.node_rank

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self._core.processes.world_size

    @property
    def num_nodes(self) -> int:
        """The number of machines."""
        return self._core.processes.topology.num_nodes

    @property
    def num_devices(self) -> int:
        """The number of devices on this machine, one for each process."""
        return self._core.processes.topology.local_world_size

    @property
    def device_ids(self) -> list[int]:
        """The indices of this machine's devices, one for each of its processes."""
        devices = self._core.config.devices
        # as a command line writes them: "0,1"
        if isinstance(devices, str) and "," in devices:
            return [int(part) for part in devices.split(",") if part.strip()]
        return list(devices) if isinstance(devices, list | tuple) else list(range(self.num_devices))

    @property
    def strategy(self) -> TrainerStrategy:
        """The ranks: `broadcast`, `barrier`, `reduce`, `all_gather`, `root_device`."""
        from trainer_hooks.trainer.lightning_attributes import TrainerStrategy

        return TrainerStrategy(self._core)

    @property
    def accelerator(self) -> TrainerAccelerator:
        """The type of device: `name()`, `auto_device_count()`, `root_device`."""
        return self.strategy.accelerator

    @property
    def fit_loop(self) -> TrainerFitLoop:
        """The counts of the training: `epoch_progress`, `epoch_loop`, `max_epochs`."""
        from trainer_hooks.trainer.lightning_attributes import TrainerFitLoop

        return TrainerFitLoop(self._core)

    # --- attributes: batches ---

    @property
    def num_training_batches(self) -> int | float:
        """Training batches in an epoch, outside fit those of the last one; infinity if unknown.

        Ending an epoch early does not change it.
        """
        context, training = self._core.context, self._core.training
        if context is None or context.state.fn != "fit":
            return training.length
        return math.inf if context.data.stream is None else context.data.stream.length

    @property
    def num_val_batches(self) -> list[int | float]:
        """Validation batches of each loader; 0 for loaders that this validation leaves out."""
        data = self._evaluation("validate")
        context = self._core.context
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
        """The evaluators that contain the validation loaders, if any."""
        return self._evaluation("validate").evaluators

    @property
    def enable_validation(self) -> bool:
        """Whether the run, or the last one, has something to validate."""
        return bool(self._evaluation("validate"))

    @property
    def num_sanity_val_batches(self) -> list[int | float]:
        """Sanity check batches of each validation loader of fit; empty in other runs."""
        if self.state.fn != "fit":
            return []
        limit = self._core.plan.num_sanity_val_steps
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
        """Optimizer steps of the whole fit, as far as its limits determine them.

        If the number cannot be known it is infinite, and a warning gives the reason. In `setup` of
        a fit the property makes the training loader, so either all ranks must read it there, or
        none. After `setup` it includes the steps of an epoch that was left and begins again.
        """
        context = self._core.context
        if context is not None and context.data.stream is None and context.data.load_training:
            context.data.load_training()
        plan, length = self._core.plan, self.num_training_batches
        repeated = self._core.training.progress.windows_repeated
        steps = estimate_steps(plan, length, self._sample_counts(length), repeated)
        if steps == math.inf:
            warn(
                "trainer.estimated_stepping_batches is infinite: "
                f"{why_steps_unknown(plan, length)}. A schedule that must know its length needs "
                "Trainer(max_steps=...) or max_epochs= too, or a length of its own.",
                TrainerHooksWarning,
            )
        return steps

    def _sample_counts(self, length: int | float) -> tuple[int, int] | None:
        """Return the number of samples in a batch and in an epoch, None if unknown."""
        from trainer_hooks.data.data_hooks import defines
        from trainer_hooks.data.loaders import sample_counts
        from trainer_hooks.module.module import Module

        # a count of the module's own need not be the loader's batch size
        if self.module is not None and defines(self.module, "num_samples", Module):
            return None
        loader = self.train_dataloader
        return self._core.training.samples if loader is None else sample_counts(loader, length)

    # --- attributes: options, with the defaults filled in ---

    # annotated with the types of the values, as a type checker knows nothing of `_plan_option`
    max_epochs: int = _plan_option("max_epochs", "It may be set, to train longer, also in a fit.")
    min_epochs: int = _plan_option("min_epochs")
    max_steps: int = _plan_option("max_steps", "It may be set, to train longer, also in a fit.")
    min_steps: int = _plan_option("min_steps")
    reload_dataloaders_every_n_epochs: int = _plan_option("reload_dataloaders_every_n_epochs")
    overfit_batches: int | float = _plan_option("overfit_batches")
    accumulate_grad_batches: int = _plan_option(
        "accumulate_grad_batches", "It may be set; in a fit it counts from the next epoch on."
    )
    gradient_clip_val: float | None = _plan_option("gradient_clip_val")
    gradient_clip_algorithm: str = _plan_option("gradient_clip_algorithm")
    val_check_interval: int | float | Time | DueCondition = _plan_option("val_check_interval")
    check_val_every_n_epoch: int | None = _plan_option("check_val_every_n_epoch")
    num_sanity_val_steps: int = _plan_option("num_sanity_val_steps")
    log_every_n_steps: int = _plan_option("log_every_n_steps")
    limit_train_batches: int | float = _plan_option("limit_train_batches")
    limit_val_batches: int | float = _plan_option("limit_val_batches")
    limit_test_batches: int | float = _plan_option("limit_test_batches")
    limit_predict_batches: int | float = _plan_option("limit_predict_batches")

    @property
    def max_duration(self) -> Time | None:
        """How long to train, or None. It may be set, to train longer, also in a fit."""
        return self._core.plan.max_duration

    @max_duration.setter
    def max_duration(self, value: str | Time | timedelta) -> None:
        self._core.change_duration(value)

    @property
    def fast_dev_run(self) -> int:
        """Batches of a dry run; 0 if this is none."""
        return int(self._core.config.fast_dev_run)

    @property
    def barebones(self) -> bool:
        """Whether everything that a run does beside the loops is switched off."""
        return self._core.config.barebones

    @property
    def enable_autolog_hparams(self) -> bool:
        """Whether saved hyperparameters are passed to the loggers."""
        return self._core.config.enable_autolog_hparams

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int] | None:
        """`num_replicas` and `rank` for a sampler that shards the data itself, or None.

        It is None where the strategy is not distributed, so that there is nothing to shard.
        """
        if not self.strategy.is_distributed:
            return None
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    # --- requests: hooks return None, and act on the run by calling one of these ---

    def stop(self, reason: str = "") -> None:
        """Request a stop of the fit after this batch, but not before `min_epochs`, `min_steps`."""
        if self._core.context is not None:
            # the request of this rank; several ranks agree on it before they stop
            self._core.context.request_stop()
        self._core.state.stop_reason = reason

    def skip_batch(self) -> None:
        """Leave out the current training batch, or its gradients.

        In `on_train_batch_start` the batch is not run at all. In `on_before_backward`, when its
        loss is known, the batch with all its microbatches takes no part in the step; not in manual
        optimization, in which the module itself decides. It may be called from
        `on_before_dataloader` to `on_before_backward`; elsewhere it does nothing.
        """
        if self._core.context is not None:
            # not a local request: a rank that skips still joins the reduction of the gradients
            self._core.context.requests.skips_batch = True

    def end_epoch(self) -> None:
        """End the training epoch after this batch; the request is kept in checkpoints.

        The epoch's validation, or one that is due on this batch, and its end follow as after the
        last batch, and then the next epoch. `on_batch_checkpoint` is left out. An open accumulation
        window is stepped with. All ranks end the epoch together, when their window is done. Outside
        of an epoch's batches the call does nothing, and in the hooks that start an epoch it leaves
        one batch.

        Raises:
            UsageError: no fit is active.
        """
        self._require_fit("end_epoch", "trainer.stop(reason)")
        if self._core.context is not None:
            self._core.context.end_epoch()

    def note_batch_indices(self) -> None:
        """Fill `trainer.batch_indices` in this prediction; call it in `on_predict_start`.

        Raises:
            UsageError: no prediction is active.
        """
        context, fn = self._core.context, self._core.fn
        if context is None or fn != "predict":
            raise UsageError(
                f"trainer.note_batch_indices() was called in {fn or 'no run'}: it is for hooks of "
                "predict. Call it in on_predict_start."
            )
        context.requests.records_indices = True

    def reload_dataloaders(self) -> None:
        """Let the module or data module make its loaders again, before an epoch begins.

        It is for `on_load_checkpoint`, `on_fit_start`, `on_train_epoch_start` and the start of an
        evaluation.

        Raises:
            UsageError: no run is active, its loaders were passed to it, or an epoch is open.
            DataError: there is nothing to run now.
        """
        from trainer_hooks.trainer.core.run_inputs import reload_data

        context, inputs = self._core.context, self._core.inputs
        if context is None or inputs is None or self._core.fn is None:
            raise UsageError(
                "trainer.reload_dataloaders() was called outside of a run: the next run makes its "
                "loaders anew."
            )
        if not inputs.makes_loaders:
            raise UsageError(
                f"trainer.reload_dataloaders() was called in a {inputs.fn} whose loaders were "
                "passed to it: only a module or data module can make them anew. Define its "
                "dataloader methods, and pass none."
            )
        if inputs.fn == "fit" and context.is_inside_epoch:
            raise UsageError(
                "trainer.reload_dataloaders() was called inside an epoch, whose batches come from "
                "the loader that there is. Call it before, as in on_train_epoch_start."
            )
        reload_data(inputs, context)

    def renew_learning_rates(self) -> None:
        """Call `configure_optimizers` again, and copy its learning rates.

        Before the first step the optimizers are as if they were made now. Afterwards their state
        and the schedulers' stay, and only the learning rates are replaced.

        Raises:
            UsageError: no fit is active.
        """
        from trainer_hooks.module.optimization import parse_optimizers

        module, training = self._core.module, self._core.training
        if self._core.fn != "fit" or module is None or not training.is_configured:
            raise UsageError(
                "trainer.renew_learning_rates() was called outside of a fit: the optimizers that "
                "there are belong to the last one. Call it in a hook of fit."
            )
        fresh = parse_optimizers(
            module.configure_optimizers(),
            f"{type(module).__qualname__}.configure_optimizers returned",
            is_manual=not module.automatic_optimization,
        )
        training.optimization.take_rates(fresh, is_new=training.progress.steps_completed == 0)

    def request_validation(self) -> None:
        """Request a validation after the current training batch, independent of the schedule.

        Several requests before the validation count as one. From the epoch's last batch on the
        epoch's own validation fulfils it; between epochs it waits for the next batch. Weights that
        were just validated are not validated again.

        Raises:
            UsageError: no fit is active.
        """
        progress = self._require_fit("request_validation", "trainer.validate(...)")
        context = self._core.context
        if context is not None and context.processes.is_distributed:
            # the counters must be equal on all ranks, so the ranks agree on the request first
            context.local_requests.wants_validation = True
        else:
            progress.is_validation_requested = True

    def validate_again(
        self, prefix: str, callbacks: Callback | Iterable[Callback] | None = None
    ) -> list[dict[str, float]]:
        """Validate once more at the end of an epoch, for example with other weights.

        It is for `on_train_epoch_end` and `on_epoch_end`. All validation loaders are run. The
        module's own hooks fire, and those of `callbacks`, but no other callback's. The training is
        not affected: the random state, and that of the loaders, is restored.

        Args:
            prefix: text before the names of all metrics that are logged in it, such as `"ema_"`.
            callbacks: callbacks whose validation hooks fire; they take no part in the run
                otherwise.

        Returns:
            The reduced metrics of each loader.

        Raises:
            UsageError: this is no end of an epoch of fit, or there is nothing to validate.
            OptionError: the prefix is no text.
        """
        from trainer_hooks.loops.extra_passes import validate_again

        return validate_again(self._core.context, prefix, callbacks)

    def limit_batches(self, number: int, *stages: str) -> None:
        """Run at most this many batches of each loader; call it in `setup`.

        It holds for the run that is being set up, and replaces a limit that is a share or a larger
        number.

        Args:
            number: the number of batches, at least 1.
            stages: any of `"train"`, `"validate"`, `"test"` and `"predict"`; by default all of
                them.

        Raises:
            UsageError: no run is being set up.
            OptionError: the number or a stage breaks its rule.
        """
        context = self._core.context
        # while `load_training` is there `setup` runs, and a stream that it made can be made again
        is_loaded = (
            context is not None and context.data.is_loaded and not context.data.load_training
        )
        if context is None or self._core.fn is None or is_loaded:
            raise UsageError(
                "trainer.limit_batches() was called when no run was being set up: call it in the "
                "hook `setup`, or pass limit_train_batches= and its kin to Trainer(...)."
            )
        # the plan of this run alone: the core keeps the options for the next one
        context.plan = with_limits(context.plan, number, stages)
        context.data.stream = None  # a stream that was made already has the old limit

    def limit_validation(self, number: int) -> None:
        """Run at most this many batches of each loader; call it in `on_validation_run_start`.

        It holds for the validation that is about to run.

        Raises:
            UsageError: no validation inside fit is active.
            OptionError: the number is no int of at least 1.
        """
        context = self._core.context
        if context is None or self._core.fn != "fit" or self._core.state.stage != "validate":
            raise UsageError(
                "trainer.limit_validation() was called outside of a validation of fit: call it in "
                "the hook `on_validation_run_start`."
            )
        context.validation.limit = check_limit(number, "trainer.limit_validation")

    def request_checkpoint(self) -> None:
        """Request every checkpoint callback to save at its next opportunity.

        That is the end of the current batch, or of the epoch or iteration, whichever comes first.
        Several requests before it count as one.

        Raises:
            UsageError: no fit is active.
        """
        progress = self._require_fit("request_checkpoint", "trainer.save_checkpoint(path)")
        context = self._core.context
        if context is not None and context.processes.is_distributed:
            # the counters must be equal on all ranks, so the ranks agree on the request first
            context.local_requests.wants_checkpoint = True
        else:
            progress.is_checkpoint_requested = True

    @property
    def calls_steps(self) -> bool:
        """Whether the trainer calls the module's steps: not in a `Run`, whose steps are lines."""
        return True

    def replay_training_data(self) -> int:
        """Run the module on an epoch of training batches without training it.

        The module runs in its present mode: its `training_step`, or its forward if it has none.
        There are no gradients and no hooks, and logged values are dropped. It is for state that a
        forward alone changes, such as the statistics of BatchNorm; for `on_train_end`, when no
        epoch is open. The random state and the loader's generators are restored.

        Returns:
            The number of batches.

        Raises:
            UsageError: no fit is active or an epoch is open, the module optimizes manually, or the
                loader has no length.
        """
        from trainer_hooks.loops.extra_passes import replay_training_batches

        progress = self._require_fit("replay_training_data", "the module on the batches")
        context = self._core.context
        if context is None or progress.stage is not EpochStage.BETWEEN:
            raise UsageError(
                "trainer.replay_training_data() was called inside an epoch: it would take the "
                "loader away from it. Call it in on_train_start or on_train_end."
            )
        return replay_training_batches(context)

    def call_event(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Fire a custom event, or a hook that an installed package adds.

        Args:
            event: the name of the method to call on every callback that has it.
            *args: its positional arguments; a hook takes none.
            **kwargs: its keyword arguments; a hook gets the trainer and the module before them.

        Raises:
            UsageError: the event is one of the trainer's own hooks or a misspelt one, or the
                arguments are not the hook's.
        """
        self._core.connector.call_event(event, (self, self._core.module), kwargs, args)

    def add_callback(self, callback: Callback) -> None:
        """Add a callback; during a run it takes part from the next hook on."""
        core = self._core
        callback = validate_callback(callback, "callback")
        if core.run_lock.is_running:
            # before it is added: one that is in another run must not take part for a moment
            core.run_lock.acquire([CallbackEntry(callback, "user")])
        core.connector.add(callback)
        if core.fn is not None:
            # for its `log`; the others got the module when the run began
            ours(callback).attach_module(core.module)

    def remove_callback(self, callback: Callback) -> None:
        """Remove a callback."""
        callback = adapt_if_foreign(callback)
        self._core.connector.remove(callback)
        ours(callback).attach_module(None)

    def profile_hooks(self, budget: str | float | None = None) -> HookProfile:
        """Time every call of a callback from here on, until the profile's `stop()`.

        If a profile is active already, that one is returned. As a context manager it stops at the
        end.

        Args:
            budget: the share of a training batch's time that a callback may take, as `"2%"`.

        Raises:
            OptionError: the budget is no share.
        """
        from trainer_hooks.trainer.run.hook_profiling import start_hook_profile

        return start_hook_profile(self._core, budget)

    def log_metrics(
        self, metrics: Mapping[str, float], step: int | None = None, *, epoch: int | None = None
    ) -> None:
        """Pass metrics to every logger and the history, and fire `on_log`.

        Args:
            metrics: values by name; one named `step` is the position, where the argument `step` is
                None.
            step: their position on the x axis; by default `present_step`: in a fit the index of the
                last completed accumulation window, elsewhere their number.
            epoch: a value that loggers get under the name `epoch`, unless a metric has that name or
                there is one named `step`.
        """
        core, values = self._core, dict(metrics)
        logged_step = values.pop("step", None) if step is None else None
        core.training.metrics.record_logged(values)
        if logged_step is not None:
            step = int(logged_step)
        elif epoch is not None:
            values.setdefault("epoch", epoch)
        if step is None:
            step = present_step(core.fn, core.training.progress)
        core.training.history.record(metrics, step)
        for logger in core.loggers:
            # in a run the method is its guard's (loggers/guard.py), which holds errors back
            logger.log_metrics(values, step)
        core.connector.relay.on_log(self, core.module, values, step)  # type: ignore[arg-type]

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without breaking the progress bar; only rank 0 prints."""
        if not self.is_global_zero:
            return
        bar = self.progress_bar_callback
        with losing_output_to(kwargs.get("file")):
            if bar is not None and bar.is_enabled:
                bar.print(*args, **kwargs)
            else:
                print(*args, **kwargs)

    def describe_hooks(
        self, model: Module | None = None, fn: str | None = None, *, file: TextIO | None = None
    ) -> None:
        """Print the loop as a tree, with the callbacks at each hook and their suppliers.

        Nothing is run and nothing is changed, so it can be called before any training.

        Args:
            model: the module to show with its callbacks; by default that of the last run.
            fn: `"fit"`, `"validate"`, `"test"` or `"predict"` for that part alone.
            file: the file to print to; by default standard output. A terminal gets a drawn tree.

        Raises:
            UsageError: `fn` is unknown.
        """
        from trainer_hooks._text import show_tree
        from trainer_hooks.trainer.description import describe

        tree = describe(self, self._core.connector, uncompiled(model), fn)
        if self.is_global_zero:
            with losing_output_to(file):
                show_tree(tree, file=file)

    def __repr__(self) -> str:
        """Return the options and the progress in one line."""
        from trainer_hooks.trainer.core.trainer_core import trainer_repr

        if "_core" not in vars(self):  # in on_init_start, or in a debugger before it
            return f"<{type(self).__name__} under construction>"
        return trainer_repr(type(self).__name__, self._core)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - IPython's
        """Show the repr in a notebook, with one part per line."""
        printer.text(repr(self).replace("; ", ";\n  "))

    def _require_fit(self, method: str, instead: str) -> Progress:
        """Return the counters of the active fit, which keep requests.

        Args:
            method: the method that was called, for the message.
            instead: the call to make outside of a fit, for the message.

        Raises:
            UsageError: no fit is active.
        """
        fn = self._core.fn
        if fn != "fit":
            raise UsageError(
                f"trainer.{method}() was called {f'in {fn}' if fn else 'outside of a run'}: it is "
                f"for hooks and steps of fit. Call {instead} instead."
            )
        return self._core.training.progress

    def _run(self, inputs: RunInputs) -> Any:
        try:
            from trainer_hooks.trainer.run.lifecycle import TrainerRun
        except KeyboardInterrupt:
            shorten_traceback()
            raise

        inputs = inputs.normalized()
        # not true in the forks: there the ranks run already, and come by here with the same inputs
        if self._core.processes.topology.starts_each_run:
            from trainer_hooks.trainer.run.forking import ForkedRuns

            self._forks = self._forks or ForkedRuns(self._core, self)
            return self._forks.run(inputs, self._run)
        result = None
        # once more, for ranks that were started for this run: they come by here alone
        with ending_at_once(), TrainerRun(self._core, self, inputs) as run:
            loop = run.prepare()
            result = loop.run()
            run.complete()
        return result

    def _evaluate(
        self,
        fn: str,
        model: Module | None,
        dataloaders: Any,
        ckpt_path: str | os.PathLike[str] | None,
        verbose: bool,
        datamodule: DataModule | None,
    ) -> list[dict[str, float]]:
        with ending_at_once():
            from trainer_hooks.trainer.core.run_inputs import RunInputs

            sources = (dataloaders, datamodule)
            module, path = self._choose_module_and_checkpoint(model, ckpt_path, fn, sources)
            # by default that of the last run
            is_last = datamodule is None and dataloaders is None
            owner = self._core.datamodule if is_last else datamodule
            inputs = RunInputs(TrainerFn(fn), module, owner, evaluation=dataloaders, ckpt_path=path)
            results: list[dict[str, float]] = self._run(inputs) or []
        if verbose:
            for index, metrics in enumerate(results):
                where = f"{fn} {index}" if len(results) > 1 else fn
                shown = ", ".join(f"{name}={value:.6g}" for name, value in metrics.items())
                self.print(f"{where}: {printable(shown) or 'no metrics were logged'}")
        return results

    def _choose_module_and_checkpoint(
        self,
        model: Module | None,
        ckpt_path: str | os.PathLike[str] | None,
        fn: str,
        sources: tuple[Any, ...],
    ) -> tuple[Module, str | None]:
        """Return the module to run and the path of the checkpoint to load into it."""
        from trainer_hooks.trainer.restoring.find_checkpoint import best_of_last_fit

        core = self._core
        # the compiled form if that was passed, so that its steps run compiled again
        last = core.module if core.compiled is None else core.compiled
        module = last if model is None else model
        if module is None:
            raise UsageError("no model was given, and this trainer has run none yet: pass model=.")
        if model is None and ckpt_path is None:
            ckpt_path = core.processes.run_on_rank_zero(partial(best_of_last_fit, self, core, fn))
        return module, self._resolve_checkpoint(ckpt_path, fn, module, sources=sources)

    def _start_of_fit(
        self, ckpt_path: str | os.PathLike[str] | None, model: Any, *sources: Any
    ) -> dict[str, Any]:
        """Return the inputs of a fit that name its checkpoint, and tell which training it is.

        Args:
            ckpt_path: as the user passed it.
            model: as the user passed it.
            sources: the loaders and data modules as the user passed them; None for none.
        """
        core, module = self._core, adapt_if_foreign(uncompiled(model), Module)
        # others than rank 0 save and search nothing; and a bare fit is not slowed down
        is_labelled = (
            core.processes.is_global_zero
            and not core.is_trial
            and core.fn is None
            and isinstance(module, Module)
            and (ckpt_path is not None or bool(self.checkpoint_callbacks))
        )
        if not is_labelled:
            return {"ckpt_path": self._resolve_checkpoint(ckpt_path, "fit", model)}
        from trainer_hooks.trainer.identity.run_identity import TRAININGS, label_run, trained_object

        label = label_run(self, core.config, module, *sources)
        path = self._resolve_checkpoint(ckpt_path, "fit", model, label)
        if path is not None:
            is_named, io = core.start_checkpoint.named_path is not None, core.custom_io
            label = TRAININGS.adopt(trained_object(module), label, path, is_named=is_named, io=io)
        return {"ckpt_path": path, "label": label}

    def _resolve_checkpoint(
        self,
        ckpt_path: str | os.PathLike[str] | None,
        fn: str,
        module: Module,
        label: RunLabel | None = None,
        sources: Iterable[Any] = (),
    ) -> str | None:
        """Return the path that `ckpt_path` stands for, and record how it was named.

        Raises:
            UsageError: a run of this trainer is going on.
            OptionError: it is neither a text nor a path, or is empty.
            CheckpointNotFoundError: it is one of the words with a letter wrong.
        """
        # before the record changes: by that of the running run, savers know which file to keep
        if self._core.fn is not None:
            raise UsageError(
                f"{fn} was called inside {self._core.fn} of the same trainer: use another Trainer "
                "for it, or call it afterwards."
            )
        self._core.start_checkpoint.named_path = None
        self._core.start_checkpoint.is_auto = ckpt_path == "auto"
        if ckpt_path is None:
            return None
        # an empty one would be the current folder
        if not isinstance(ckpt_path, str | os.PathLike) or not os.fspath(ckpt_path):
            raise OptionError(
                f"ckpt_path={ckpt_path!r} of {fn}: must be a path, or one of the words 'last', "
                "'best' and 'auto'. Pass one, or None for no checkpoint."
            )
        if ckpt_path not in ("auto", "best", "last"):
            if isinstance(ckpt_path, str) and ckpt_path.isalpha() and is_missing(ckpt_path):
                from trainer_hooks.trainer.restoring.find_checkpoint import refuse_misspelt

                refuse_misspelt(ckpt_path)
            self._core.start_checkpoint.named_path = absolute_path(ckpt_path)
            return self._core.start_checkpoint.named_path
        from trainer_hooks.trainer.identity.run_identity import label_evaluation
        from trainer_hooks.trainer.restoring.find_checkpoint import find_checkpoint

        core, plain = self._core, uncompiled(module)
        if label is None and isinstance(adapted := adapt_if_foreign(plain, Module), Module):
            label = label_evaluation(self, core.config, adapted, *sources)
        if label is not None and ckpt_path != "auto":
            # a trainer's "last" and "best" are those of its last training, of another module too
            last = core.training.identity.run
            label = replace(label, runs=label.runs | {last} - {""})
        # on rank 0 alone: other nodes may not see its folders
        return self._core.processes.run_on_rank_zero(
            partial(
                find_checkpoint,
                self,
                str(ckpt_path),
                fn,
                plain,
                core.entry_point,
                label,
            )
        )

    def _callbacks_of(self, home: str, name: str) -> list[Any]:
        """Return the callbacks of a built-in class, without importing its module for that."""
        kind = class_if_loaded(f"trainer_hooks.callbacks.{home}", name)
        return [
            callback for callback in self._core.connector.callbacks if isinstance(callback, kind)
        ]

    def _evaluation(self, stage: str) -> EvalLoaders:
        context = self._core.context
        loaders = self._core.evaluation if context is None else context.data.evaluation
        from trainer_hooks.context.loaders import EvalLoaders

        return loaders.get(stage, EvalLoaders())

"""Trainer: runs modules, and calls hooks while it does."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TextIO

from trainer_hooks import checkpoint, loops
from trainer_hooks._log import be_heard, log
from trainer_hooks.callback import Callback
from trainer_hooks.connector import CallbackConnector
from trainer_hooks.errors import CallbackError, StopTraining, UsageError, add_note
from trainer_hooks.hooks import describe_error
from trainer_hooks.module import uncompiled
from trainer_hooks.runtime import make_precision
from trainer_hooks.trainer import run, verbs
from trainer_hooks.trainer.options import (
    TrainerConfig,
    check_switches,
    default_callbacks,
    make_loggers,
    takes_options,
)
from trainer_hooks.trainer.overridden import overridden_losses, overridden_moments
from trainer_hooks.trainer.view import TrainerView

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from trainer_hooks.checkpoint import BackgroundSave
    from trainer_hooks.hooks import HookProfile
    from trainer_hooks.loggers import Logger
    from trainer_hooks.module import DataModule, Module
    from trainer_hooks.trainer.callback_handler import CallbackHandler

__all__ = ["Trainer"]


class Trainer(TrainerView):
    """Fit, validate, test and predict with modules; every moment of it is a hook.

    The options are those of `trainer_hooks.trainer.options.TrainerConfig`, by keyword;
    `docs/trainer.md` lists them. A trainer can be used any number of times, and as a context
    manager that closes it.

    Raises:
        OptionError: an option is unknown, or breaks its rule.
        CallbackError: a callback cannot be registered.
        PluginError: an installed plugin is broken and `plugin_errors="raise"`.
    """

    @takes_options(TrainerConfig)
    def __init__(self, config: TrainerConfig) -> None:
        be_heard()
        processes, device = run.processes_of(config)
        connector = CallbackConnector(
            config.callbacks,
            defaults=default_callbacks(config, is_several=processes.topology.world_size > 1),
            discover=True if config.plugins is None else config.plugins,
            plugin_errors=config.plugin_errors,
            strict_hooks=config.strict_hooks,
            callback_errors=config.callback_errors,
        )
        check_switches(config, connector)
        if not processes.is_global_zero:
            run.leave_to_first(connector)
        moments = overridden_moments(self, Trainer)
        if moments is not None:
            connector.lead(moments, f"trainer {type(self).__qualname__}")
        hook_profile = run.profile_from_start(config, connector.relay)
        connector.relay.on_init_start(self)
        plan = config.plan()
        self._session = run.Session(
            config=config,
            # torch cannot train with weights that were gathered in inference mode
            plan=replace(plan, inference_mode=False) if processes.is_sharded else plan,
            connector=connector,
            background=checkpoint.BackgroundSaves(self._tell_saved),
            loggers=make_loggers(config, self.default_logger),
            device=device,
            processes=processes,
            precision=make_precision(config.precision, device),
            hook_profile=hook_profile,
        )
        for logger in self._session.loggers:
            if isinstance(logger, Callback) and logger not in self.callbacks:
                connector.add(logger)  # it wants to hear of the run, too
        if config.profiler is not None:
            from trainer_hooks.profilers.named import make_profiler

            self._session.profiler = make_profiler(config.profiler)
        if config.barebones:
            from trainer_hooks.metrics import MutedMetrics

            self._session.muted = MutedMetrics()
            log.info("barebones: no checkpoints, logs, bar, summary, sanity check, plugins")
        self._forks: run.Forks | None = None
        self._is_closed = False
        connector.relay.on_init_end(self)

    @property
    def divides_outputs(self) -> bool:
        """Whether hooks get losses divided by `accumulate_grad_batches`, as in Lightning."""
        return False

    @classmethod
    def default_logger(cls, root: str) -> Logger:
        """Return the logger of `Trainer(logger=True)`; override it in a trainer of your own.

        Args:
            root: the run's root folder.
        """
        from trainer_hooks.loggers import CSVLogger

        return CSVLogger(root)

    # --- entry points ---

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
            model: the module, or what `torch.compile(module)` returned. With the one of the last
                fit, training goes on; another one starts from nothing.
            train_dataloaders: an iterable of batches, a list or dict of loaders, or a data module.
            val_dataloaders: one, or a list of them, which are run one after another.
            datamodule: a data module, instead of loaders.
            ckpt_path: a checkpoint to resume from: a path; `"last"`, the newest that is whole;
                `"best"`, the best one, as the newest one records it; or `"auto"`, `"last"` where
                this run has saved one, and else a new training. The words search where this
                trainer's checkpoint callbacks save, also in an earlier process. A file of Lightning
                2.x is taken too; from inside an epoch that is not exact, which is warned of.
            weights_only: without effect, for Lightning's scripts: no file is opened in a way that
                could run code.
            overrides: names of options of the optimizers, such as `["lr"]`, whose values come from
                this run's `configure_optimizers`, not from the checkpoint.
        """
        job = run.Job(
            "fit",
            model,
            datamodule,
            train_dataloaders,
            val_dataloaders,
            self._found(ckpt_path, "fit", model),
            overrides=frozenset()
            if overrides is None
            else run.checked_overrides(overrides, ckpt_path),
        )
        self._run(job)

    def validate(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: DataModule | None = None,
        weights_only: bool | None = None,  # noqa: ARG002 - as for `fit`
    ) -> list[dict[str, float]]:
        """Run validation on its own; return the metrics of each loader.

        Args:
            model: the module; that of the last run unless given.
            dataloaders: a loader, a list of them, or a data module.
            ckpt_path: a checkpoint whose weights are loaded first: a path, `"last"` or `"best"`,
                as for `fit`. Without one and without a model, it is the best of the last fit, if
                that saved any.
            verbose: whether to print the metrics.
            datamodule: a data module, instead of loaders.
            weights_only: without effect, as for `fit`.
        """
        return self._evaluate("validate", model, dataloaders, ckpt_path, verbose, datamodule)

    def test(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: DataModule | None = None,
        weights_only: bool | None = None,  # noqa: ARG002 - as for `fit`
    ) -> list[dict[str, float]]:
        """Run the test; return the metrics of each loader. It takes what `validate` takes."""
        return self._evaluate("test", model, dataloaders, ckpt_path, verbose, datamodule)

    def predict(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        datamodule: DataModule | None = None,
        return_predictions: bool | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        weights_only: bool | None = None,  # noqa: ARG002 - as for `fit`
    ) -> list[Any] | None:
        """Predict; return what the steps returned, as a list, or one for each of several loaders.

        Args:
            model: the module; that of the last run unless given.
            dataloaders: a loader, a list of them, or a data module.
            datamodule: a data module, instead of loaders.
            return_predictions: whether to keep and return them, as unless it is False: then None
                is returned.
            ckpt_path: a checkpoint whose weights are loaded first, as for `validate`.
            weights_only: without effect, as for `fit`.
        """
        module, path = self._chosen(model, ckpt_path, "predict")
        job = run.Job(
            "predict",
            module,
            self._datamodule(dataloaders, datamodule),
            evaluation=dataloaders,
            ckpt_path=path,
            keeps_predictions=return_predictions is None or return_predictions,
        )
        predictions: list[Any] | None = self._run(job)
        return predictions

    def init_module(self, empty_init: bool | None = None) -> AbstractContextManager[None]:
        """Return a context in which layers are made where, and in what precision, they will run.

        So a large model is not made on the host first, or in 32 bits. With FSDP layers have no
        memory in it (they are on the device meta), and get their weights as the run begins.

        Args:
            empty_init: leave out the first weights, which a checkpoint is to give; with FSDP False
                makes layers with memory.
        """
        from trainer_hooks.runtime import building

        session = self._session
        return building(session.device, session.precision, session.processes, empty_init)

    def save_checkpoint(
        self,
        filepath: str | os.PathLike[str],
        weights_only: bool | None = False,
        storage_options: Any = None,
    ) -> None:
        """Write a checkpoint, whole or not at all.

        Args:
            filepath: where; its folder is made. One that ends in `.safetensors` is written as such,
                with the weights and the hyperparameters that JSON can hold.
            weights_only: leave out what a resume needs beyond the weights; a `.safetensors` file
                must.
            storage_options: None; how a store is reached is set up where fsspec is.

        Raises:
            UsageError: a `.safetensors` file is to hold more than weights, or nothing was run yet.
            OptionError: `storage_options` is not None.
            CheckpointStateError: a state cannot be loaded back safely; it is named.
            CheckpointError: it cannot be written.
        """
        if storage_options is not None:
            from trainer_hooks.trainer.views.strategy import refuse_storage_options

            refuse_storage_options(storage_options, "trainer.save_checkpoint")
        if self._forks is not None and self._forks.kept is not None and not weights_only:
            self._forks.copy_kept(filepath)
        else:
            run.save(self._session, self, filepath, bool(weights_only))

    def dump_checkpoint(self, weights_only: bool | None = False) -> dict[str, Any]:
        """Return what a checkpoint of this moment would hold, as plain data and tensors.

        The tensors are those of the training, and no copies. Of several processes all must call it,
        and only the first gets it; the others get an empty dict.

        Args:
            weights_only: leave out what a resume needs beyond the weights.

        Raises:
            UsageError: nothing was run yet.
            CheckpointStateError: a state cannot be loaded back safely; it is named.
        """
        return run.build(self._session, self, bool(weights_only))

    def save_in_background(
        self, *filepaths: str | os.PathLike[str], weights_only: bool = False
    ) -> BackgroundSave:
        """Save a copy of the present state in another thread, and go on; as safe as a save.

        The caller is held while the state is copied in memory, and as long as the save before is
        still being written. `on_checkpoint_saved` fires in the main thread once a file is durable:
        at the next slot of the savers, the next save, or the end of the run, which waits for it.

        Args:
            filepaths: where; each gets the same state, one after another.
            weights_only: leave out what a resume needs beyond the weights.

        Raises:
            CheckpointStateError: a state cannot be loaded back safely; it is named.
            CheckpointError: the save in the background before this one failed.
        """
        return run.save_in_background(self._session, self, filepaths, weights_only)

    def finish_saves(self) -> None:
        """Wait until all background saves are durable, and tell the callbacks.

        Raises:
            CheckpointError: it could not be written.
        """
        self._session.background.finish()

    def _tell_saved(self, path: str) -> None:
        run.tell_saved(self._session, self, path)

    def trial_run(self, *callbacks: Callback, steps: int, validates: bool = False) -> None:
        """Run a few batches of what comes next, and leave everything as it was.

        It is for `on_fit_start`, `on_train_epoch_start`, and the start of an evaluation. The
        module's hooks of training and evaluation fire, and those of `callbacks`; nobody else hears
        of it, and nothing is logged. Optimizers are made anew for it, without schedulers. Put back
        afterwards, also after an error: weights, gradients and attributes of the module, random
        numbers, and the loaders' generators. Counters, metrics and optimizers of this run are not
        touched at all.

        Args:
            callbacks: what takes part.
            steps: windows of training, each of which makes a step, or batches of each loader of an
                evaluation.
            validates: whether a fit validates too, on as many batches of each loader.

        Raises:
            UsageError: no run is under way, an epoch is, or a parameter is lazy.
        """
        run.run_trial(self._begin_beside, self._session, callbacks, steps, validates=validates)

    def rehearsal(self, *callbacks: Callback) -> Self:
        """Return a trainer with the same options that has run nothing yet.

        It has the same device; `callbacks` are its only ones, and it has no loggers.
        """
        return self._twin(self._session.for_trial(self._session.plan, callbacks))

    def _begin_beside(self, kind: type[run.Run], session: run.Session, job: run.Job) -> run.Run:
        twin = self._twin(session)
        steps = twin._own_steps()  # noqa: SLF001 - of its own kind
        return kind(session, twin, job, steps)

    def _twin(self, session: run.Session) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._session = session
        return twin

    def close(self) -> None:
        """Finish saves and fire `on_close` and `on_post_close`; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        relay, module = self._session.connector.relay, self._session.module
        fault: BaseException | None = None
        steps: list[tuple[Any, tuple[Any, ...]]] = [
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
                    add_note(fault, f"and then: {describe_error(error)}")
        if fault is not None:
            raise fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except BaseException as fault:
            if error is None:
                raise
            add_note(error, f"and then, while closing: {describe_error(fault)}")

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a copy consists of; no run is under way.

        Raises:
            TypeError: one is, or there are several processes.
        """
        return {**vars(self), "_session": run.at_rest(self._session, type(self).__qualname__)}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy; the same trainer for the copy of something that refers to it."""
        if memo:
            return self
        made = object.__new__(type(self))
        state, memo[id(self)] = self.__getstate__(), made
        vars(made).update(deepcopy(state, memo))
        return made

    def __copy__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__qualname__} cannot be copied in part, as its copy would train the "
            "same module with the same counters. Call copy.deepcopy."
        )

    # --- verbs: hooks return None, and act on the run by calling one of these ---

    def stop(self, reason: str = "") -> None:
        """Ask the fit to stop after this batch, but not before `min_epochs` and `min_steps`."""
        if self._session.context is not None:
            self._session.context.wishes.is_stopping = True
        self._session.stop_reason = reason

    def skip_batch(self) -> None:
        """Leave out the current training batch, or its gradients.

        In `on_train_batch_start` the batch is not run at all. In `on_before_backward`, where its
        loss is known, it takes no part in the step, with all parts that it is split into; not in
        manual optimization, where the module itself decides.
        """
        if self._session.context is not None:
            self._session.context.asked.skips_batch = True

    def end_epoch(self) -> None:
        """End the training epoch after this batch; what was asked is kept in checkpoints.

        The epoch's validation and its end follow, as after the last batch, and the next epoch. An
        open window of accumulated gradients is stepped with. Of several processes all end it, when
        their window is done. Called outside of an epoch's batches it does nothing, and in the hooks
        that start an epoch it leaves one batch.

        Raises:
            UsageError: no fit is under way.
        """
        verbs.end_epoch(self._session)

    def note_batch_indices(self) -> None:
        """Fill `trainer.batch_indices` in this prediction; call it in `on_predict_start`.

        It then says which samples the current batch consists of.

        Raises:
            UsageError: no prediction is under way.
        """
        verbs.note_batch_indices(self._session)

    def reload_dataloaders(self) -> None:
        """Let the module or data module make its loaders again, before an epoch begins.

        It is for `on_load_checkpoint`, `on_fit_start`, `on_train_epoch_start` and the start of an
        evaluation.

        Raises:
            UsageError: no run is under way, its loaders were passed to it, or an epoch is under
                way.
            DataError: there is nothing to run now.
        """
        verbs.reload_dataloaders(self._session)

    def renew_learning_rates(self) -> None:
        """Call `configure_optimizers` again, and take over its learning rates.

        Before the first step everything is as if the optimizers were made now; afterwards their
        state and the schedulers' stay, and only the rates that they go by are replaced.

        Raises:
            UsageError: no fit is under way.
        """
        verbs.renew_learning_rates(self._session)

    def request_validation(self) -> None:
        """Ask for a validation after the current training batch, whatever is scheduled.

        Any number of requests before it are one. From the epoch's last batch on it is the epoch's
        own validation; between epochs it waits for the next batch. Weights that were just validated
        are not validated again.

        Raises:
            UsageError: no fit is under way.
        """
        verbs.request_validation(self._session)

    def validate_again(
        self, prefix: str, callbacks: Callback | Iterable[Callback] | None = None
    ) -> list[dict[str, float]]:
        """Validate once more at the end of an epoch, for example with other weights.

        It is for `on_train_epoch_end` and `on_epoch_end`. All validation loaders are run, and the
        module's own hooks fire, but no callback's save those of `callbacks`. The training is as it
        would be without: random numbers, and those of the loaders, are put back.

        Args:
            prefix: what is put before the names of all that is logged in it, as `"ema_"`.
            callbacks: whose hooks of a validation fire; they take no part in the run otherwise.

        Returns:
            The reduced metrics of each loader.

        Raises:
            UsageError: this is no end of an epoch of fit, or there is nothing to validate.
            OptionError: the prefix is no text.
        """
        return loops.validate_again(self._session.context, prefix, callbacks)

    def limit_batches(self, number: int, *stages: str) -> None:
        """Run at most this many batches of each loader; call it in `setup`.

        It lasts for the run that is being set up. It replaces a limit that is a share or a larger
        number.

        Args:
            number: how many, from 1 on.
            stages: of `"train"`, `"validate"`, `"test"` and `"predict"`; all of them unless given.

        Raises:
            UsageError: no run is being set up.
            OptionError: the number or a stage is outside its rule.
        """
        verbs.limit_batches(self._session, number, stages)

    def limit_validation(self, number: int) -> None:
        """Run at most this many batches of each loader; call it in `on_validation_run_start`.

        It lasts for the validation that is about to run.

        Raises:
            UsageError: no validation inside fit is under way.
            OptionError: the number is none from 1 on.
        """
        verbs.limit_validation(self._session, number)

    def request_checkpoint(self) -> None:
        """Ask every checkpoint callback to save at its next slot, whatever is scheduled.

        That is the end of the batch in work, or of the epoch or iteration, whichever comes first.
        Any number of requests before it are one.

        Raises:
            UsageError: no fit is under way.
        """
        verbs.request_checkpoint(self._session)

    def replay_training_data(self) -> int:
        """Run the module on an epoch of training batches without training it.

        It is run in the mode that it is in: its `training_step`, or its forward if it has none.
        There are no gradients and no hooks, and what it logs is dropped. It is for what a forward
        alone changes, such as the statistics of BatchNorm; for `on_train_end`, where no epoch is
        open. Random numbers and the loader's generators are put back.

        Returns:
            How many batches there were.

        Raises:
            UsageError: no fit is under way or an epoch is, the module optimizes by itself, or the
                loader has no length.
        """
        return verbs.replay_training_data(self._session)

    def call_event(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Fire an event of your own, or a hook that an installed package adds.

        Args:
            event: the name of the method that is called on every callback that has it.
            *args: what it is given, by place; a hook is given nothing so.
            **kwargs: what it is given, by name; a hook is given the trainer and the module first.

        Raises:
            UsageError: the event is one of the trainer's own hooks or a misspelt one, or the
                arguments are not the hook's.
        """
        self._session.connector.call_event(event, (self, self._session.module), kwargs, args)

    def add_callback(self, callback: Callback) -> None:
        """Add a callback; during a run it takes part from the next hook on."""
        verbs.add_callback(self._session, callback)

    def remove_callback(self, callback: Callback) -> None:
        """Remove a callback."""
        verbs.remove_callback(self._session, callback)

    def profile_hooks(self, budget: str | float | None = None) -> HookProfile:
        """Time every call of a callback from here on, until the profile's `stop()`.

        A profile that is in already is given again. As a context manager it stops at the end.

        Args:
            budget: the share of a training batch's time that a callback may take, as `"2%"`.

        Raises:
            OptionError: the budget is no share.
        """
        return run.put_in(self._session, budget)

    def log_metrics(
        self, metrics: Mapping[str, float], step: int | None = None, *, epoch: int | None = None
    ) -> None:
        """Pass metrics to every logger and the history, and fire `on_log`.

        Args:
            metrics: values by name; one named `step` takes the place of `step`.
            step: their place on the x axis; the number of windows done so far unless given.
            epoch: what loggers are given beside them under the name `epoch`, unless a value has
                that name or there is one named `step`.
        """
        verbs.log_metrics(self._session, self, metrics, step, epoch)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without breaking the progress bar; of several processes only the first prints."""
        if not self.is_global_zero:
            return
        bar = self.progress_bar_callback
        if bar is not None and bar.is_enabled:
            bar.print(*args, **kwargs)
        else:
            print(*args, **kwargs)

    def describe_hooks(
        self, model: Module | None = None, fn: str | None = None, *, file: TextIO | None = None
    ) -> None:
        """Print the loop as a tree, with the callbacks at each hook and who supplied them.

        Nothing is run and nothing is changed, so it can be called before any training.

        Args:
            model: the module to show with what it brings; that of the last run unless given.
            fn: `"fit"`, `"validate"`, `"test"` or `"predict"` for that part alone.
            file: where to; standard output unless given. A terminal gets a drawn tree.

        Raises:
            UsageError: there is no such `fn`.
        """
        from trainer_hooks._text import show_tree
        from trainer_hooks.trainer.description import describe

        tree = describe(self, self._session.connector, uncompiled(model), fn)
        if self.is_global_zero:
            show_tree(tree, file=file)

    def __repr__(self) -> str:
        """Return in one line what it was given and how far it is."""
        return run.portrait(type(self).__name__, self._session)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - IPython's
        """Show the same in a notebook, a line for each part."""
        printer.text(repr(self).replace("; ", ";\n  "))

    # --- what a subclass may override, as in pytorch-accelerated ---
    # Each is the callback's hook of that name there, less `on_`, and runs before the callbacks.
    # What is not overridden is not called.

    def training_run_start(self) -> None:
        """Override it to act when a fit begins."""

    def train_epoch_start(self) -> None:
        """Override it to act when a training epoch begins."""

    def train_epoch_end(self) -> None:
        """Override it to act after an epoch's last batch, before its validation."""

    def eval_epoch_start(self) -> None:
        """Override it to act when a validation or test begins, but no sanity check."""

    def eval_epoch_end(self) -> None:
        """Override it to act when a validation or test ends, but no sanity check."""

    def training_run_epoch_end(self) -> None:
        """Override it to act after an epoch and its validation."""

    def training_run_end(self) -> None:
        """Override it to act when a fit ends."""

    def evaluation_run_start(self) -> None:
        """Override it to act when a validation or test outside of fit begins."""

    def evaluation_run_end(self) -> None:
        """Override it to act when a validation or test outside of fit ends."""

    def calculate_train_batch_loss(self, batch: Any) -> dict[str, Any]:
        """Run the module's training step on a batch; override it to do more.

        Returns:
            The `loss`, the `model_outputs`, as far as the step returns them, and what else the step
            returned.

        Raises:
            UsageError: no training batch is in work.
        """
        found: dict[str, Any] = verbs.own_step(self._session, batch, "calculate_train_batch_loss")
        return found

    def calculate_eval_batch_loss(self, batch: Any) -> Any:
        """Run the module's validation or test step on a batch; override it to do more.

        Returns:
            What the step returned.

        Raises:
            UsageError: no batch of a validation or test is in work.
        """
        return verbs.own_step(self._session, batch, "calculate_eval_batch_loss")

    @property
    def callback_handler(self) -> CallbackHandler:
        """The callbacks, under the names that pytorch-accelerated has for them."""
        from trainer_hooks.trainer.callback_handler import CallbackHandler

        return CallbackHandler(self)

    def _own_steps(self) -> dict[str, Callable[[Any], Any]]:
        """Return what runs a batch of `"train"` or `"eval"` in the place of the module's step."""
        return overridden_losses(self, Trainer)

    def _run(self, job: run.Job) -> Any:
        if self._session.fn is not None:
            raise UsageError(
                f"{job.fn} was called inside {self._session.fn} of the same trainer: use "
                "another Trainer for it, or call it afterwards."
            )
        job = job.in_place()
        if self._session.processes.topology.starts == "fork":
            self._forks = self._forks or run.Forks(self._session, self)
            return self._forks.run(job, self._run)
        started = run.Run(self._session, self, job, self._own_steps())
        occupation = self._session.occupation
        occupation.begin(f"{job.fn} of {type(job.module).__qualname__} (Trainer at {id(self):#x})")
        try:
            occupation.take(self._session.connector.entries)
        except CallbackError:
            occupation.release()
            raise
        result = None
        try:
            loop = started.prepare()
            result = loop.run()
            started.complete()
        except StopTraining as request:
            started.stop_in_order(request)
            if self._session.processes.is_several:
                error = UsageError(
                    "StopTraining was raised outside of the training of several processes, where "
                    "the others go on. Call trainer.stop() there."
                )
                started.fail(error)
                raise error from request
        except BaseException as error:
            started.fail(error)
            raise
        finally:
            try:
                started.close()
            finally:
                occupation.release()
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
        module, path = self._chosen(model, ckpt_path, fn)
        owner = self._datamodule(dataloaders, datamodule)
        results: list[dict[str, float]] = (
            self._run(run.Job(fn, module, owner, evaluation=dataloaders, ckpt_path=path)) or []
        )
        if verbose:
            for index, metrics in enumerate(results):
                where = f"{fn} {index}" if len(results) > 1 else fn
                shown = ", ".join(f"{name}={value:.6g}" for name, value in metrics.items())
                self.print(f"{where}: {shown or 'no metrics were logged'}")
        return results

    def _chosen(
        self, model: Module | None, ckpt_path: str | os.PathLike[str] | None, fn: str
    ) -> tuple[Module, str | None]:
        """Return the module to run and the checkpoint to load into it."""
        session = self._session
        last = session.module if session.compiled is None else session.compiled
        module = last if model is None else model
        if module is None:
            raise UsageError("no model was given, and this trainer has run none yet: pass model=.")
        if model is None and ckpt_path is None:
            find = partial(run.best_of_fit, self, session, fn)
            several = session.processes.is_several
            ckpt_path = run.decided_by_zero(session.processes, find) if several else find()
        return module, self._found(ckpt_path, fn, module)

    def _datamodule(self, loaders: Any, datamodule: DataModule | None) -> DataModule | None:
        """Return the data module to use: that of the last run if nothing else was given."""
        return self._session.datamodule if datamodule is None and loaders is None else datamodule

    def _found(
        self, ckpt_path: str | os.PathLike[str] | None, fn: str, module: Module
    ) -> str | None:
        """Return the path that `ckpt_path` stands for."""
        self._session.start.named_path = None
        self._session.start.is_auto = ckpt_path == "auto"
        if ckpt_path is None:
            return None
        if ckpt_path not in ("auto", "best", "last"):
            self._session.start.named_path = checkpoint.located(ckpt_path)
            return self._session.start.named_path
        find = partial(run.find_checkpoint, self, str(ckpt_path), fn, uncompiled(module))
        processes = self._session.processes
        if not processes.is_several:
            return find()
        found: str | None = run.decided_by_zero(processes, find)
        return found

"""Trainer: runs modules, and calls hooks while it does."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self, TextIO

from trainer_hooks._text import show_tree
from trainer_hooks.checkpoint import BackgroundSaves, located
from trainer_hooks.connector import CallbackConnector
from trainer_hooks.errors import CallbackError, StopTraining, UsageError
from trainer_hooks.hooks import describe_error
from trainer_hooks.runtime import make_precision, pick_device
from trainer_hooks.trainer import description
from trainer_hooks.trainer.options import (
    TrainerConfig,
    check_switches,
    default_callbacks,
    make_loggers,
    takes_options,
)
from trainer_hooks.trainer.run import (
    Job,
    Run,
    Session,
    find_checkpoint,
    profile_from_start,
    run_trial,
    snapshot,
)
from trainer_hooks.trainer.trainer_methods import (
    TrainerMethods,
    overridden_losses,
    overridden_moments,
)

if TYPE_CHECKING:
    import os

    from trainer_hooks.callback import Callback
    from trainer_hooks.checkpoint import BackgroundSave
    from trainer_hooks.data import DataModule
    from trainer_hooks.module import Module

__all__ = ["Trainer"]


class Trainer(TrainerMethods):
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
        connector = CallbackConnector(
            config.callbacks,
            defaults=default_callbacks(config),
            discover=config.plugins,
            plugin_errors=config.plugin_errors,
            strict_hooks=config.strict_hooks,
            callback_errors=config.callback_errors,
        )
        check_switches(config, connector)
        moments = overridden_moments(self)
        if moments is not None:
            connector.lead(moments, f"trainer {type(self).__qualname__}")
        hook_profile = profile_from_start(config, connector.relay)
        connector.relay.on_init_start(self)
        device = pick_device(config.accelerator, config.devices, config.strategy)
        self._session = Session(
            config=config,
            plan=config.plan(),
            connector=connector,
            background=BackgroundSaves(self._tell_saved),
            loggers=make_loggers(config),
            device=device,
            precision=make_precision(config.precision, device),
            hook_profile=hook_profile,
        )
        self._is_closed = False
        connector.relay.on_init_end(self)

    # --- entry points ---

    def fit(
        self,
        model: Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: DataModule | None = None,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> None:
        """Train a module.

        Args:
            model: the module. With the one of the last fit, training goes on; another one starts
                from nothing.
            train_dataloaders: an iterable of batches, or a list or dict of loaders.
            val_dataloaders: one, or a list of them, which are run one after another.
            datamodule: what has the loaders, instead.
            ckpt_path: a checkpoint to resume from: a path; `"last"`, the newest that is whole;
                `"best"`, by the books that the newest one holds; or `"auto"`, `"last"` where there
                is one, and else a new training. They are looked for where this trainer's checkpoint
                callbacks save, in this process or an earlier one. A file of Lightning 2.x is taken
                too; from inside an epoch that is not exact, which is warned of.
        """
        path = self._found(ckpt_path, "fit", model)
        self._run(Job("fit", model, datamodule, train_dataloaders, val_dataloaders, path))

    def validate(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: DataModule | None = None,
    ) -> list[dict[str, float]]:
        """Run validation on its own; return the metrics of each loader.

        Args:
            model: the module; that of the last run unless given.
            dataloaders: one, or a list of them.
            ckpt_path: a checkpoint whose weights are loaded first: a path, `"last"` or `"best"`,
                as for `fit`.
            verbose: whether to print the metrics.
            datamodule: what has the loaders, instead.
        """
        return self._evaluate("validate", model, dataloaders, ckpt_path, verbose, datamodule)

    def test(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        ckpt_path: str | os.PathLike[str] | None = None,
        verbose: bool = True,
        datamodule: DataModule | None = None,
    ) -> list[dict[str, float]]:
        """Run the test; return the metrics of each loader. The arguments are `validate`'s."""
        return self._evaluate("test", model, dataloaders, ckpt_path, verbose, datamodule)

    def predict(
        self,
        model: Module | None = None,
        dataloaders: Any = None,
        datamodule: DataModule | None = None,
        return_predictions: bool = True,
        ckpt_path: str | os.PathLike[str] | None = None,
    ) -> list[Any] | None:
        """Predict; return what the steps returned, in a list a loader where there are several."""
        module, path = self._chosen(model, ckpt_path, "predict")
        job = Job(
            "predict",
            module,
            self._datamodule(dataloaders, datamodule),
            evaluation=dataloaders,
            ckpt_path=path,
            keeps_predictions=return_predictions,
        )
        predictions: list[Any] | None = self._run(job)
        return predictions

    def save_checkpoint(self, filepath: str | os.PathLike[str], weights_only: bool = False) -> None:
        """Write a checkpoint, whole or not at all.

        Args:
            filepath: where; its folder is made. One that ends in `.safetensors` is written as such,
                with the weights and the hyperparameters that JSON can hold.
            weights_only: leave out what a resume needs beyond the weights; a `.safetensors` file
                must.

        Raises:
            UsageError: a `.safetensors` file is to hold more than weights, or nothing was run yet.
            CheckpointStateError: a state cannot be loaded back safely; it is named.
            CheckpointError: it cannot be written.
        """
        snapshot.save(self._session, self, filepath, weights_only)

    def save_in_background(
        self, *filepaths: str | os.PathLike[str], weights_only: bool = False
    ) -> BackgroundSave:
        """Save as things are now, and go on while the same promises are kept by another thread.

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
        return snapshot.save_in_background(self._session, self, filepaths, weights_only)

    def finish_saves(self) -> None:
        """Wait until what is saved in the background is durable, and tell the callbacks.

        Raises:
            CheckpointError: it could not be written.
        """
        self._session.background.finish()

    def _tell_saved(self, path: str) -> None:
        snapshot.tell_saved(self._session, self, path)

    def trial_run(self, *callbacks: Callback, steps: int, validates: bool = False) -> None:
        """Run a few batches of what is about to be run, and leave everything as it was.

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
        run_trial(self._begin_beside, self._session, callbacks, steps, validates=validates)

    def rehearsal(self, *callbacks: Callback) -> Self:
        """Return a trainer like this one in which nothing was run yet.

        It has the same options and device; `callbacks` are its only ones, and it has no loggers.
        """
        return self._twin(self._session.for_trial(self._session.plan, callbacks))

    def _begin_beside(self, kind: type[Run], session: Session, job: Job) -> Run:
        twin = self._twin(session)
        return kind(session, twin, job, overridden_losses(twin))

    def _twin(self, session: Session) -> Self:
        twin = copy.copy(self)
        twin._session = session  # noqa: SLF001 - it is of this class
        return twin

    def close(self) -> None:
        """Finish saves, let the callbacks flush, close and back up; a second time does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        hooks, module = self._session.connector.relay, self._session.module
        fault: BaseException | None = None
        steps: list[tuple[Any, tuple[Any, ...]]] = [
            (self.finish_saves, ()),
            (hooks.on_close, (self, module)),
            (hooks.on_post_close, (self, module)),
        ]
        for step, arguments in steps:
            try:
                step(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised below, once all have run
                if fault is None:
                    fault = error
                else:
                    fault.add_note(f"and then: {describe_error(error)}")
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
            error.add_note(f"and then, while closing: {describe_error(fault)}")

    def _run(self, job: Job) -> Any:
        if self._session.state.fn is not None:
            raise UsageError(
                f"{job.fn} was called inside {self._session.state.fn} of the same trainer: use "
                "another Trainer for it, or call it afterwards."
            )
        run = Run(self._session, self, job, overridden_losses(self))
        occupation = self._session.occupation
        occupation.begin(f"{job.fn} of {type(job.module).__qualname__} (Trainer at {id(self):#x})")
        try:
            occupation.take(self._session.connector.entries)
        except CallbackError:
            occupation.release()
            raise
        result = None
        try:
            loop = run.prepare()
            result = loop.run()
            run.complete()
        except StopTraining as request:
            run.stop_in_order(request)
        except BaseException as error:
            run.fail(error)
            raise
        finally:
            try:
                run.close()
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
            self._run(Job(fn, module, owner, evaluation=dataloaders, ckpt_path=path)) or []
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
        module = self._session.module if model is None else model
        if module is None:
            raise UsageError("no model was given, and this trainer has run none yet: pass model=.")
        return module, self._found(ckpt_path, fn, module)

    def _datamodule(self, loaders: Any, datamodule: DataModule | None) -> DataModule | None:
        """Return the data module to use: that of the last run if nothing else was given."""
        return self._session.datamodule if datamodule is None and loaders is None else datamodule

    def _found(
        self, ckpt_path: str | os.PathLike[str] | None, fn: str, module: Module
    ) -> str | None:
        """Return the path that `ckpt_path` stands for."""
        self._session.start.named_path = None
        if ckpt_path is None:
            return None
        if ckpt_path not in ("auto", "best", "last"):
            self._session.start.named_path = located(ckpt_path)
            return self._session.start.named_path
        return find_checkpoint(self, str(ckpt_path), fn, type(module).__name__)

    def describe_hooks(
        self, model: Module | None = None, fn: str | None = None, *, file: TextIO | None = None
    ) -> None:
        """Print the loop as a tree: at each hook who listens, in order, and who supplied it.

        Nothing is run and nothing is changed, so it can be called before any training.

        Args:
            model: the module to show with what it brings; that of the last run unless given.
            fn: `"fit"`, `"validate"`, `"test"` or `"predict"` for that part alone.
            file: where to; standard output unless given. A terminal gets a drawn tree.

        Raises:
            UsageError: there is no such `fn`.
        """
        tree = description.describe(self, self._session.connector, model, fn)
        if self.is_global_zero:
            show_tree(tree, file=file)

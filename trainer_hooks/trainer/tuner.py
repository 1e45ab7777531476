"""Tuner: find a learning rate or a batch size for a module before it is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks._options import answers_keywords, check_option, one_of
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.tuning.batch_size_finder import BatchSizeFinder
from trainer_hooks.callbacks.tuning.lr_finder import STEPS, LearningRateFinder
from trainer_hooks.errors import StopTraining, UsageError
from trainer_hooks.hooks.band import Band
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.state_backup import StateBackup
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    from trainer_hooks.callbacks.tuning.lr_finder import LRFinderResult

_WHERE = "Tuner"
_METHODS = ("fit", "validate", "test", "predict")


class Tuner:
    """Finds a learning rate or a batch size for a module, with the options of a trainer.

    ::

        tuner = Tuner(trainer)
        tuner.scale_batch_size(module, mode="binsearch")
        tuner.lr_find(module).plot(suggest=True)
        trainer.fit(module)

    The trainer itself runs nothing: its counters, metrics and loggers do not change, and none of
    its callbacks takes part. The result is set in the module or data module. Everything else of
    them is restored: weights, attributes, hyperparameters; and so is the random state.

    Args:
        trainer: the trainer whose options are used.

    Raises:
        UsageError: `trainer` is no Trainer.
    """

    @answers_keywords
    def __init__(self, trainer: Trainer) -> None:
        if not isinstance(trainer, Trainer):
            raise UsageError(
                f"{_WHERE}({trainer!r}): it must be given a trainer_hooks.Trainer. Make one with "
                "the options of the training."
            )
        self._trainer = trainer

    def lr_find(
        self,
        model: Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: DataModule | None = None,
        method: str = "fit",
        min_lr: float = 1e-8,
        max_lr: float = 1,
        num_training: int = 100,
        mode: str = "exponential",
        early_stop_threshold: float | None = 4.0,
        update_attr: bool = True,
        attr_name: str = "",
    ) -> LRFinderResult | None:
        """Try growing learning rates, and set the one at which the loss falls most steeply.

        Args:
            model: the module.
            train_dataloaders: the training loader, or several.
            val_dataloaders: without effect; nothing is validated.
            dataloaders: must be left out; it is for other methods than `"fit"`.
            datamodule: a data module, instead of loaders.
            method: `"fit"`.
            min_lr: the first learning rate.
            max_lr: the last learning rate.
            num_training: the number of steps to try.
            mode: `"exponential"` or `"linear"`: how the learning rate grows.
            early_stop_threshold: end the search when the loss exceeds so many times the lowest
                loss; None for never.
            update_attr: whether to set the learning rate in the module.
            attr_name: the attribute or hyperparameter that holds it; by default `lr` or
                `learning_rate`.

        Returns:
            The result of the search; None in a dry run (`fast_dev_run`).

        Raises:
            OptionError: an argument breaks its rule.
            UsageError: the method is another one, or the trainer has a LearningRateFinder.
        """
        if method != "fit":
            raise UsageError(
                f"method {method!r} of {_WHERE}.lr_find: a learning rate is for training, so it "
                "must be 'fit'. Leave it out."
            )
        # here, since the finder's own name for it is another one
        check_option("num_training", num_training, f"{_WHERE}.lr_find", STEPS)
        finder = LearningRateFinder(
            min_lr, max_lr, num_training, mode, early_stop_threshold, update_attr, attr_name
        )
        self._run(finder, model, "fit", train_dataloaders, val_dataloaders, dataloaders, datamodule)
        # once more: the backup has restored the attribute that the finder set in the run
        if update_attr and finder.chosen is not None:
            ours(finder).tuned_attribute(model, datamodule).write(finder.chosen)
        return finder.optimal_lr

    def scale_batch_size(
        self,
        model: Module,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: DataModule | None = None,
        method: str = "fit",
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.05,
        max_val: int = 8192,
    ) -> int | None:
        """Try growing batch sizes, and set the largest that fits into memory.

        Args:
            model: the module.
            train_dataloaders: must be left out: the loaders must come from the module or data
                module, which make them with the batch size.
            val_dataloaders: likewise.
            dataloaders: likewise.
            datamodule: the data module that has the loaders, if the module has none.
            method: the function to run: `"fit"`, `"validate"`, `"test"` or `"predict"`.
            mode: `"power"` or `"binsearch"`.
            steps_per_trial: the number of batches to run of each size.
            init_val: the first size.
            max_trials: the number of sizes to try at most.
            batch_arg_name: the attribute or hyperparameter that holds the size.
            margin: the share by which the size is reduced in the end, with `"binsearch"`.
            max_val: the largest size to try.

        Returns:
            The size; None in a dry run (`fast_dev_run`).

        Raises:
            OptionError: an argument breaks its rule.
            UsageError: loaders were passed, the trainer has a BatchSizeFinder, or no size fits.
        """
        check_option("method", method, f"{_WHERE}.scale_batch_size", one_of(*_METHODS))
        finder = BatchSizeFinder(
            mode, steps_per_trial, init_val, max_trials, batch_arg_name, margin, max_val
        )
        self._run(
            finder, model, method, train_dataloaders, val_dataloaders, dataloaders, datamodule
        )
        # once more, as in `lr_find`
        if finder.optimal_batch_size is not None:
            ours(finder).tuned_attribute(model, datamodule).write(finder.optimal_batch_size)
        return finder.optimal_batch_size

    def _run(
        self,
        finder: LearningRateFinder | BatchSizeFinder,
        model: Module,
        method: str,
        train: Any,
        val: Any,
        loaders: Any,
        datamodule: DataModule | None,
    ) -> None:
        """Run a finder in a run of its own, which ends when the finder is done."""
        if isinstance(train, DataModule):
            train, datamodule = None, train
        kind = type(finder)
        if any(isinstance(callback, kind) for callback in self._trainer.callbacks):
            raise UsageError(
                f"{_WHERE} with a trainer that has a {kind.__name__}: both would do the same. "
                "Leave one of them out."
            )
        misplaced = loaders if method == "fit" else (train if train is not None else val)
        if misplaced is not None:
            name = "train_dataloaders= and val_dataloaders=" if method == "fit" else "dataloaders="
            raise UsageError(
                f"{_WHERE} was given other loaders than {method} takes: pass them as {name}."
            )
        trainer = self._trainer.rehearsal(finder, _EndOfRehearsal())
        owner = datamodule if isinstance(datamodule, DataModule) else None
        module = model if isinstance(model, Module) else None
        with rng.isolated(), StateBackup(module, owner):
            if method == "fit":
                trainer.fit(model, train, val, datamodule)
            elif method == "validate":
                trainer.validate(model, loaders, verbose=False, datamodule=datamodule)
            elif method == "test":
                trainer.test(model, loaders, verbose=False, datamodule=datamodule)
            else:
                trainer.predict(model, loaders, datamodule, return_predictions=False)
        if owner is not None:
            self._trainer.datamodule = owner


class _EndOfRehearsal(Callback):
    """Ends a run before its first batch, after the finder, which is called earlier, is done."""

    # the finders are in TRANSFORM, and so have their turn at the same hook first
    band = Band.OBSERVE

    def on_fit_start(self, trainer: Any, module: Module) -> None:
        """End a fit before its first batch."""
        raise StopTraining("the rehearsal is over")

    on_validation_start = on_test_start = on_predict_start = on_fit_start

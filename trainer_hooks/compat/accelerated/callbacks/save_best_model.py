"""SaveBestModelCallback: one file with the best weights, which the module has at the end."""

from __future__ import annotations

from abc import ABCMeta
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.averaging.model_ema import ModelEmaCallback
from trainer_hooks.callbacks.metric_names import name_of_metric
from trainer_hooks.callbacks.monitoring import check_monitor, is_training
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.callbacks.saving.one_file import OneFile
from trainer_hooks.callbacks.saving.put_back import put_back
from trainer_hooks.callbacks.saving.saver_options import check_flags

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["SaveBestModelCallback"]


# a metaclass, so that ModelEmaCallback counts as one, as there, and does not stand on it
class SaveBestModelCallback(ModelCheckpoint, metaclass=ABCMeta):
    """Save to one file whenever an epoch is the best so far, and end with the best weights.

    It looks at the end of each epoch, after its validation. The file is a checkpoint like that of
    `ModelCheckpoint`, whose machinery it is, and replaces the one before, whole or not at all. When
    the fit is over the module gets the best weights, and the optimizers and schedulers what they
    were then, if they were saved. `eval_loss_epoch` stands for `val_loss`, and `train_loss_epoch`
    for `train_loss`, where nothing of that name was logged.

    Args:
        save_path: the file; a relative path is one in the present folder.
        watch_metric: the metric that says which epoch is the best.
        greater_is_better: whether larger values are better.
        reset_on_train: whether each call of `fit` begins anew, unless it resumes a checkpoint;
            otherwise only a better epoch than those of earlier fits replaces the file.
        save_optimizer: whether the file can be resumed from: optimizers, schedulers, counters and
            callbacks beside the weights.
        save_scheduler: likewise; they are saved together if one of the two is True.
        load_saved_checkpoint: whether the best is loaded when the fit is over.

    Attributes:
        watch_metric: as given.
        reset_on_train: as given.
        load_saved_checkpoint: as given.

    State: as `ModelCheckpoint`: the path and the score of the best.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, the metric was not logged or is no single number.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import SaveBestModelCallback

        saver = SaveBestModelCallback("best.pt", watch_metric="val_acc", greater_is_better=True)
        trainer = Trainer(max_epochs=2, callbacks=[saver])
        trainer.fit(module, train_loader, val_loader)
        print(saver.best_model_path, saver.best_model_score)
    """

    def __init__(
        self,
        save_path: str | os.PathLike[str] = "best_model.pt",
        watch_metric: str = "eval_loss_epoch",
        greater_is_better: bool = False,
        reset_on_train: bool = True,
        save_optimizer: bool = True,
        save_scheduler: bool = True,
        load_saved_checkpoint: bool = True,
    ) -> None:
        where = type(self).__name__
        check_flags(
            where,
            greater_is_better=greater_is_better,
            reset_on_train=reset_on_train,
            save_optimizer=save_optimizer,
            save_scheduler=save_scheduler,
            load_saved_checkpoint=load_saved_checkpoint,
        )
        self.watch_metric = check_monitor(watch_metric, where)
        self._file = OneFile(save_path, where)
        super().__init__(
            self._file.folder,
            monitor=watch_metric,
            mode="max" if greater_is_better else "min",
            save_weights_only=not (save_optimizer or save_scheduler),
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        )
        self.FILE_EXTENSION = self._file.suffix
        self._watched.found_as = name_of_metric
        self.reset_on_train = reset_on_train
        self.load_saved_checkpoint = load_saved_checkpoint

    @property
    def state_key(self) -> str:
        """The class with what it watches, which values are better, and the file's name."""
        return self._generate_state_key(
            watch_metric=self.watch_metric,
            mode=self.mode,
            name=self._file.stem + self.FILE_EXTENSION,
        )

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin anew, or go on."""
        is_resumed = trainer.ckpt_path is not None
        if self.reset_on_train and not is_resumed:
            self.forget()
        elif is_resumed or not trainer.progress.is_fresh:
            super().on_fit_start(trainer, module)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Load the best, unless something broke the fit off."""
        path = self.best_model_path
        wanted = self.load_saved_checkpoint and path and is_training(trainer)
        if not wanted or trainer.interrupted:
            return
        put_back(trainer, module, path)

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the file, if it is there, and what was saved for now before leaving."""
        path, found = self.format_checkpoint_name(), super().candidates(trainer)
        return self._file.among(path, found, self.CHECKPOINT_NAME_PREEMPTED)

    def format_checkpoint_name(
        self,
        metrics: Mapping[str, Any] | None = None,
        filename: str | None = None,
        ver: int | None = None,
    ) -> str:
        """Return the path of the file whatever the metrics, or that of another one beside it."""
        if filename is None:
            metrics, filename = {}, self._file.stem
        return super().format_checkpoint_name(metrics or {}, filename, ver)


SaveBestModelCallback.register(ModelEmaCallback)

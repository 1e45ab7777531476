"""Callbacks of pytorch-accelerated that save: SaveBestModel and SaveTrainingState."""

from __future__ import annotations

import operator
from abc import ABCMeta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._options import FLAG, METRIC_NAME, check_option, whole_number
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.callbacks.base import is_real_fit
from trainer_hooks.callbacks.monitored_metric import resolve_metric_name
from trainer_hooks.callbacks.saver_base import (
    FixedSavePath,
    SavePlan,
    Saver,
    check_dirpath,
    check_flags,
    restore_weights_and_optimizers,
)
from trainer_hooks.compat.accelerated.built_in_callback import built_in
from trainer_hooks.compat.accelerated.callbacks.model_ema import ModelEmaCallback
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import OptionError
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    import os

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["SaveBestModelCallback", "SaveTrainingStateCallback"]


# ModelEmaCallback is a subclass there: with this metaclass it is registered as one for isinstance,
# without the machinery of a ModelCheckpoint
@partial(
    built_in,
    works_at={
        "on_training_run_epoch_end": ("on_epoch_checkpoint",),
        "on_training_run_end": ("on_fit_end",),
    },
    works_anyway_at=("on_training_run_start",),
)
class SaveBestModelCallback(ModelCheckpoint, metaclass=ABCMeta):
    """Save to one file whenever an epoch is the best so far, and end with the best weights.

    It compares at the end of each epoch, after its validation. The file is a checkpoint like those
    of `ModelCheckpoint`, from which the class derives, and replaces the one before, whole or not at
    all. When the fit is over the best weights are loaded into the module, and the states of the
    optimizers and schedulers too, if they were saved. `eval_loss_epoch` stands for `val_loss`, and
    `train_loss_epoch` for `train_loss`, where nothing of that name was logged.

    Args:
        save_path: the file; a relative path is one in the present folder.
        watch_metric: the metric that says which epoch is the best.
        greater_is_better: whether larger values are better.
        reset_on_train: whether each call of `fit` begins anew, unless it resumes a checkpoint;
            otherwise only a better epoch than those of earlier fits replaces the file.
        save_optimizer: whether the file can be resumed from: optimizers, schedulers, counters and
            callbacks beside the weights; otherwise it holds the weights alone.
        save_scheduler: without effect: the scheduler is saved with the optimizer.
        load_saved_checkpoint: whether the best is loaded when the fit is over.

    Attributes:
        watch_metric: as given.
        reset_on_train: as given.
        load_saved_checkpoint: as given.
        save_path: the file.
        save_optimizer: as given.
        save_scheduler: as given.
        greater_is_better: as given.
        operator: `operator.gt` or `operator.lt`, by which a value is better than the best.
        best_metric_epoch: the number of the best epoch, from 1 on; None before the first.

    State: as `ModelCheckpoint`: the path and the score of the best; and its epoch.

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
        self.watch_metric = check_option("monitor", watch_metric, where, METRIC_NAME)
        self._file = file = FixedSavePath(save_path, where)
        super().__init__(
            file.folder,
            monitor=watch_metric,
            mode="max" if greater_is_better else "min",
            save_weights_only=not save_optimizer,
            # the one file is written over: no best_model-v1.pt beside it
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        )
        self.save_path = str(save_path)
        self.save_optimizer, self.save_scheduler = save_optimizer, save_scheduler
        self.greater_is_better = greater_is_better
        self.operator = operator.gt if greater_is_better else operator.lt
        self.best_metric_epoch: int | None = None
        self.FILE_EXTENSION = file.suffix
        self._watched.name_resolver = resolve_metric_name
        self.reset_on_train = reset_on_train
        self.load_saved_checkpoint = load_saved_checkpoint

    @property
    def state_key(self) -> str:
        """The class name with the metric, its direction and the file's name."""
        return self._generate_state_key(
            watch_metric=self.watch_metric,
            mode=self.mode,
            name=self._file_name,
        )

    @property
    def best_metric(self) -> float | None:
        """The best value so far; None before the first."""
        return None if self.best_model_score is None else float(self.best_model_score)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a `ModelCheckpoint`, and the best epoch."""
        return {**super().state_dict(), "best_metric_epoch": self.best_metric_epoch}

    @checks_state({}, {"best_metric_epoch": int | None})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state."""
        state = dict(state_dict)
        best_epoch = state.pop("best_metric_epoch", None)
        super().load_state_dict(state)  # first, since it may refuse the state
        self.best_metric_epoch = best_epoch

    def forget(self) -> None:
        """Reset for a new training. Files of an earlier one stay."""
        super().forget()
        self.best_metric_epoch = None

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if the epoch is the best so far."""
        before = self.best_model_score
        super().on_epoch_checkpoint(trainer, module)
        if self.best_model_score is not before:
            self.best_metric_epoch = trainer.history.current_epoch

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the best score, unless this fit resumes or continues another."""
        is_resumed = trainer.ckpt_path is not None
        if self.reset_on_train and not is_resumed:
            self.forget()
        elif not trainer.progress.is_new_training:
            super().on_fit_start(trainer, module)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Load the best weights, unless an exception ended the fit."""
        path = self.best_model_path
        if not self.load_saved_checkpoint or not path or trainer.interrupted:
            return
        if is_real_fit(trainer):
            restore_weights_and_optimizers(trainer, module, path)


SaveBestModelCallback.register(ModelEmaCallback)


_WHERE = "SaveTrainingStateCallback"


@partial(
    built_in,
    works_at={
        "on_train_step_end": ("on_batch_checkpoint",),
        "on_train_epoch_end": ("on_epoch_checkpoint",),
    },
    works_anyway_at=("on_training_run_start", "on_training_run_end"),
)
class SaveTrainingStateCallback(Saver):
    """Save a full checkpoint every few epochs or steps, and at the end of the training.

    The files are `epoch_3.ckpt`, `step_500.ckpt` and `final.ckpt`: the number is of the epochs or
    steps that are done. `fit(ckpt_path=...)` goes on from any of them: a run of three epochs that
    is resumed from `epoch_2.ckpt` trains the third, and no more. A step is one of the optimizer,
    however many batches it takes. A file of the same name is written over.

    Args:
        save_dir: the folder.
        save_every_n_epochs: how many epochs lie between two files; no file by epochs unless given.
        save_every_n_steps: how many steps do; no file by steps unless given.
        save_at_end: whether `final.ckpt` is written.
        max_checkpoints: how many of the newest are kept, `final.ckpt` not counted; all unless
            given. What was kept is part of the state, so a resumed run goes on with it.

    Attributes:
        save_every_n_epochs: as given.
        save_every_n_steps: as given.
        save_at_end: as given.
        max_checkpoints: as given.

    Raises:
        OptionError: an argument is outside its rule, or nothing would ever be saved.

    State: which files it keeps, and when it saved last.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import SaveTrainingStateCallback

        def trainer_of(epochs):
            saver = SaveTrainingStateCallback("states", save_every_n_epochs=1, max_checkpoints=1)
            return Trainer(max_epochs=epochs, callbacks=[saver])

        trainer_of(2).fit(module, train_loader, val_loader)
        trainer_of(3).fit(module, train_loader, val_loader, ckpt_path="states/epoch_2.ckpt")
    """

    def __init__(
        self,
        save_dir: str | os.PathLike[str] = "training_states",
        save_every_n_epochs: int | None = None,
        save_every_n_steps: int | None = None,
        save_at_end: bool = True,
        max_checkpoints: int | None = None,
    ) -> None:
        for name, number in (
            ("save_every_n_epochs", save_every_n_epochs),
            ("save_every_n_steps", save_every_n_steps),
            ("max_checkpoints", max_checkpoints),
        ):
            if number is not None:
                check_option(name, number, _WHERE, whole_number(1))
        check_option("save_at_end", save_at_end, _WHERE, FLAG)
        if not (save_every_n_epochs or save_every_n_steps or save_at_end):
            raise OptionError(
                f"save_at_end {save_at_end!r} of {_WHERE}: without save_every_n_epochs and "
                "save_every_n_steps nothing would ever be saved. Pass one of them."
            )
        super().__init__(check_dirpath(save_dir, _WHERE))
        self.save_every_n_epochs = save_every_n_epochs
        self.save_every_n_steps = save_every_n_steps
        self.save_at_end = save_at_end
        self.max_checkpoints = max_checkpoints

    @property
    def state_key(self) -> str:
        """The class name with both intervals, in which two instances differ."""
        return self._generate_state_key(
            save_every_n_epochs=self.save_every_n_epochs, save_every_n_steps=self.save_every_n_steps
        )

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if the number of steps is a multiple of `save_every_n_steps`."""
        every, done = self.save_every_n_steps, trainer.progress.batches_stepped
        # each batch of a window comes here, with the same number of steps
        if every and done and done % every == 0 and done != self.store.ranking.saved_step:
            self._save(trainer, f"step_{done}")

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if the number of epochs is a multiple of `save_every_n_epochs`."""
        done = trainer.current_epoch + 1
        if self.save_every_n_epochs and done % self.save_every_n_epochs == 0:
            self._save(trainer, f"epoch_{done}")

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Save `final.ckpt`."""
        if self.save_at_end and is_real_fit(trainer):
            ranking, path = self.store.ranking.copy(), self.format_checkpoint_name({}, "final")
            # not among those that max_checkpoints counts
            ranking.last_model_path = path
            self.store.write(trainer, SavePlan((path,)), ranking)

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save because `trainer.request_checkpoint()` was called."""
        self._save(trainer, f"step_{trainer.progress.batches_stepped}")

    def _save(self, trainer: Trainer, name: str) -> None:
        """Save a file, and remove the oldest files beyond `max_checkpoints`."""
        if not is_real_fit(trainer):
            return
        # on a copy, which the writer takes over when the file is whole
        ranking, path = self.store.ranking.copy(), self.format_checkpoint_name({}, name)
        keep = -1 if self.max_checkpoints is None else self.max_checkpoints
        ranking.best_k_models.pop(path, None)  # a file of the same name is overwritten
        replaced = ranking.outranked(keep)
        # ranked by the batches trained, so that the oldest gives way
        ranking.add(path, torch.tensor(trainer.progress.batches_completed), keep)
        ranking.saved_step = trainer.progress.batches_stepped
        self.store.write(trainer, SavePlan((path,), tuple(replaced)), ranking)

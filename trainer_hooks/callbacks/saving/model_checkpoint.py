"""ModelCheckpoint: save checkpoints as the training goes, and keep the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trainer_hooks.callbacks.monitoring import check_choice, check_monitor
from trainer_hooks.callbacks.saving import shown
from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.callbacks.saving.folder import Folder
from trainer_hooks.callbacks.saving.ledger import Ledger
from trainer_hooks.callbacks.saving.names import FileNames
from trainer_hooks.callbacks.saving.planner import Planner
from trainer_hooks.callbacks.saving.saved_files import remove_or_warn
from trainer_hooks.callbacks.saving.saver_options import (
    check_dirpath,
    check_filename,
    check_flags,
    check_top_k,
)
from trainer_hooks.callbacks.saving.saves import Saves
from trainer_hooks.callbacks.saving.triggers import Schedule, Triggers
from trainer_hooks.callbacks.saving.writer import Writer
from trainer_hooks.callbacks.saving.yaml_file import write_best
from trainer_hooks.callbacks.watched_metric import WatchedMetric
from trainer_hooks.checkpoint import exists

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from datetime import timedelta

    from torch import Tensor

    from trainer_hooks.clock import Time, When
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ModelCheckpoint"]

_WHERE = "ModelCheckpoint"


class ModelCheckpoint(Checkpoint):
    """Save checkpoints as the training goes, and keep the best.

    A new file is durable before an old one is removed. Only files of its own folder are removed,
    and never the one that the run was resumed from. A name that is taken gets a version: `-v1`.

    Args:
        dirpath: the folder, or an address such as `s3://bucket/run`; by default `checkpoints` in
            the logger's folder, or without a logger in `default_root_dir`.
        filename: template with metrics, such as `"{epoch}-{val_loss:.2f}"`; without a suffix.
        monitor: the metric that ranks checkpoints; without one the newest counts as the best.
        verbose: whether each decision is logged at level INFO.
        save_last: True to save each time a second file, `last.ckpt`; `"link"` to make it a link to
            the newest of the best. Where epochs set off the saves, it is saved after each epoch,
            whatever `every_n_epochs` is, so that it is never further behind than that.
        save_top_k: how many of the best to keep: -1 all, 0 none; without a monitor -1, 0 or 1.
        save_on_exception: whether whatever breaks a fit off, Ctrl-C too, leaves a checkpoint,
            `exception-epoch=E-step=S.ckpt`, under `last_exception_path`. SIGTERM always does.
        save_weights_only: leave out what only a resume needs.
        mode: `"min"` or `"max"`: which values of `monitor` are better. NaN is never the best.
        auto_insert_metric_name: whether `{epoch}` becomes `epoch=3` or `3`.
        every_n_train_steps: save after every so many optimizer steps.
        train_time_interval: save when so much time has passed: `"30m"`, a `Time` or a timedelta.
        every_n_epochs: save after every so many epochs; 1 where no trigger is given. These three
            and `save_interval` exclude each other; 0 switches one off.
        save_on_train_epoch_end: whether `every_n_epochs` acts at the end of the training epoch
            (True) or after each validation (False); by default the former where each epoch has
            one validation, at its end, and where there is none.
        enable_version_counter: False to write over a file whose name is taken.
        async_save: whether files are written in the background: the training is held while the
            state is copied in memory, and as long as the save before is still being written. A
            failure is raised at the next save; the end of a run waits for what is under way. What
            `save_on_exception` writes is waited for.
        save_interval: save when `"500ba"`, `"1e6tok"`, `"0.1dur"`, a `Time`, a filter or a function
            of `trainer.clock` says, which is asked at the end of each batch and epoch.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, `monitor` was not logged or is no single number.

    State: paths and scores of the best checkpoints, the last path, and what is under way. Where the
    folder is another one than the checkpoint's, only `best_model_path` is taken over.

    Example::

        saver = ModelCheckpoint(monitor="val_loss", save_top_k=3, filename="{epoch}-{val_loss:.2f}")
        trainer = Trainer(max_epochs=2, callbacks=[saver])
        trainer.fit(module, train_loader, val_loader)
        trainer.validate(module, val_loader, ckpt_path=saver.best_model_path)
    """

    CHECKPOINT_JOIN_CHAR: str = "-"
    CHECKPOINT_EQUALS_CHAR: str = "="
    CHECKPOINT_NAME_LAST: str = "last"
    CHECKPOINT_NAME_EXCEPTION: str = "exception-{epoch}-{step}"
    CHECKPOINT_NAME_PREEMPTED: str = "preempted-{epoch}-{step}"
    FILE_EXTENSION: str = ".ckpt"
    STARTING_VERSION: int = 1

    best_model_path = shown.best_model_path
    best_model_score = shown.best_model_score
    best_k_models = shown.best_k_models
    kth_best_model_path = shown.kth_best_model_path
    kth_value = shown.kth_value
    last_model_path = shown.last_model_path
    current_score = shown.current_score

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        verbose: bool = False,
        save_last: bool | Literal["link"] | None = None,
        save_top_k: int = 1,
        save_on_exception: bool = False,
        save_weights_only: bool = False,
        mode: str = "min",
        auto_insert_metric_name: bool = True,
        every_n_train_steps: int | None = None,
        train_time_interval: str | Time | timedelta | None = None,
        every_n_epochs: int | None = None,
        save_on_train_epoch_end: bool | None = None,
        enable_version_counter: bool = True,
        async_save: bool = False,
        save_interval: When | int | None = None,
    ) -> None:
        check_flags(
            _WHERE,
            verbose=verbose,
            save_on_exception=save_on_exception,
            save_weights_only=save_weights_only,
            auto_insert_metric_name=auto_insert_metric_name,
            enable_version_counter=enable_version_counter,
            async_save=async_save,
        )
        if save_on_train_epoch_end is not None:
            check_flags(_WHERE, save_on_train_epoch_end=save_on_train_epoch_end)
        self.dirpath = check_dirpath(dirpath, _WHERE)
        self.filename = check_filename(filename, _WHERE)
        self.save_weights_only = save_weights_only
        self.mode: str = check_choice("mode", mode, _WHERE)
        self.auto_insert_metric_name = auto_insert_metric_name
        self.enable_version_counter = enable_version_counter
        self.async_save = async_save
        self.monitor = None if monitor is None else check_monitor(monitor, _WHERE)
        self.save_top_k = check_top_k(save_top_k, monitor, _WHERE)
        self.save_last = check_choice("save_last", save_last, _WHERE, (None, True, False, "link"))
        self.verbose = verbose
        self.save_on_exception = save_on_exception
        self.last_exception_path = ""
        self._schedule = Schedule(
            Triggers.chosen(
                every_n_train_steps, every_n_epochs, train_time_interval, _WHERE, save_interval
            ),
            save_on_train_epoch_end,
        )
        self.ledger = Ledger(mode)
        self._folder = Folder(self)
        self._names = FileNames(self)
        self._watched = WatchedMetric(monitor, type(self).__name__)
        self._writer = Writer(self)
        planner = Planner(self, self._names, self._watched)
        self._saves = Saves(self, self._names, planner, self._writer)

    @property
    def state_key(self) -> str:
        """The class with what tells two instances apart: the monitor and the trigger."""
        triggers = self._schedule.triggers
        when = triggers.save_interval
        chosen = {} if when is None else {"save_interval": repr(when)}
        return self._generate_state_key(
            monitor=self.monitor,
            mode=self.mode,
            every_n_train_steps=triggers.every_n_train_steps,
            every_n_epochs=triggers.every_n_epochs,
            train_time_interval=triggers.train_time_interval,
            **chosen,
        )

    @property
    def every_n_epochs(self) -> int:
        """How many epochs lie between two saves; 0 where steps or time set them off."""
        return self._schedule.triggers.every_n_epochs

    def state_dict(self) -> dict[str, Any]:
        """Return the books, the folder, and what is under way."""
        return {
            "monitor": self.monitor,
            **self._writer.state_dict(),
            **self._schedule.state_dict(),
            "is_monitor_validated": self._watched.is_validated,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned; of another folder's books only the best path."""
        self._writer.load_state_dict(state_dict)
        self._schedule.load_state_dict(state_dict)
        self._watched.is_validated = state_dict.get("is_monitor_validated", False)

    def forget(self) -> None:
        """Forget an earlier training. Its files stay."""
        self._writer.forget()
        self._schedule.reset()
        self.last_exception_path = ""

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Resolve the default folder."""
        self._folder.resolve(trainer)
        self._writer.is_to_save = stage == "fit"

    @property
    def has_named_folder(self) -> bool:
        """Whether it was given a folder."""
        return self._folder.is_given

    def folders(self) -> list[str]:
        """Return its folder, once it is known."""
        return [] if self.dirpath is None else [self.dirpath]

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in its folder; in one that is new, those of earlier runs."""
        return self._folder.files(trainer)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Open new books for a new training; go on with an earlier one's where it was cut."""
        if trainer.progress.is_fresh:
            self.forget()
        else:
            self._writer.tidy(trainer)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start counting."""
        self._schedule.start(trainer)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Note the monitor's value, to see whether validation is what logs it."""
        self._watched.note_validation_start(trainer)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """See whether validation is what logs the monitor; the sanity check tells it too."""
        self._watched.note_validation_end(trainer)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if it is due by count, by time, or after the validation that just ran."""
        is_due = self._schedule.is_due_after_batch(trainer, self.ledger)
        if is_due and self.save_top_k != 0 and self._watched.is_to_come(trainer):
            self._schedule.defer(trainer)
        elif is_due is not None:
            self._saves.save_in_turn(trainer, is_due)

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if it is due by epochs, or was put off until the epoch's validation had run."""
        is_due = self._schedule.is_due_after_epoch(trainer)
        is_new = trainer.progress.batches_completed != self.ledger.books.considered_at
        if is_new and is_due is not None:
            self._saves.save_in_turn(trainer, is_due)

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Link to what is now durable, and remove what it replaces."""
        self._writer.settle(trainer, str(path))

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save beside the others, because `trainer.request_checkpoint()` was called."""
        self._saves.save_on_request(trainer)

    def save_before_leaving(self, trainer: Trainer, module: Module) -> bool:
        """Save the last checkpoint, or without one `preempted-epoch=E-step=S.ckpt`, for now."""
        return self._saves.save_for_now(trainer)

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Save where the training stands, unless nothing was trained since it began."""
        if self.save_on_exception and self._schedule.has_trained(trainer):
            self._saves.save_on_exception(trainer)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Forget where this fit began, and the names of files that could not be written."""
        self._schedule.stop()
        self.ledger.claims.release_all()

    def format_checkpoint_name(
        self, metrics: Mapping[str, Any], filename: str | None = None, ver: int | None = None
    ) -> str:
        """Return the path of a checkpoint with these metrics, inside `dirpath` if it is known.

        Args:
            metrics: numbers or one-element tensors; a missing one shows as `nan`.
            filename: template to use instead of this callback's own.
            ver: a version to append, as in `-v1`.
        """
        return self._names.path(metrics, filename, ver)

    def file_exists(self, filepath: str, trainer: Trainer) -> bool:
        """Return whether there is a file at a path or address."""
        return exists(filepath)

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Return whether a checkpoint with the score `current` would be among the best."""
        k = self.save_top_k
        return current is not None and k != 0 and self.ledger.books.admits(current, k)

    def to_yaml(self, filepath: str | os.PathLike[str] | None = None) -> None:
        """Write the best checkpoints and their scores to a YAML file, a line for each.

        Args:
            filepath: the file; `best_k_models.yaml` in `dirpath` unless given.

        Raises:
            UsageError: there is no folder yet, or it is no local one.
        """
        write_best(self.best_k_models, filepath, self.dirpath, type(self).__name__)

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Remove a file. Override it to move old checkpoints elsewhere instead."""
        remove_or_warn(path)

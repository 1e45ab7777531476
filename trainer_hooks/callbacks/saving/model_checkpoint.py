"""ModelCheckpoint: save checkpoints as the training goes, and keep the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trainer_hooks.callbacks.monitoring import check_choice, check_monitor, is_training
from trainer_hooks.callbacks.saving.ranked_saver import RankedSaver
from trainer_hooks.callbacks.saving.saver_options import (
    check_dirpath,
    check_filename,
    check_flags,
    check_top_k,
)
from trainer_hooks.callbacks.saving.triggers import Schedule, Triggers
from trainer_hooks.callbacks.watched_metric import nameable_metrics

if TYPE_CHECKING:
    import os
    from datetime import timedelta

    from trainer_hooks.clock import Time
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ModelCheckpoint"]

_WHERE = "ModelCheckpoint"


class ModelCheckpoint(RankedSaver):
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
        every_n_epochs: save after every so many epochs; 1 where no trigger is given. The three
            exclude each other; 0 switches one off.
        save_on_train_epoch_end: whether `every_n_epochs` acts at the end of the training epoch
            (True) or after each validation (False); by default the former where each epoch has
            one validation, at its end, and where there is none.
        enable_version_counter: False to write over a file whose name is taken.
        async_save: whether files are written in the background: the training is held while the
            state is copied in memory, and as long as the save before is still being written. A
            failure is raised at the next save; the end of a run waits for what is under way. What
            `save_on_exception` writes is waited for.

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

    CHECKPOINT_NAME_EXCEPTION: str = "exception-{epoch}-{step}"
    CHECKPOINT_NAME_PREEMPTED: str = "preempted-{epoch}-{step}"

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
    ) -> None:
        flags = {
            "verbose": verbose,
            "save_on_exception": save_on_exception,
            "save_weights_only": save_weights_only,
            "auto_insert_metric_name": auto_insert_metric_name,
            "enable_version_counter": enable_version_counter,
            "async_save": async_save,
        }
        if save_on_train_epoch_end is not None:
            flags["save_on_train_epoch_end"] = save_on_train_epoch_end
        check_flags(_WHERE, **flags)
        super().__init__(
            check_dirpath(dirpath, _WHERE),
            check_filename(filename, _WHERE),
            save_weights_only,
            check_choice("mode", mode, _WHERE),
            auto_insert_metric_name,
            enable_version_counter,
            async_save,
            monitor=None if monitor is None else check_monitor(monitor, _WHERE),
            save_top_k=check_top_k(save_top_k, monitor, _WHERE),
            save_last=check_choice("save_last", save_last, _WHERE, (None, True, False, "link")),
            verbose=verbose,
        )
        self.save_on_exception = save_on_exception
        self.last_exception_path = ""
        self._schedule = Schedule(
            Triggers.chosen(every_n_train_steps, every_n_epochs, train_time_interval, _WHERE),
            save_on_train_epoch_end,
        )
        self._batches_at_start: int | None = None

    @property
    def state_key(self) -> str:
        """The class with what tells two instances apart: the monitor and the trigger."""
        triggers = self._schedule.triggers
        return self._generate_state_key(
            monitor=self.monitor,
            mode=self.mode,
            every_n_train_steps=triggers.every_n_train_steps,
            every_n_epochs=triggers.every_n_epochs,
            train_time_interval=triggers.train_time_interval,
        )

    @property
    def every_n_epochs(self) -> int:
        """How many epochs lie between two saves; 0 where steps or time set them off."""
        return self._schedule.triggers.every_n_epochs

    def state_dict(self) -> dict[str, Any]:
        """Return the books, the folder, and what is under way."""
        return {
            "monitor": self.monitor,
            **super().state_dict(),
            **self._schedule.state_dict(),
            "is_monitor_validated": self._watched.is_validated,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned; of another folder's books only the best path."""
        super().load_state_dict(state_dict)
        self._schedule.load_state_dict(state_dict)
        self._watched.is_validated = state_dict.get("is_monitor_validated", False)

    def forget(self) -> None:
        """Forget an earlier training. Its files stay."""
        super().forget()
        self._schedule.reset()
        self.last_exception_path = ""

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start counting."""
        self._schedule.start(trainer)
        self._batches_at_start = trainer.progress.batches_completed

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Note the monitor's value, to see whether validation is what logs it."""
        self._watched.note_validation_start(trainer)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """See whether validation is what logs the monitor; the sanity check tells it too."""
        self._watched.note_validation_end(trainer)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if it is due by count, by time, or after the validation that just ran."""
        schedule = self._schedule
        if not schedule.watches_batches:
            return
        if schedule.is_due_after_batch(trainer, self._books.saved_step):
            if self.save_top_k != 0 and self._watched.is_to_come(trainer):
                schedule.defer(trainer)
            else:
                self._save(trainer)
        elif self.save_last and schedule.is_turn_after_batch(trainer):
            self._save(trainer, is_last_alone=True)

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if it is due by epochs, or was put off until the epoch's validation had run."""
        if trainer.progress.batches_completed == self._books.considered_at:
            return
        if self._schedule.is_due_after_epoch(trainer):
            self._save(trainer)
        elif self.save_last and self._schedule.is_turn_after_epoch(trainer):
            self._save(trainer, is_last_alone=True)

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save beside the others, because `trainer.request_checkpoint()` was called.

        The file is named as they are and stays: it is not ranked, and no later one replaces it. It
        moves `save_last`, and leaves the schedule as it is.
        """
        if not is_training(trainer):
            return
        metrics, books = nameable_metrics(trainer), self._books.copy()
        # never over another file, which may be among the best
        path = self.free_path(metrics, is_versioned=True)
        self._tell(trainer, f"saving {path!r} as requested")
        self.write(trainer, self._planned(path, [], metrics, books), books)

    def save_before_leaving(self, trainer: Trainer, module: Module) -> bool:
        """Save the last checkpoint, or without one `preempted-epoch=E-step=S.ckpt`, for now."""
        if not is_training(trainer):
            return False
        metrics, books = nameable_metrics(trainer), self._books.copy()
        if self.save_last is True and not self.save_weights_only:
            self.write(trainer, self._planned(None, [], metrics, books), books)
        else:
            path = self.free_path(metrics, self.CHECKPOINT_NAME_PREEMPTED, is_versioned=True)
            self.write_for_now(trainer, path)
        return True

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Save where the training stands, unless nothing was trained since it began."""
        start, done = self._batches_at_start, trainer.progress.batches_completed
        is_wanted = self.save_on_exception and start is not None and done > start
        if not is_wanted or not is_training(trainer):
            return
        path = self.free_path(nameable_metrics(trainer), self.CHECKPOINT_NAME_EXCEPTION)
        trainer.save_checkpoint(path, self.save_weights_only)
        self.last_exception_path = path

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Forget where this fit began."""
        self._batches_at_start = None

    def _save(self, trainer: Trainer, is_last_alone: bool = False) -> None:
        """Decide what this moment is worth: a place among the best, the last, or nothing."""
        if not is_training(trainer):
            return
        metrics, books = nameable_metrics(trainer), self._books.copy()
        books.considered_at = trainer.progress.batches_completed
        top, replaced = (None, []) if is_last_alone else self._enter_best(trainer, metrics, books)
        plan = self._planned(top, replaced, metrics, books)
        if not plan.files:
            self._books = books
            return
        books.saved_step = trainer.global_step
        self.write(trainer, plan, books)

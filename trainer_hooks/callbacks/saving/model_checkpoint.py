"""ModelCheckpoint: save checkpoints during a training, and keep the best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainer_hooks._files import replace_file
from trainer_hooks._log import log
from trainer_hooks._options import METRIC_NAME, check_options, one_of
from trainer_hooks.callbacks.base import decide_on_rank_zero, is_real_fit
from trainer_hooks.callbacks.monitored_metric import MonitoredMetric, monitorable_metrics
from trainer_hooks.callbacks.saving.save_schedule import SaveSchedule, SaveTriggers
from trainer_hooks.callbacks.saving.saver import CheckpointRanking, SavePlan, Saver
from trainer_hooks.callbacks.saving.saver_options import (
    check_dirpath,
    check_filename,
    check_flags,
    check_top_k,
)
from trainer_hooks.checkpoint.paths import is_remote, join_path
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    import os
    from datetime import timedelta

    from torch import Tensor

    from trainer_hooks.clock.schedules import When
    from trainer_hooks.clock.timing import Time
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["ModelCheckpoint"]


_WHERE = "ModelCheckpoint"


_RULES = {
    "mode": one_of("min", "max"),
    "monitor": METRIC_NAME.or_none(),
    "save_last": one_of(None, True, False, "link"),
}


class ModelCheckpoint(Saver):
    """Save checkpoints during a training, and keep the best.

    A new file is durable before an old one is deleted. Only files of its own folder are deleted,
    and never the one that the run resumed from. A name that is taken gets a version: `-v1`.

    Args:
        dirpath: the folder, or an address such as `s3://bucket/run`; by default `checkpoints` in
            the logger's folder, or without a logger in `default_root_dir`.
        filename: template with metrics, such as `"{epoch}-{val_loss:.2f}"`; without a suffix.
        monitor: the metric that ranks checkpoints; without one the newest counts as the best.
        verbose: whether each decision is logged at level INFO.
        save_last: True to save each time a second file, `last.ckpt`; `"link"` to make it a link to
            the newest of the best. Where epochs trigger the saves, it is saved after each epoch,
            whatever `every_n_epochs` is, so that it is never further behind than that.
        save_top_k: how many of the best to keep: -1 all, 0 none; without a monitor -1, 0 or 1.
        save_on_exception: whether any error that ends a fit, Ctrl-C too, leaves a checkpoint,
            `exception-epoch=E-step=S.ckpt`, under `last_exception_path`. SIGTERM always does.
        save_weights_only: leave out everything that only a resume needs.
        mode: `"min"` or `"max"`: which values of `monitor` are better. NaN is never the best.
        auto_insert_metric_name: whether `{epoch}` becomes `epoch=3` or `3`.
        every_n_train_steps: save after every N optimizer steps.
        train_time_interval: save when this much time has passed: `"30m"`, a `Time` or a timedelta.
        every_n_epochs: save after every N epochs; 1 if there is no trigger. These three and
            `save_interval` exclude each other; 0 switches one off.
        save_on_train_epoch_end: whether `every_n_epochs` acts at the end of the training epoch
            (True) or after each validation (False); by default the former where each epoch has
            one validation, at its end, and where there is none.
        enable_version_counter: False to overwrite a file whose name is taken.
        async_save: whether files are written in the background: the training is held while the
            state is copied in memory, and as long as the previous save is still pending. An error
            is raised at the next save; the end of a run waits for a pending save. The files of
            `save_on_exception` are written at once.
        save_interval: save when `"500ba"`, `"1e6tok"`, `"0.1dur"`, a `Time`, a filter or a function
            of `trainer.clock` says so; it is evaluated at the end of each batch and epoch.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, `monitor` was not logged or is no single number.

    State: paths and scores of the best checkpoints, the last path, and the files of a pending save.
    If the folder differs from the checkpoint's, only `best_model_path` is restored.

    Example::

        saver = ModelCheckpoint(monitor="val_loss", save_top_k=3, filename="{epoch}-{val_loss:.2f}")
        trainer = Trainer(max_epochs=2, callbacks=[saver])
        trainer.fit(module, train_loader, val_loader)
        trainer.validate(module, val_loader, ckpt_path=saver.best_model_path)
    """

    CHECKPOINT_NAME_LAST: str = "last"
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
        folder, template = check_dirpath(dirpath, _WHERE), check_filename(filename, _WHERE)
        check_options(_WHERE, _RULES, mode=mode, monitor=monitor, save_last=save_last)
        super().__init__(
            folder,
            template,
            save_weights_only,
            async_save,
            mode,
            auto_insert_metric_name,
            enable_version_counter,
        )
        self.monitor = monitor
        self.save_top_k = check_top_k(save_top_k, monitor, _WHERE)
        self.save_last = save_last
        self.verbose = verbose
        self.save_on_exception = save_on_exception
        self.last_exception_path = ""
        self._schedule = SaveSchedule(
            SaveTriggers.chosen(
                every_n_train_steps, every_n_epochs, train_time_interval, _WHERE, save_interval
            ),
            save_on_train_epoch_end,
        )
        self._watched = MonitoredMetric(monitor, type(self).__name__)

    @property
    def state_key(self) -> str:
        """The class name with the monitor and the trigger, which differ between two instances."""
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
        """How many epochs lie between two saves; 0 where steps or time trigger them."""
        return self._schedule.triggers.every_n_epochs

    def state_dict(self) -> dict[str, Any]:
        """Return the ranking, its folder, the files of a pending save, and the schedule."""
        return {
            "monitor": self.monitor,
            **self.tracker.state_dict(),
            **self._schedule.state_dict(),
            "is_monitor_validated": self._watched.is_validated,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; of a ranking in another folder only the best path."""
        super().load_state_dict(state_dict)
        self._schedule.load_state_dict(state_dict)
        self._watched.is_validated = state_dict.get("is_monitor_validated", False)

    def forget(self) -> None:
        """Reset for a new training. Files of an earlier one stay."""
        super().forget()
        self._schedule.reset()
        self.last_exception_path = ""

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start the schedule."""
        self._schedule.start(trainer)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Record the monitor's value, to find out whether validation logs it."""
        self._watched.note_validation_start(trainer)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Find out whether validation logs the monitor; the sanity check answers that too."""
        self._watched.note_validation_end(trainer)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if it is due by count, by time, or after the validation that just ran."""
        is_due = self._schedule.is_due_after_batch(trainer, self.tracker)
        # the epoch's validation will log the monitor: a score of the last epoch must not rank this
        if is_due and self.save_top_k != 0 and self._watched.is_to_come(trainer):
            self._schedule.defer(trainer)
        elif is_due is not None:
            self._save_on_schedule(trainer, is_due)

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if it is due by epochs, or was deferred until the epoch's validation had run."""
        is_due = self._schedule.is_due_after_epoch(trainer)
        # on_batch_checkpoint after the last batch may have decided on this same state
        is_new = trainer.progress.batches_completed != self.tracker.ranking.considered_at
        if is_new and is_due is not None:
            self._save_on_schedule(trainer, is_due)

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save an additional file, because `trainer.request_checkpoint()` was called.

        It is not ranked, and no later save replaces it. It updates `save_last`; the schedule is
        not affected.
        """
        if is_real_fit(trainer):
            plan, ranking = decide_on_rank_zero(trainer, lambda: self._plan_request(trainer))
            self.tracker.write(trainer, plan, ranking)

    def save_before_leaving(self, trainer: Trainer, module: Module) -> bool:
        """Save the last checkpoint, or without one a temporary `preempted-epoch=E-step=S.ckpt`."""
        if not is_real_fit(trainer):
            return False
        plan, ranking = decide_on_rank_zero(trainer, lambda: self._plan_leaving(trainer))
        self.tracker.write(trainer, plan, ranking)
        return True

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Save the present state, unless nothing was trained since the fit began."""
        is_due = self.save_on_exception and self._schedule.has_trained(trainer)
        if is_due and is_real_fit(trainer):
            # not by the tracker: the ranking does not contain this file, and nothing deletes it
            metrics = monitorable_metrics(trainer)
            path = self._free_path(metrics, self.CHECKPOINT_NAME_EXCEPTION)
            trainer.save_checkpoint(path, self.save_weights_only)
            self.last_exception_path = path

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Stop the schedule, and give up the names of files that could not be written."""
        self._schedule.stop()
        self.tracker.reserved_names.release_all()

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Return whether a checkpoint with the score `current` would be among the best."""
        k = self.save_top_k
        return current is not None and k != 0 and self.tracker.ranking.admits(current, k)

    def to_yaml(self, filepath: str | os.PathLike[str] | None = None) -> None:
        """Write the best checkpoints and their scores to a YAML file, one per line.

        Args:
            filepath: the file; by default `best_k_models.yaml` in `dirpath`.

        Raises:
            UsageError: there is no folder yet, or it is remote.
        """
        where, folder = type(self).__name__, self.dirpath
        if filepath is None and folder is None:
            raise UsageError(
                f"{where}.to_yaml() was called before a run resolved dirpath: pass "
                "filepath, or call it after fit."
            )
        path = join_path(folder or "", "best_k_models.yaml") if filepath is None else filepath
        if is_remote(str(path)):
            raise UsageError(
                f"filepath {str(path)!r} of {where}.to_yaml(): it must be a local file. Pass one."
            )
        scores = self.best_k_models.items()
        lines = [f"{json.dumps(path)}: {score.item()!r}\n" for path, score in scores]
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, lambda file: file.writelines(lines or ["{}\n"]))

    # --- the decision about a save: the plan of its files, and the ranking that contains them ---

    def _save_on_schedule(self, trainer: Trainer, is_for_ranking: bool) -> None:
        """Save because the schedule says so: one of the best, the last checkpoint, both, or none.

        Args:
            trainer: the trainer.
            is_for_ranking: whether the checkpoint may be one of the best; if not, only the last
                checkpoint is saved.
        """
        if not (is_for_ranking or self.save_last) or not is_real_fit(trainer):
            return
        # on rank 0 alone: other ranks may see other files, and must write under the same names
        plan, ranking = decide_on_rank_zero(
            trainer, lambda: self._plan_scheduled_save(trainer, is_for_ranking)
        )
        if not plan.files:
            self.tracker.ranking = ranking  # the decision itself is remembered, and its score
            return
        ranking.saved_step = trainer.global_step
        self.tracker.write(trainer, plan, ranking)

    def _plan_scheduled_save(
        self, trainer: Trainer, is_for_ranking: bool
    ) -> tuple[SavePlan, CheckpointRanking]:
        """Return the plan of a scheduled save, perhaps without files, and the ranking after it."""
        metrics, ranking = monitorable_metrics(trainer), self.tracker.ranking.copy()
        ranking.considered_at = trainer.progress.batches_completed
        k, monitor = self.save_top_k, self.monitor
        path, replaced = None, []
        if not is_for_ranking or k == 0:
            pass
        elif monitor is None:
            replaced = [ranking.best_model_path] if k == 1 else []
            ranking.best_model_path = path = self._free_path(metrics, reusable=replaced)
            self._log_decision(trainer, f"saving {path!r}")
        else:
            score = self._watched.score(trainer)
            if score is not None:  # else before the first validation, with a warning
                ranking.current_score = score
                shown = f"{monitor} {score:.5g}"
                if ranking.admits(score, k):
                    replaced = ranking.outranked(k)
                    path = self._free_path(metrics, reusable=replaced)
                    ranking.add(path, score, k)
                    self._log_decision(trainer, f"{shown} is among the best; saving {path!r}")
                else:
                    self._log_decision(trainer, f"{shown} is not among the best {k}")
        return self._with_last(path, replaced, metrics, ranking), ranking

    def _plan_request(self, trainer: Trainer) -> tuple[SavePlan, CheckpointRanking]:
        """Return the plan of a requested save, and the ranking after it."""
        metrics, ranking = monitorable_metrics(trainer), self.tracker.ranking.copy()
        # versioned even without the counter: another file of that name may be among the best
        path = self._free_path(metrics, is_versioned=True)
        self._log_decision(trainer, f"saving {path!r} as requested")
        return self._with_last(path, [], metrics, ranking), ranking

    def _plan_leaving(self, trainer: Trainer) -> tuple[SavePlan, CheckpointRanking]:
        """Return the plan of the save before the process ends, and the ranking after it."""
        metrics, ranking = monitorable_metrics(trainer), self.tracker.ranking.copy()
        # a file of weights alone could not be resumed from, and this save is for a resume
        if self.save_last is True and not self.save_weights_only:
            return self._with_last(None, [], metrics, ranking), ranking
        path = self._free_path(metrics, self.CHECKPOINT_NAME_PREEMPTED, is_versioned=True)
        return SavePlan.for_now(path), ranking

    def _with_last(
        self,
        path: str | None,
        replaced: list[str],
        metrics: dict[str, Any],
        ranking: CheckpointRanking,
    ) -> SavePlan:
        """Return the plan of a file, if there is one, and of the last checkpoint if it is due."""
        files = [] if path is None else [path]
        is_link = self.save_last == "link"
        # a link is renewed only with the file that it points to, a file each time
        is_last_due = path is not None or not ranking.best_model_path if is_link else self.save_last
        link = None
        if is_last_due:
            previous = ranking.last_model_path
            last = self._free_path(metrics, self.CHECKPOINT_NAME_LAST, reusable=(previous,))
            ranking.last_model_path = last
            replaced = [*replaced, previous]
            if is_link and path is not None:
                link = last
            else:
                files.append(last)
        return SavePlan(tuple(files), tuple(filter(None, replaced)), link)

    def _log_decision(self, trainer: Trainer, message: str) -> None:
        if self.verbose:
            log.info("epoch %d, step %d: %s", trainer.current_epoch, trainer.global_step, message)

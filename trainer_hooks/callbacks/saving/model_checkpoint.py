"""ModelCheckpoint: save checkpoints during a training, and keep the best; and its schedule."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainer_hooks._annotations import set_annotation
from trainer_hooks._files import replace_file
from trainer_hooks._log import log
from trainer_hooks._options import (
    METRIC_NAME,
    check_option,
    check_options,
    one_of,
    option_rules,
    whole_number,
)
from trainer_hooks.callbacks.base import (
    decide_on_rank_zero,
    is_real_fit,
)
from trainer_hooks.callbacks.monitored_metric import (
    MonitoredMetric,
    acts_at_train_epoch_end,
    advise_on_mode,
    monitorable_metrics,
)
from trainer_hooks.callbacks.saving.file_names import COUNTERS_AND_RANKS, template_names
from trainer_hooks.callbacks.saving.saver import CheckpointRanking, SavePlan, Saver, SaveStore
from trainer_hooks.callbacks.saving.saver_options import (
    check_dirpath,
    check_filename,
    check_flags,
    check_top_k,
)
from trainer_hooks.checkpoint.paths import is_remote, join_path
from trainer_hooks.clock.schedules import DueCondition, DueTracker, When, parse_when
from trainer_hooks.clock.timing import TimeUnit, parse_time
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import OptionError, UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import Tensor

    from trainer_hooks.callbacks.saving.file_names import FixedSavePath
    from trainer_hooks.clock.timing import Time
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "ModelCheckpoint"


_UNITS = tuple(unit for unit in TimeUnit if unit is not TimeUnit.ITERATION)
"""The units of `save_interval`; a cycle ends after the slots that this saver uses."""


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
            whatever `every_n_epochs` is, so that it is never further behind than that. A fit in
            which no save came due leaves one at its end.
        save_top_k: how many of the best to keep: -1 all, 0 none; without a monitor -1, 0 or 1.
        save_on_exception: whether any error that ends a fit, Ctrl-C too, leaves a checkpoint under
            `last_exception_path`: `filename`, or `exception-epoch=E-step=S.ckpt` where that is None
            or names a metric. The run that resumes from it writes over it when it saves under that
            name. SIGTERM always leaves one.
        save_weights_only: leave out everything that only a resume needs. Files of a run that was
            killed before a whole checkpoint was saved stay, and the next run's get a version.
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

    State: the ranking, its folder, the files that a save under way replaces, and the schedule. If
    the folder differs from the checkpoint's, only `best_model_path`, the counts of saves and the
    schedule are restored.

    Example::

        saver = ModelCheckpoint(monitor="val_loss", save_top_k=3, filename="{epoch}-{val_loss:.2f}")
        trainer = Trainer(max_epochs=2, callbacks=[saver])
        trainer.fit(module, train_loader, val_loader)
        trainer.validate(module, val_loader, ckpt_path=saver.best_model_path)
    """

    CHECKPOINT_NAME_LAST: str = "last"
    CHECKPOINT_NAME_EXCEPTION: str = "exception-{epoch}-{step}"
    CHECKPOINT_NAME_PREEMPTED: str = "preempted-{epoch}-{step}"

    # of a subclass that always overwrites one file
    _file: FixedSavePath | None = None

    @option_rules()
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
        advise_on_mode(monitor, mode, type(self).__name__)
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
        """Return the ranking, its folder, the files that a save replaces, and the schedule."""
        return {
            "monitor": self.monitor,
            **self.store.state_dict(),
            **self._schedule.state_dict(),
            "is_monitor_validated": self._watched.is_validated,
        }

    @checks_state(
        {},
        {
            "step_seen": int | None,
            "deferred_at": int | None,
            "asked": dict[str, float],
            "is_monitor_validated": bool,
        },
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; of another folder's ranking only the best path and the counts."""
        super().load_state_dict(state_dict)
        self._schedule.load_state_dict(state_dict)
        self._watched.is_validated = state_dict.get("is_monitor_validated", False)

    def forget(self) -> None:
        """Reset for a new training. Files of an earlier one stay."""
        super().forget()
        self._schedule.reset()
        self.last_exception_path = ""

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in its folder, also in the folders of earlier runs.

        Of a saver of one file they are that, and those saved because a signal ended the process.
        """
        files = super().candidates(trainer)
        if self._file is None:
            return files
        return self._file.among(
            self.format_checkpoint_name(), files, self.CHECKPOINT_NAME_PREEMPTED
        )

    def format_checkpoint_name(
        self,
        metrics: Mapping[str, Any] | None = None,
        filename: str | None = None,
        ver: int | None = None,
    ) -> str:
        """Return the path of a checkpoint with these metrics, inside `dirpath` if it is known.

        Args:
            metrics: numbers or one-element tensors; a missing one shows as `nan`.
            filename: template to use instead of this callback's own, or of its one file's name.
            ver: a version to append, as in `-v1`.
        """
        if self._file is not None and filename is None:
            metrics, filename = {}, self._file.stem
        return super().format_checkpoint_name(metrics or {}, filename, ver)

    @property
    def _file_name(self) -> str:
        """The name of the one file that a subclass overwrites."""
        return f"{'' if self._file is None else self._file.stem}{self.FILE_EXTENSION}"

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start the schedule; advise of a validation metric that no validation can log."""
        self._schedule.start(trainer)
        self._watched.note_train_start(trainer, module)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Record the monitor's value, to find out whether validation logs it."""
        self._watched.note_validation_start(trainer)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Find out whether validation logs the monitor; the sanity check answers that too."""
        self._watched.note_validation_end(trainer)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if it is due by count, by time, or after the validation that just ran."""
        is_for_ranking = self._schedule.decide_after_batch(trainer, self.store)
        # the epoch's validation will log the monitor: a score of the last epoch must not rank this
        if is_for_ranking and self.save_top_k != 0 and self._watched.is_to_come(trainer):
            self._schedule.defer(trainer)
        elif is_for_ranking is not None:
            self._save_on_schedule(trainer, is_for_ranking)

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if it is due by epochs, or was deferred until the epoch's validation had run."""
        is_for_ranking = self._schedule.decide_after_epoch(trainer)
        # of a fit with no validation, or too few steps, to save after: at least its end
        is_missing = is_for_ranking is None and self.save_last and not self.last_model_path
        if is_missing and _is_last_epoch(trainer):
            is_for_ranking = False
        # on_batch_checkpoint after the last batch may have decided on this same state
        is_new = trainer.progress.batches_completed != self.store.ranking.considered_at
        if is_new and is_for_ranking is not None:
            self._save_on_schedule(trainer, is_for_ranking)

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save an additional file, because `trainer.request_checkpoint()` was called.

        It is not ranked, and no later save replaces it. It updates `save_last`; the schedule is
        not affected.
        """
        if is_real_fit(trainer):
            if self.save_weights_only:
                # a resume goes on from the checkpoint of this request, and not from one before it
                trainer.finish_saves()
            plan, ranking = decide_on_rank_zero(trainer, lambda: self._plan_request(trainer))
            self.store.write(trainer, plan, ranking)

    def follow_validations(self, trainer: Trainer) -> None:
        """Save after validations or after epochs, as this loop has them."""
        self._schedule.follow_validations(trainer)

    def save_before_leaving(self, trainer: Trainer, module: Module) -> bool:
        """Save the last checkpoint, or without one a temporary `preempted-epoch=E-step=S.ckpt`."""
        if not is_real_fit(trainer):
            return False
        plan, ranking = decide_on_rank_zero(trainer, lambda: self._plan_leaving(trainer))
        self.store.write(trainer, plan, ranking)
        return True

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Save the present state, unless nothing was trained since the fit began."""
        is_due = self.save_on_exception and self._schedule.has_trained(trainer)
        if is_due and is_real_fit(trainer):
            # not by the store: the ranking does not contain this file, and nothing deletes it
            metrics = monitorable_metrics(trainer)
            names = set(template_names(self.filename or "{metric}"))
            # the last value of a metric would name a state that did not have it
            is_named = self._file is None and names <= set(COUNTERS_AND_RANKS)
            # versioned even without the counter: never over a checkpoint of the ranking
            path = (
                self._free_path(metrics, is_versioned=True)
                if is_named
                else self._free_path(metrics, self.CHECKPOINT_NAME_EXCEPTION)
            )
            self.store.write_for_error(trainer, path, is_replaceable=is_named)
            self.last_exception_path = path

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Stop the schedule, and give up the names of files that could not be written."""
        self._schedule.stop()
        self.store.reserved_names.release_all()

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Return whether a checkpoint with the score `current` would be among the best."""
        k = self.save_top_k
        return current is not None and k != 0 and self.store.ranking.admits(current, k)

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
            self.store.ranking = ranking  # the decision itself is remembered, and its score
            return
        ranking.saved_step = trainer.global_step
        self.store.write(trainer, plan, ranking)

    def _plan_scheduled_save(
        self, trainer: Trainer, is_for_ranking: bool
    ) -> tuple[SavePlan, CheckpointRanking]:
        """Return the plan of a scheduled save, perhaps without files, and the ranking after it."""
        metrics, ranking = monitorable_metrics(trainer), self.store.ranking.copy()
        ranking.considered_at = trainer.progress.batches_completed
        k, monitor = self.save_top_k, self.monitor
        path, replaced = None, []
        if not is_for_ranking or k == 0:
            pass
        elif monitor is None:
            # without a monitor the newest replaces the one before it; with -1 all stay
            replaced = [ranking.best_model_path] if k == 1 else []
            ranking.best_model_path = path = self._free_path(metrics, reusable=replaced)
            self._log_decision(trainer, f"saving {path!r}")
        else:
            score = self._watched.score(trainer)
            if score is not None:  # else before the first validation, with a warning
                ranking.current_score = score
                shown = f"{monitor} {score:.5g}"
                if self.check_monitor_top_k(trainer, score):
                    replaced = ranking.outranked(k)
                    path = self._free_path(metrics, reusable=replaced)
                    ranking.add(path, score, k)
                    self._log_decision(trainer, f"{shown} is among the best; saving {path!r}")
                else:
                    self._log_decision(trainer, f"{shown} is not among the best {k}")
        return self._with_last(path, replaced, metrics, ranking), ranking

    def _plan_request(self, trainer: Trainer) -> tuple[SavePlan, CheckpointRanking]:
        """Return the plan of a requested save, and the ranking after it."""
        metrics, ranking = monitorable_metrics(trainer), self.store.ranking.copy()
        # versioned even without the counter: another file of that name may be among the best
        path = self._free_path(metrics, is_versioned=True)
        self._log_decision(trainer, f"saving {path!r} as requested")
        return self._with_last(path, [], metrics, ranking), ranking

    def _plan_leaving(self, trainer: Trainer) -> tuple[SavePlan, CheckpointRanking]:
        """Return the plan of the save before the process ends, and the ranking after it."""
        metrics, ranking = monitorable_metrics(trainer), self.store.ranking.copy()
        # a file of weights alone could not be resumed from, and this save is for a resume
        if self.save_last is True and not self.save_weights_only:
            return self._with_last(None, [], metrics, ranking), ranking
        path = self._free_path(metrics, self.CHECKPOINT_NAME_PREEMPTED, is_versioned=True)
        if not self.save_last:
            return SavePlan.temporary(path), ranking
        # until the resumed run has saved, the last checkpoint is this one, and not an older file
        previous = ranking.last_model_path
        last = self._free_path(metrics, self.CHECKPOINT_NAME_LAST, reusable=(previous,))
        ranking.last_model_path = last
        return SavePlan.temporary(path, previous, last), ranking

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
            # without a file to point to, the last checkpoint is a file itself
            if is_link and path is not None:
                link = last
            else:
                files.append(last)
        return SavePlan(tuple(files), tuple(filter(None, replaced)), link)

    def _log_decision(self, trainer: Trainer, message: str) -> None:
        if self.verbose:
            log.info("epoch %d, step %d: %s", trainer.current_epoch, trainer.global_step, message)


# a type and no text, for parsers that take it from the signature: code for Lightning does so
set_annotation(ModelCheckpoint.__init__, "save_last", bool | Literal["link"] | None)


@dataclass(frozen=True, slots=True)
class SaveTriggers:
    """The condition for a save; at most one of the four is set.

    Attributes:
        every_n_train_steps: optimizer steps between two saves, or 0.
        every_n_epochs: epochs between two saves, or 0.
        train_time_interval: the least time between two saves, or None.
        save_interval: a filter of the clock, evaluated at the end of batches and epochs, or None.
    """

    every_n_train_steps: int
    every_n_epochs: int
    train_time_interval: timedelta | None
    save_interval: DueCondition | None = None

    @classmethod
    def chosen(
        cls,
        steps: int | None,
        epochs: int | None,
        interval: str | Time | timedelta | None,
        where: str,
        when: When | int | None = None,
    ) -> SaveTriggers:
        """Return the triggers for the user's arguments; without any, a save after each epoch.

        Raises:
            OptionError: a number is negative, the interval is no wall time, or two are chosen.
        """
        given = {
            name: 0 if count is None else check_option(name, count, where, whole_number())
            for name, count in (("every_n_train_steps", steps), ("every_n_epochs", epochs))
        }
        if interval is not None:
            units = (TimeUnit.SECOND,)
            least = parse_time(interval, "train_time_interval", where, units=units)
            interval = timedelta(seconds=least.value)
        condition = None
        if when is not None:
            condition = parse_when(when, "save_interval", where, units=_UNITS, bare=TimeUnit.EPOCH)
        chosen = [name for name, value in given.items() if value]
        chosen += ["train_time_interval"] if interval is not None else []
        chosen += ["save_interval"] if condition is not None else []
        if len(chosen) > 1:
            raise OptionError(
                f"triggers {', '.join(chosen)} of {where}: they exclude each other. Keep one, and "
                f"use a second {where} for the other."
            )
        if steps is None and epochs is None and interval is None and condition is None:
            return cls(0, 1, None)
        return cls(given["every_n_train_steps"], given["every_n_epochs"], interval, condition)


class SaveSchedule:
    """Decide at each of a saver's slots whether a save is due.

    Args:
        triggers: the condition for a save.
        at_train_epoch_end: whether the epoch trigger acts at the end of training epochs (True) or
            after validations (False); None to follow the trainer's validation settings.
    """

    def __init__(self, triggers: SaveTriggers, at_train_epoch_end: bool | None) -> None:
        self.triggers = triggers
        self._choice = at_train_epoch_end
        self._at_train_epoch_end = True
        self._watches_batches = False
        self._batches_at_start: int | None = None
        self._interval = (
            None if triggers.save_interval is None else DueTracker(triggers.save_interval)
        )
        # not `every_n_epochs > 0`: with every trigger at 0 an epoch still moves `save_last`
        self._is_by_epochs = (
            triggers.every_n_train_steps == 0
            and triggers.train_time_interval is None
            and triggers.save_interval is None
        )
        self.reset()

    def describe_trigger(self) -> str:
        """Return the option that decides when to save, with its value."""
        triggers = self.triggers
        if triggers.save_interval is not None:
            return f"save_interval={triggers.save_interval!r}"
        if triggers.train_time_interval is not None:
            return f"train_time_interval={str(triggers.train_time_interval)!r}"
        if triggers.every_n_train_steps:
            return f"every_n_train_steps={triggers.every_n_train_steps}"
        after = "" if self._at_train_epoch_end else ", after validations"
        return f"every_n_epochs={triggers.every_n_epochs}{after}"

    def reset(self) -> None:
        """Reset for a new training."""
        self._step_seen: int | None = None
        self._deferred_at: int | None = None
        if self._interval is not None:
            self._interval.forget()

    def start(self, trainer: Trainer) -> None:
        """Start the clock of a fit; counts continue from a resumed fit's."""
        self.follow_validations(trainer)
        if self._interval is not None:
            self._interval.start(trainer.clock)
        self._last_time = _now(trainer)
        self._batches_at_start = trainer.progress.batches_completed
        # a resume restored the count, which goes on
        if self._step_seen is None:
            self._step_seen = trainer.global_step

    def follow_validations(self, trainer: Trainer) -> None:
        """Decide whether saves follow validations or training epochs, as the trainer has them."""
        self._at_train_epoch_end = acts_at_train_epoch_end(trainer, self._choice)
        self._watches_batches = not (self._is_by_epochs and self._at_train_epoch_end)

    def stop(self) -> None:
        """Record that the run has ended."""
        self._batches_at_start = None

    def has_trained(self, trainer: Trainer) -> bool:
        """Return whether a batch was trained since this fit began."""
        start = self._batches_at_start
        return start is not None and trainer.progress.batches_completed > start

    def decide_after_batch(self, trainer: Trainer, store: SaveStore) -> bool | None:
        """Decide which checkpoints to save after a batch and its validation.

        True: a checkpoint that may be among the best, and the last one. False: only the last one,
        if `save_last` is set. None: nothing.
        """
        if not self._watches_batches:
            return None
        if self._interval is not None:
            return self._is_interval_due(trainer) or None
        triggers, step = self.triggers, trainer.global_step
        if triggers.every_n_train_steps > 0:
            # moved before the save, so that the file holds it
            every, before, self._step_seen = triggers.every_n_train_steps, self._step_seen, step
            # not `step % every`: two optimizers count two steps a batch, and may jump over one
            return step // every != (before or 0) // every or None
        if triggers.train_time_interval is not None:
            # else nothing was trained since the last save
            is_new = step != store.ranking.saved_step
            return (is_new and self._is_time_up(triggers.train_time_interval, trainer)) or None
        is_turn = not self._at_train_epoch_end and _is_validated(trainer)
        return self._is_due_epoch(trainer) if is_turn else None

    def decide_after_epoch(self, trainer: Trainer) -> bool | None:
        """Decide which checkpoints to save after an epoch, also those deferred to it.

        The values mean the same as those of `decide_after_batch`.
        """
        is_interval_due = self._is_interval_due(trainer)
        if self._deferred_at == trainer.progress.batches_completed or is_interval_due:
            return True
        is_turn = self._at_train_epoch_end or _is_validated(trainer)
        return self._is_due_epoch(trainer) if is_turn and self._is_by_epochs else None

    def defer(self, trainer: Trainer) -> None:
        """Defer the save of this batch to the slot after its epoch."""
        self._deferred_at = trainer.progress.batches_completed

    def state_dict(self) -> dict[str, Any]:
        """Return the trigger's counts and a deferred save as plain data."""
        state: dict[str, Any] = {"step_seen": self._step_seen, "deferred_at": self._deferred_at}
        return state if self._interval is None else {**state, "asked": self._interval.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the trigger's counts and a deferred save."""
        seen, deferred = state_dict.get("step_seen"), state_dict.get("deferred_at")
        self._step_seen = None if seen is None else int(seen)
        self._deferred_at = None if deferred is None else int(deferred)
        if self._interval is not None and "asked" in state_dict:
            self._interval.load_state_dict(state_dict["asked"])

    def _is_interval_due(self, trainer: Trainer) -> bool:
        """Return whether `save_interval` is due; ask once in each slot, since it keeps counts."""
        if self._interval is None:
            return False
        is_due = self._interval.is_due(trainer.clock)  # on every rank, to keep its counts
        # ranks see different numbers of samples and tokens, and all must save at the same moment
        return decide_on_rank_zero(trainer, lambda: is_due)

    def _is_time_up(self, interval: timedelta, trainer: Trainer) -> bool:
        """Return whether the interval has passed, and restart it if so."""
        now = _now(trainer)
        is_up = now - self._last_time >= interval.total_seconds()
        if is_up:
            self._last_time = now
        return is_up

    def _is_due_epoch(self, trainer: Trainer) -> bool:
        every = self.triggers.every_n_epochs
        return every > 0 and (trainer.current_epoch + 1) % every == 0


def describe_trigger(saver: ModelCheckpoint) -> str:
    """Return the option that decides when a saver saves, with its value: `every_n_epochs=5`."""
    # a function: a method would take its name from the users' subclasses
    if saver.save_top_k == 0 and not saver.save_last:
        return "save_top_k=0"
    return saver._schedule.describe_trigger()  # noqa: SLF001 - of this module


def _is_last_epoch(trainer: Trainer) -> bool:
    """Return whether the fit ends with the present epoch."""
    return (
        trainer.should_stop
        or 0 <= trainer.max_epochs <= trainer.current_epoch + 1
        or 0 <= trainer.max_steps <= trainer.global_step
    )


def _now(trainer: Trainer) -> float:
    """Return the clock of the schedule in seconds; of several ranks the one that they share."""
    if trainer.world_size == 1:
        return time.monotonic()
    # monotonic clocks differ between machines, and ranks must agree on when a save is due
    clock = trainer.clock
    return clock.train_seconds + clock.eval_seconds


def _is_validated(trainer: Trainer) -> bool:
    """Return whether a validation ran after the last batch."""
    return trainer.progress.validated_at == trainer.progress.batches_completed

"""RunManifest: record a run's versions, code, command and machine, and its journal."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import warn
from trainer_hooks._options import FLAG, answers_keywords, check_option
from trainer_hooks._system import process_start
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.reporting import run_facts
from trainer_hooks.callbacks.reporting.journal import JOURNAL, Journal, journal_folder
from trainer_hooks.callbacks.reporting.run_config import RunConfigCallback
from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.clock.pausable_timer import PausableTimer
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import OptionError, TerminationSignal, TrainerHooksWarning, error_message
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.loggers.csv import CSVLogger

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_LONGEST_MESSAGE = 2000
_WHERE = "RunManifest"
_LEAST_SECONDS = 1.0
_SHARE_OF_RUN = 1 / 200


class RunManifest(Callback):
    """Record how a run was made and how it goes, in the run's folder and its checkpoints.

    The manifest: versions of the loaded packages, the git commit, the command, the seeds, the
    machine, a short list of environment variables. It goes into every checkpoint, with a list of
    all starts of the training.

    Beside it, `run.jsonl` in the log folder is a journal to which lines are appended: the start of
    a run, with its checkpoint, step, callbacks and plugins; its speed; the checkpoints that it
    saved; its end. A process that is killed leaves the lines before. The command
    `trainer-hooks report` shows it.

    A trainer has a default one that keeps the journal and leaves the checkpoints alone, unless
    there is no logger, or it was made with `enable_run_manifest=False`, or `fast_dev_run` is on.
    It does no work at a batch: the speed is recorded when metrics are flushed to the loggers, at
    most once a second, in long runs at every 200th part of their time. Validation, test and
    prediction on their own append to an existing journal, and begin none.

    The command line is recorded as it is, except for values after an option such as `--api-key` or
    `--password`; of the environment only a list of variables that hold no secrets is recorded. If
    the journal cannot be written, there is one warning, and the run goes on.

    Args:
        dirpath: the folder for the journal; that of the first logger that has one unless given.
        in_checkpoint: whether the manifest is part of each checkpoint.

    Attributes:
        manifest: the manifest of the running or the last run; empty before.
        starts: the starts of this training, those of resumed runs included, the oldest first.

    State: the manifest and the starts.

    Raises:
        OptionError: an argument breaks its rule, or as a fit begins, `dirpath` cannot be written.

    Example::

        from pathlib import Path

        manifest = RunManifest()
        trainer = Trainer(max_epochs=2, callbacks=[manifest])
        trainer.fit(module, train_loader, val_loader)
        print(manifest.manifest["versions"]["torch"])
        print(Path(trainer.log_dir, "run.jsonl").read_text())
    """

    # a record of the run must not end the run: an error only disables this callback
    on_error: str = "disable"

    volatile_state: ClassVar[frozenset[str]] = frozenset({"manifest", "starts"})

    @answers_keywords
    def __init__(
        self, dirpath: str | os.PathLike[str] | None = None, in_checkpoint: bool = True
    ) -> None:
        is_path = isinstance(dirpath, str | os.PathLike) and bool(os.fspath(dirpath))
        if dirpath is not None and (not is_path or is_remote(dirpath)):
            raise OptionError(
                f"dirpath {dirpath!r} of {_WHERE}: it must be a local folder. Leave it out for the "
                "folder of the logger."
            )
        self.dirpath = None if dirpath is None else os.fspath(dirpath)
        self.in_checkpoint: bool = check_option("in_checkpoint", in_checkpoint, _WHERE, FLAG)
        self.manifest: dict[str, Any] = {}
        self.starts: list[dict[str, Any]] = []
        self._run = ""
        self._journal: Journal | None = None
        self._ending: dict[str, Any] = {}
        self._next_progress_at = math.inf
        self._started_at = 0.0
        self._validation_timer = PausableTimer()

    @property
    def is_stateful(self) -> bool:
        """Whether the manifest is part of checkpoints."""
        return self.in_checkpoint

    def state_dict(self) -> dict[str, Any]:
        """Return the manifest and all starts; empty where they are not part of checkpoints."""
        if not self.in_checkpoint:
            return {}
        return {"manifest": dict(self.manifest), "starts": [dict(start) for start in self.starts]}

    @checks_state({}, {"manifest": dict[str, Any], "starts": list[dict[str, Any]]})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the starts, and the manifest until the next run makes its own."""
        self.manifest = dict(state_dict.get("manifest", {}))
        self.starts = [dict(start) for start in state_dict.get("starts", ())]

    # --- the beginning ---

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Make the manifest, and write the start of the run."""
        if trainer.progress.is_new_training:
            self.starts = []
        self._begin(trainer, module, "fit")

    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Write the start of a validation or test to an existing journal."""
        self._begin(trainer, module, stage)

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Write the start of a prediction to an existing journal."""
        self._begin(trainer, module, "predict")

    def _begin(self, trainer: Trainer, module: Module, stage: str) -> None:
        is_dry = not trainer.is_global_zero or trainer.fast_dev_run
        folder = None if is_dry else self._folder(trainer)
        is_journaled = folder is not None and (stage == "fit" or (folder / JOURNAL).exists())
        self._journal, self._ending = None, {}
        self._validation_timer = PausableTimer()
        self._run = uuid.uuid4().hex[:12]
        # making the manifest runs git and lists all loaded modules: not without a use
        if not is_journaled and not (self.in_checkpoint and stage == "fit"):
            return
        self.manifest = make_manifest(trainer)
        if stage == "fit":
            self.starts.append(
                {
                    "run": self._run,
                    "time": time.time(),
                    **progress_record(trainer),
                    "resumed_from": trainer.ckpt_path,
                    "host": self.manifest["hardware"]["host"],
                    "command": self.manifest["command"],
                    "commit": (self.manifest["git"] or {}).get("commit"),
                }
            )
        if folder is not None and is_journaled:
            start = start_record(trainer, module, stage, self.manifest)
            self._record(trainer, "start", {**start, **_metrics_folder(trainer, folder)})

    # --- on the way ---

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock, and record the batch size."""
        if self._journal is None:
            return
        self._started_at = time.monotonic()
        size = getattr(trainer.train_dataloader, "batch_size", None)
        self._record_progress(trainer, {"batch_size": size} if isinstance(size, int) else {})

    def on_log(
        self, trainer: Trainer, module: Module, metrics: dict[str, float], step: int
    ) -> None:
        """Record the progress of the training, if that is due."""
        if time.monotonic() >= self._next_progress_at:
            self._record_progress(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Record the progress of the training, if that is due; a module may log no metric."""
        if time.monotonic() >= self._next_progress_at:
            self._record_progress(trainer)

    def on_validation_run_start(self, trainer: Trainer, module: Module) -> None:
        """Stop the training's clock."""
        self._validation_timer.start()

    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Restart the training's clock."""
        self._validation_timer.stop()

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Record the path of a saved checkpoint."""
        if self._journal is not None:
            self._record(trainer, "saved", {"path": path, **progress_record(trainer)})

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Record the final progress of the training."""
        self._end_training(trainer)

    def _end_training(self, trainer: Trainer) -> None:
        # infinite before the training begins and after its end was recorded
        if self._next_progress_at < math.inf:
            self._record_progress(trainer)
            self._next_progress_at = math.inf

    def _record_progress(self, trainer: Trainer, more: dict[str, Any] | None = None) -> None:
        now = time.monotonic()
        elapsed = now - self._started_at
        validated = self._validation_timer.elapsed
        # the pause grows with the run, so that the journal of a long run stays small
        self._next_progress_at = now + max(_LEAST_SECONDS, elapsed * _SHARE_OF_RUN)
        seconds = {"seconds": round(elapsed, 4), "validation_seconds": round(validated, 4)}
        self._record(trainer, "sample", {**progress_record(trainer), **seconds, **(more or {})})

    # --- the end ---

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Remember how the run ends, for `teardown`."""
        self._ending = ending_record(exception)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Record how the run ended."""
        self._end_training(trainer)
        if self._journal is None:
            return
        error = sys.exception()
        if not self._ending and trainer.interrupted and isinstance(error, TerminationSignal):
            # a signal stopped the fit in order: `on_exception` was not called
            self._ending = ending_record(error)
        disabled = [
            {"name": r.name, "hook": r.hook, "error": r.error}
            for r in trainer.callback_report
            if not r.is_active
        ]
        more = {
            **progress_record(trainer),
            "stop_reason": trainer.stop_reason,
            "disabled": disabled,
        }
        self._record(trainer, "end", {"status": "finished", **self._ending, **more})
        self._journal = None

    def _folder(self, trainer: Trainer) -> Path | None:
        if self.dirpath is not None:
            return Path(self.dirpath)
        folder = journal_folder(trainer.loggers)
        return None if folder is None else Path(folder)

    def _record(self, trainer: Trainer, event: str, values: dict[str, Any]) -> None:
        """Append a record of an event to the journal."""
        folder = self._folder(trainer)
        if folder is None:
            return
        path = folder / JOURNAL
        try:
            # a logger may move to another folder when a second run took its number
            if self._journal is None or self._journal.path != path:
                self._journal = Journal(path)
            self._journal.append({"event": event, "run": self._run, "time": time.time(), **values})
        except OSError as error:
            # no further attempt: one warning, not one a second
            self._journal, self._next_progress_at = None, math.inf
            warn(
                f"the journal of the run could not be written to {str(path)!r}: {error}. Check "
                "that the folder is writable and has room. The run itself is not affected.",
                TrainerHooksWarning,
            )


def make_manifest(trainer: Trainer) -> dict[str, Any]:
    """Return the manifest of a run: versions, code, command, seeds, machine, config."""
    configs = (c.shown for c in trainer.callbacks if isinstance(c, RunConfigCallback))
    return {
        "versions": run_facts.versions(),
        "git": run_facts.git_state(),
        "command": run_facts.command(),
        "seeds": run_facts.seeds(),
        "hardware": run_facts.hardware(trainer.device),
        "environment": run_facts.environment(),
        "precision": trainer.precision,
        "config": next(configs, None),
    }


def start_record(
    trainer: Trainer, module: Module, stage: str, manifest: dict[str, Any]
) -> dict[str, Any]:
    """Return the values of a run's first record: its position, its callbacks and its manifest."""
    active = [report for report in trainer.callback_report if report.is_active]
    plugin_keys = ("distribution", "version", "name", "status", "reason", "seconds")
    return {
        "stage": stage,
        "pid": os.getpid(),
        # with the pid it tells whether the run is still running, even after the pid was reused
        "process": process_start(os.getpid()),
        "module": type(module).__qualname__,
        **progress_record(trainer),
        "resumed_from": trainer.ckpt_path,
        "max_epochs": trainer.max_epochs,
        "max_steps": trainer.max_steps,
        **manifest,
        "callbacks": [{"name": r.name, "supplier": r.supplier, "band": r.band} for r in active],
        "plugins": [
            {key: getattr(plugin, key) for key in plugin_keys} for plugin in trainer.plugins
        ],
    }


def _metrics_folder(trainer: Trainer, folder: Path) -> dict[str, str]:
    """Return the folder of a `metrics.csv` that is not in the journal's folder, for the report."""
    folders = [logger.log_dir for logger in trainer.loggers if isinstance(logger, CSVLogger)]
    # relative: both may be moved together
    paths = [os.path.relpath(each, folder) for each in folders if not is_remote(each)]
    return {} if not paths or os.curdir in paths else {"metrics_folder": paths[0]}


def progress_record(trainer: Trainer) -> dict[str, int]:
    """Return the progress of a training; `step` is the x axis of the loggers."""
    progress = trainer.progress
    return {
        "epoch": progress.epochs_completed,
        "batches": progress.batches_completed,
        "global_step": progress.steps_completed,
        "step": progress.batches_stepped,
    }


def ending_record(error: BaseException) -> dict[str, Any]:
    """Return the journal's record of an exception that ends a run."""
    if isinstance(error, TerminationSignal):
        return {"status": "signal", "signal": signal.Signals(error.signum).name}
    if isinstance(error, KeyboardInterrupt):
        return {"status": "signal", "signal": signal.SIGINT.name}
    details = {"type": type(error).__qualname__, "message": error_message(error)[:_LONGEST_MESSAGE]}
    return {"status": "failed", "error": details}

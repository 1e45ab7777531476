"""RunManifest: note what a run was made with, and how it went, beside its metrics."""

from __future__ import annotations

import math
import os
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.reporting.journal import JOURNAL, Journal
from trainer_hooks.callbacks.reporting.run_records import (
    ending_of,
    manifest_of,
    place_of,
    start_record,
)
from trainer_hooks.checkpoint import is_remote
from trainer_hooks.errors import OptionError, TerminationSignal, TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["RunManifest"]

_WHERE = "RunManifest"
_LEAST_SECONDS = 1.0
_SHARE_OF_RUN = 1 / 200


class RunManifest(Callback):
    """Note what a run is made with, and how it goes: into the run's folder and its checkpoints.

    The manifest: versions of the packages that are loaded, the git commit, the command, the seeds,
    the machine, a short list of environment variables. It goes into every checkpoint, with a list
    of all starts of the training.

    Beside it, `run.jsonl` in the log folder is a journal to which lines are added: when a run
    started, from which checkpoint and at which step, with which callbacks and plugins; how fast it
    was; what it saved; how it ended. A process that is killed leaves the lines before. The command
    `trainer-hooks report` shows it.

    A trainer has one of its own that keeps the journal and leaves the checkpoints alone, unless
    there is no logger, or it was made with `enable_run_manifest=False`, or `fast_dev_run` is on.
    Nothing is done at a batch: the speed is looked at when metrics are handed to the loggers, and
    written down at most once a second, in long runs at every 200th part of their time. Validation,
    test and prediction on their own add to a journal that is there, and begin none.

    The command line is kept as it is, but for what follows an option such as `--api-key` or
    `--password`; the environment is not kept, but for a list of variables that hold no secrets. If
    the journal cannot be written, that is warned of once, and the run goes on.

    Args:
        dirpath: the folder for the journal; that of the first logger that has one unless given.
        in_checkpoint: whether the manifest is part of each checkpoint.

    Attributes:
        manifest: what the run under way, or the last one, is made with; empty before.
        starts: the starts of this training, those of resumed runs included, the oldest first.

    State: the manifest and the starts.

    Raises:
        OptionError: an argument breaks its rule, or as a fit begins, nothing can be written to
            `dirpath`.

    Example::

        from pathlib import Path

        manifest = RunManifest()
        trainer = Trainer(max_epochs=2, callbacks=[manifest])
        trainer.fit(module, train_loader, val_loader)
        print(manifest.manifest["versions"]["torch"])
        print(Path(trainer.log_dir, "run.jsonl").read_text())
    """

    on_error: str = "disable"

    volatile_state: ClassVar[frozenset[str]] = frozenset({"manifest", "starts"})

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
        self.in_checkpoint: bool = check_choice(
            "in_checkpoint", in_checkpoint, _WHERE, (True, False)
        )
        self.manifest: dict[str, Any] = {}
        self.starts: list[dict[str, Any]] = []
        self._run = ""
        self._journal: Journal | None = None
        self._end: dict[str, Any] = {}
        self._sample_at = math.inf
        self._began = 0.0
        self._validating_since: float | None = None
        self._validated_for = 0.0

    @property
    def is_stateful(self) -> bool:
        """Whether the manifest is part of checkpoints."""
        return self.in_checkpoint

    def state_dict(self) -> dict[str, Any]:
        """Return the manifest and all starts; nothing where they are no part of checkpoints."""
        if not self.in_checkpoint:
            return {}
        return {"manifest": dict(self.manifest), "starts": [dict(start) for start in self.starts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back; the manifest is made anew when a run begins."""
        self.manifest = dict(state_dict.get("manifest", {}))
        self.starts = [dict(start) for start in state_dict.get("starts", ())]

    # --- the beginning ---

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Make the manifest, and begin the journal."""
        if trainer.progress.is_fresh:
            self.starts = []
        self._begin(trainer, module, "fit")

    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Note a validation or a test of its own, in a journal that is there."""
        self._begin(trainer, module, stage)

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Note a prediction, in a journal that is there."""
        self._begin(trainer, module, "predict")

    def _begin(self, trainer: Trainer, module: Module, stage: str) -> None:
        is_dry = not trainer.is_global_zero or trainer.fast_dev_run
        folder = None if is_dry else self._folder(trainer)
        is_journaled = folder is not None and (stage == "fit" or (folder / JOURNAL).exists())
        self._journal, self._end = None, {}
        self._validated_for, self._validating_since = 0.0, None
        self._run = uuid.uuid4().hex[:12]
        if not is_journaled and not (self.in_checkpoint and stage == "fit"):
            return
        self.manifest = manifest_of(trainer)
        if stage == "fit":
            self.starts.append(
                {
                    "run": self._run,
                    "time": time.time(),
                    **place_of(trainer),
                    "resumed_from": trainer.ckpt_path,
                    "host": self.manifest["hardware"]["host"],
                    "command": self.manifest["command"],
                    "commit": (self.manifest["git"] or {}).get("commit"),
                }
            )
        if folder is not None and is_journaled:
            self._write(trainer, start_record(trainer, module, stage, self._run, self.manifest))

    # --- on the way ---

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Look at the clock for the first time, and at how many samples make a batch."""
        if self._journal is None:
            return
        self._began = time.monotonic()
        size = getattr(trainer.train_dataloader, "batch_size", None)
        self._sample(trainer, {"batch_size": size} if isinstance(size, int) else {})

    def on_log(
        self, trainer: Trainer, module: Module, metrics: dict[str, float], step: int
    ) -> None:
        """Note how far the training is, if that is due."""
        if time.monotonic() >= self._sample_at:
            self._sample(trainer)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Note how far the training is, if that is due; it may be that nothing is logged."""
        if time.monotonic() >= self._sample_at:
            self._sample(trainer)

    def on_validation_run_start(self, trainer: Trainer, module: Module) -> None:
        """Stop the clock of the training."""
        self._validating_since = time.monotonic()

    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Let the clock of the training go on."""
        if self._validating_since is not None:
            self._validated_for += time.monotonic() - self._validating_since
            self._validating_since = None

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Note what was saved, and where."""
        if self._journal is not None:
            self._note(trainer, "saved", {"path": path, **place_of(trainer)})

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Note how far the training came."""
        self._stop_clock(trainer)

    def _stop_clock(self, trainer: Trainer) -> None:
        if self._sample_at < math.inf:
            self._sample(trainer)
            self._sample_at = math.inf

    def _sample(self, trainer: Trainer, more: dict[str, Any] | None = None) -> None:
        now = time.monotonic()
        elapsed = now - self._began
        since = self._validating_since
        validated = self._validated_for + (0.0 if since is None else now - since)
        self._sample_at = now + max(_LEAST_SECONDS, elapsed * _SHARE_OF_RUN)
        seconds = {"seconds": round(elapsed, 4), "validation_seconds": round(validated, 4)}
        self._note(trainer, "sample", {**place_of(trainer), **seconds, **(more or {})})

    # --- the end ---

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Keep how the run ends, until it has."""
        self._end = ending_of(exception)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Note how the run ended."""
        self._stop_clock(trainer)
        if self._journal is None:
            return
        error = sys.exception()
        if not self._end and trainer.interrupted and isinstance(error, TerminationSignal):
            self._end = ending_of(error)  # a fit that made way in order
        lost = [
            {"name": r.name, "hook": r.hook, "error": r.error}
            for r in trainer.callback_report
            if not r.is_active
        ]
        more = {**place_of(trainer), "stop_reason": trainer.stop_reason, "disabled": lost}
        self._note(trainer, "end", {"status": "finished", **self._end, **more})
        self._journal = None

    def _note(self, trainer: Trainer, event: str, values: dict[str, Any]) -> None:
        self._write(trainer, {"event": event, "run": self._run, "time": time.time(), **values})

    def _folder(self, trainer: Trainer) -> Path | None:
        if self.dirpath is not None:
            return Path(self.dirpath)
        found = (logger.log_dir for logger in trainer.loggers)
        return next((Path(x) for x in found if x is not None and not is_remote(x)), None)

    def _write(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Add a record to the journal."""
        folder = self._folder(trainer)
        if folder is None:
            return
        path = folder / JOURNAL
        try:
            if self._journal is None or self._journal.path != path:
                self._journal = Journal(path)
            self._journal.append(record)
        except OSError as error:
            self._journal, self._sample_at = None, math.inf
            warn(
                f"the journal of the run could not be written to {str(path)!r}: {error}. Check "
                "that the folder is writable and has room. The run itself is not affected.",
                TrainerHooksWarning,
            )

"""EventLog: what happened in a run, as lines of JSON and as a line an epoch."""

from __future__ import annotations

import json
import math
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import Callback
from trainer_hooks.errors import OptionError
from trainer_hooks_monitoring.counts import Counts, samples_in

if TYPE_CHECKING:
    from trainer_hooks import Module, Trainer

__all__ = ["EventLog"]


class EventLog(Callback):
    """Note what happens in a run, for those who look on.

    It counts batches, samples, epochs, fits and resumes, and says so where it is asked to: it may
    print a line after each epoch, and with a path it appends a line of JSON to that file for each
    event: `fit_start`, `metrics`, `epoch_end`, `checkpoint`, `exception` and `fit_end`. Each has
    `time` (UTC, ISO 8601), `run` (the same in all lines of one fit), `event`, `epoch` and `step`.
    Metrics are those that the loggers are given, when they are. Numbers that JSON does not have are
    the texts `"NaN"`, `"Infinity"` and `"-Infinity"`. A line is written whole and at once, by the
    main process alone, and the file is not held open: it can be rotated.

    An error in it, such as a disk that is full, is reported once and ends no run.

    Args:
        path: the file to append to; its folder is made. None to write none.
        prints: whether to print a line after each epoch.

    Attributes:
        counts: what was counted.

    State: the counts, so that they go on where a run that died left off.

    Raises:
        OptionError: an argument is outside its rule.
    """

    on_error = "disable"
    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {"fits", "resumes", "counts.fits", "counts.resumes"}
    )

    def __init__(self, path: str | os.PathLike[str] | None = None, *, prints: bool = False) -> None:
        if path is not None and (not isinstance(path, str | os.PathLike) or not os.fspath(path)):
            raise OptionError(
                f"path {path!r} of EventLog: it must be the path of a file. Pass one such as "
                "'events.jsonl', or None to write no file."
            )
        if path is not None and Path(path).is_dir():
            raise OptionError(
                f"path {os.fspath(path)!r} of EventLog: it must be a file, and a folder is there. "
                "Name a file in it, such as events.jsonl."
            )
        self.path = None if path is None else Path(path)
        self.prints = prints
        self.counts = Counts()
        self._is_restored = False
        self._run = ""

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Start over with a fresh run; count a resume if a checkpoint was restored."""
        is_resumed = self._is_restored and not trainer.progress.is_new_training
        if trainer.progress.is_new_training:
            self.counts = Counts()
        elif is_resumed:
            self.counts.resumes += 1
        self._is_restored = False
        self.counts.fits += 1
        self._run = uuid.uuid4().hex[:12]
        if self.path is not None:
            self._write(
                trainer,
                "fit_start",
                resumed_from=trainer.ckpt_path if is_resumed else None,
                module=type(module).__qualname__,
                max_epochs=trainer.max_epochs,
                world_size=trainer.world_size,
            )

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch and its samples; no tensor is read, so nothing waits for the device."""
        self.counts.batches += 1
        self.counts.samples += samples_in(batch)

    def on_log(
        self, trainer: Trainer, module: Module, metrics: dict[str, float], step: int
    ) -> None:
        """Write the metrics that the loggers are given."""
        if self.path is not None:
            self._write(trainer, "metrics", step=step, metrics=metrics)

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Write which file."""
        if self.path is not None:
            self._write(trainer, "checkpoint", path=str(path))

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Count the epoch, and print and write it."""
        self.counts.epochs += 1
        self._print(trainer, f"epoch {trainer.current_epoch} done")
        if self.path is not None:
            self._write(trainer, "epoch_end", counts=self.counts.as_dict())

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Write its type and message."""
        if self.path is not None:
            kind = type(exception)
            name = kind.__qualname__
            if kind.__module__ != "builtins":
                name = f"{kind.__module__}.{name}"
            self._write(trainer, "exception", type=name, message=str(exception))

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Print and write a last line."""
        self._print(trainer, f"fit {self.counts.fits} done")
        if self.path is not None:
            reason = trainer.stop_reason or None
            self._write(trainer, "fit_end", stop_reason=reason, counts=self.counts.as_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return self.counts.as_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the counts back; one that an older release did not save starts at zero."""
        self.counts = Counts.from_dict(state_dict)
        self._is_restored = True

    def _print(self, trainer: Trainer, moment: str) -> None:
        if self.prints:
            counts = self.counts
            trainer.print(
                f"[event-log] {moment}: {counts.batches:,} batches, {counts.samples:,} samples "
                f"so far (resumed {counts.resumes}x)"
            )

    def _write(self, trainer: Trainer, event: str, *, step: int | None = None, **more: Any) -> None:
        """Append a line, on the main process."""
        if self.path is None or not trainer.is_global_zero:
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run": self._run,
            "event": event,
            "epoch": trainer.current_epoch,
            "step": trainer.global_step if step is None else step,
            **more,
        }
        text = json.dumps(_plain(line), ensure_ascii=False, allow_nan=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # one write of the whole line, at the end of the file whoever else writes to it
        with self.path.open("ab", buffering=0) as file:
            file.write(text.encode())


def _plain(value: Any) -> Any:
    """Return `value` with everything that JSON has no form for as a text."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

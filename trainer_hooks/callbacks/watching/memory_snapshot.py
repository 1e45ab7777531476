"""MemorySnapshot: record what a CUDA device's memory is taken for in a few batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_count, is_training
from trainer_hooks.callbacks.watching.cuda_memory import HISTORY, tells
from trainer_hooks.callbacks.watching.memory_files import MemoryFiles, pickled, trace_plot
from trainer_hooks.clock import Cue, Filter, Time, TimeUnit, parse_time, parse_when
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    import os

    from trainer_hooks.clock import Clock, When
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["MemorySnapshot"]

_WHERE = "MemorySnapshot"
_MADE = {".pickle": pickled, ".html": trace_plot}


class MemorySnapshot(Callback):
    """Record every allocation of a CUDA device's memory in a few batches, once in a training.

    It leaves two files, `rank0.4.memory_snapshot.pickle`, which https://pytorch.org/memory_viz
    takes, and `.html`, which shows over time who holds how much; that page fetches torch's viewer
    from the network. A fit that ends inside the interval, also by an error, writes what was
    recorded by then. By torch's documentation recording costs some 2 µs an allocation; outside the
    interval nothing is recorded. There is one history in a process: it is cleared as the interval
    begins. Where the run is not on a CUDA device it warns once and does nothing.

    Args:
        skip_batches: batches of a run before the interval, as the first ones are not like others.
        interval: how long: a time such as `"3ba"`, counted from where it begins, or a number of
            epochs; or a filter or a function of the clock, which says when it ends.
        max_entries: how many events to keep, the last ones.
        folder: where; by default `memory` in the log folder. It may be an address such as
            `"s3://bucket/run"`.
        filename: template of what the names begin with, with `{epoch}`, `{batch}`, `{step}`,
            `{batch_in_epoch}`, `{rank}`, `{world_size}` and logged metrics.
        remote_file_name: template of the addresses that copies are uploaded to, likewise without
            the ending, such as `"s3://bucket/snapshots/rank{rank}"`; None for no copies. An upload
            that fails is told by a warning.
        overwrite: whether files that were there before the training may be written over.

    Attributes:
        files: the files that this fit wrote, and the addresses of the copies.

    State: whether it is done, so that a resumed run does not record again. One that was cut inside
        the interval begins it anew.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a new training, a file is in the way, and `overwrite` is False.

    Example::

        snapshot = MemorySnapshot(skip_batches=2, interval="3ba")
        trainer = Trainer(max_epochs=2, callbacks=[snapshot])
        trainer.fit(module, train_loader)
        print(snapshot.files)
    """

    band: ClassVar[Band] = Band.SINK  # a batch ends when the others are done with it

    def __init__(
        self,
        skip_batches: int = 1,
        interval: int | When = "3ba",
        max_entries: int = 100_000,
        folder: str | os.PathLike[str] | None = None,
        filename: str = "rank{rank}.{batch}.memory_snapshot",
        remote_file_name: str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.skip_batches = check_count("skip_batches", skip_batches, _WHERE)
        self.interval = interval
        is_asked = isinstance(interval, Filter) or callable(interval)
        self._cue = Cue(parse_when(interval, "interval", _WHERE, bare=TimeUnit.EPOCH))
        self._length: Time | None = None
        if not is_asked:
            self._length = parse_time(interval, "interval", _WHERE, bare=TimeUnit.EPOCH)
        self.max_entries = check_count("max_entries", max_entries, _WHERE, least=1)
        self._files = MemoryFiles(
            _WHERE, folder, filename, remote_file_name, overwrite, tuple(_MADE)
        )
        self.files: list[str] = []
        self._is_done = self._is_on = self._is_warned = self._is_recording = False
        self._left = 0
        self._begun: Any = 0

    @property
    def state_key(self) -> str:
        """The class with what it records and where that goes."""
        return self._generate_state_key(
            skip_batches=self.skip_batches,
            interval=str(self._cue.when),
            filename=self._files.filename,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return whether it is done."""
        return {"is_done": self._is_done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self._is_done = bool(state_dict["is_done"])

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """See whether there is anything to record, and a place for it."""
        self.files, self._left = [], self.skip_batches
        if trainer.progress.is_fresh:
            self._is_done = False
        self._is_on = False
        if self._is_done or not is_training(trainer):
            return
        self._is_on = tells(trainer.device, _WHERE, is_quiet=self._is_warned)
        self._is_warned = self._is_warned or not self._is_on
        if self._is_on:
            self._files.check_free(trainer)

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Begin, if it is time to."""
        if not self._is_on or self._is_recording:
            return
        if self._left:
            self._left -= 1
            return
        HISTORY.record(self, self.max_entries, clears=True)
        self._is_recording = True
        self._cue.start(trainer.clock)
        if self._length is not None:
            self._begun = trainer.clock.count(self._length.unit)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Write what was recorded, if the interval is over."""
        self._end_if_over(trainer)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Write what was recorded, if the interval is over with the epoch."""
        self._end_if_over(trainer)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Write what was recorded by then."""
        self._end(trainer)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Write what was recorded by then, whatever ended the fit."""
        self._end(trainer)
        self._is_on = False

    def _end_if_over(self, trainer: Trainer) -> None:
        if self._is_recording and self._is_over(trainer.clock):
            self._end(trainer)

    def _is_over(self, clock: Clock) -> bool:
        if self._length is None:
            return self._cue.is_due(clock)
        return bool(clock.count(self._length.unit) - self._begun >= self._length.exact_value)

    def _end(self, trainer: Trainer) -> None:
        """Stop, and write what was recorded."""
        if not self._is_recording:
            return
        self._is_on = self._is_recording = False
        self._is_done = True
        try:
            snapshot = HISTORY.snapshot()
        finally:
            HISTORY.stop(self)
        made = {ending: make(snapshot) for ending, make in _MADE.items()}
        self.files += [self._files.write(trainer, *each) for each in made.items()]
        try:
            copies = [self._files.copy(trainer, *each) for each in made.items()]
        except CheckpointError as error:
            warn(
                f"{_WHERE} could not upload copies of {self.files}: {error}",
                TrainerHooksWarning,
            )
        else:
            self.files += [address for address in copies if address is not None]

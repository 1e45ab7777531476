"""MemorySnapshot: record the allocations of a CUDA device's memory in a few batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import warn
from trainer_hooks._options import FLAG, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import is_real_fit
from trainer_hooks.callbacks.monitors.cuda_memory import HISTORY, is_allocator_readable
from trainer_hooks.callbacks.monitors.memory_files import MemoryFiles, snapshot_pickle, trace_plot
from trainer_hooks.clock.schedules import DueCondition, DueTracker, parse_when
from trainer_hooks.clock.timing import Time, TimeUnit, parse_time
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    import os

    from trainer_hooks.clock.clock import Clock
    from trainer_hooks.clock.schedules import When
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "MemorySnapshot"
_FILES = {".pickle": snapshot_pickle, ".html": trace_plot}


class MemorySnapshot(Callback):
    """Record every allocation of a CUDA device's memory in a few batches, once in a training.

    It writes two files: `rank0.4.memory_snapshot.pickle`, for https://pytorch.org/memory_viz, and
    `.html`, a page with a plot of the allocations over time, which fetches torch's viewer from the
    network. A fit that ends inside the interval, also by an error, writes the events recorded by
    then. By torch's documentation recording costs some 2 µs an allocation; outside the interval
    nothing is recorded. A process has one history, which is cleared when the interval begins. Where
    the run is not on a CUDA device, the callback warns once and does nothing.

    Args:
        skip_batches: batches of a run before the interval, as the first ones are not typical.
        interval: its length: a time such as `"3ba"`, counted from its beginning, or a number of
            epochs; or a filter or a function of the clock that is due at its end.
        max_entries: the number of events to keep, the latest ones.
        folder: the folder for the files; by default `memory` in the log folder. It may be an
            address such as `"s3://bucket/run"`.
        filename: template of the beginning of their names, with `{epoch}`, `{batch}`, `{step}`,
            `{batch_in_epoch}`, `{rank}`, `{world_size}` and logged metrics.
        remote_file_name: template of the addresses that copies are uploaded to, likewise without
            the ending, such as `"s3://bucket/snapshots/rank{rank}"`; None for no copies. A failed
            upload is a warning.
        overwrite: whether files from before the training may be overwritten.

    Attributes:
        files: the paths of the files of this fit, and the addresses of the copies.

    State: whether the recording is done, so that a resumed run does not record again. A run
        that was cut inside the interval begins it anew.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a new training, a file would be overwritten, and `overwrite` is False.

    Example::

        snapshot = MemorySnapshot(skip_batches=2, interval="3ba")
        trainer = Trainer(max_epochs=2, callbacks=[snapshot])
        trainer.fit(module, train_loader)
        print(snapshot.files)
    """

    # so that a recorded batch includes the work of all other callbacks
    band: ClassVar[Band] = Band.SINK

    @option_rules(skip_batches=whole_number(), max_entries=whole_number(1), overwrite=FLAG)
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
        self.skip_batches = skip_batches
        self.interval = interval
        is_condition = isinstance(interval, DueCondition) or callable(interval)
        self._due_tracker = DueTracker(
            parse_when(interval, "interval", _WHERE, bare=TimeUnit.EPOCH)
        )
        self._length: Time | None = None
        if not is_condition:
            self._length = parse_time(interval, "interval", _WHERE, bare=TimeUnit.EPOCH)
        self.max_entries = max_entries
        self._files = MemoryFiles(
            _WHERE, folder, filename, remote_file_name, overwrite, tuple(_FILES)
        )
        self.files: list[str] = []
        self._is_done = self._is_on = self._is_warned = self._is_recording = False
        self._batches_to_skip = 0
        self._start_count: Any = 0

    @property
    def state_key(self) -> str:
        """`MemorySnapshot{...}` with the batches that it records and the file name."""
        return self._generate_state_key(
            skip_batches=self.skip_batches,
            interval=str(self._due_tracker.when),
            filename=self._files.filename,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return whether the recording is done."""
        return {"is_done": self._is_done}

    @checks_state({"is_done": bool})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore whether the recording is done."""
        self._is_done = bool(state_dict["is_done"])

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Check whether there is anything to record, and that no file would be overwritten."""
        self.files, self._batches_to_skip = [], self.skip_batches
        if trainer.progress.is_new_training:
            self._is_done = False
        self._is_on = False
        if self._is_done or not is_real_fit(trainer):
            return
        self._is_on = is_allocator_readable(trainer.device, _WHERE, is_quiet=self._is_warned)
        self._is_warned = self._is_warned or not self._is_on
        if self._is_on:
            self._files.check_free(trainer)

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Begin the recording after the skipped batches."""
        if not self._is_on or self._is_recording:
            return
        if self._batches_to_skip:
            self._batches_to_skip -= 1
            return
        # events that another callback recorded before are not of these batches
        HISTORY.record(self, self.max_entries, clears=True)
        self._is_recording = True
        self._due_tracker.start(trainer.clock)
        if self._length is not None:
            self._start_count = trainer.clock.count(self._length.unit)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Write the recording if the interval is over."""
        self._end_if_over(trainer)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Write the recording if the interval is over with the epoch."""
        self._end_if_over(trainer)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Write the events recorded by then."""
        self._end(trainer)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Write the events recorded by then, also after an error."""
        self._end(trainer)
        self._is_on = False

    def _end_if_over(self, trainer: Trainer) -> None:
        if self._is_recording and self._is_over(trainer.clock):
            self._end(trainer)

    def _is_over(self, clock: Clock) -> bool:
        if self._length is None:
            return self._due_tracker.is_due(clock)
        return bool(clock.count(self._length.unit) - self._start_count >= self._length.exact_value)

    def _end(self, trainer: Trainer) -> None:
        """Stop recording, and write the files and their copies."""
        if not self._is_recording:
            return
        # first, as `teardown` comes here again after an error
        self._is_on = self._is_recording = False
        self._is_done = True
        try:
            snapshot = HISTORY.snapshot()
        finally:
            HISTORY.stop(self)
        contents = {ending: make(snapshot) for ending, make in _FILES.items()}
        self.files += [self._files.write(trainer, *each) for each in contents.items()]
        try:
            copies = [self._files.copy(trainer, *each) for each in contents.items()]
        except CheckpointError as error:
            warn(f"{_WHERE} could not upload copies of {self.files}: {error}", TrainerHooksWarning)
        else:
            self.files += [address for address in copies if address is not None]

"""OOMObserver: write memory snapshots and plots when a CUDA device runs out of memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trainer_hooks._log import log
from trainer_hooks._options import FLAG, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitors.cuda_memory import (
    HISTORY,
    is_allocator_readable,
    observe_out_of_memory,
)
from trainer_hooks.callbacks.monitors.memory_files import (
    MemoryFiles,
    segment_flame_graph,
    segment_plot,
    snapshot_pickle,
    stack_flame_graph,
    trace_plot,
)
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "OOMObserver"
_FILES = {
    "_snapshot.pickle": snapshot_pickle,
    "_trace_plot.html": trace_plot,
    "_segment_plot.html": segment_plot,
    "_segment_flamegraph.svg": segment_flame_graph,
    "_memory_flamegraph.svg": stack_flame_graph,
}


class OOMObserver(Callback):
    """Write memory snapshots and plots when a CUDA device runs out of memory.

    The files are made before the error is raised, while nothing is freed yet: `rank0_oom` with
    `_snapshot.pickle`, for https://pytorch.org/memory_viz; `_trace_plot.html`, the allocations over
    time; `_segment_plot.html`, the use of the allocator's segments over time; and
    `_segment_flamegraph.svg` and `_memory_flamegraph.svg`, the allocated memory by segment and by
    call stack. The two pages fetch torch's viewer from the network.

    Each out-of-memory error of a run is observed, also one that is handled, as by a finder of batch
    sizes; the files are those of the last one. A failure to write them is logged and never replaces
    the error. By torch's documentation recording costs some 2 µs an allocation, in fit, validate,
    test and predict. Where the run is not on a CUDA device, the callback warns once and does
    nothing.

    Args:
        max_entries: the number of events of the history to keep, the latest ones.
        folder: the folder for the files; by default `memory` in the log folder. It may be an
            address such as `"s3://bucket/run"`.
        filename: template of the beginning of their names, with `{epoch}`, `{batch}`, `{step}`,
            `{batch_in_epoch}`, `{rank}`, `{world_size}` and logged metrics.
        remote_file_name: template of the addresses that copies are uploaded to, likewise without
            the ending, such as `"s3://bucket/oom/rank{rank}"`; None for no copies.
        overwrite: whether files from before the training may be overwritten.

    Attributes:
        files: the files of this run, and the addresses of the copies.

    State: none.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a new training, a file would be overwritten, and `overwrite` is False.

    Example::

        observer = OOMObserver()
        trainer = Trainer(max_epochs=2, callbacks=[observer])
        trainer.fit(module, train_loader)
        print(observer.files)
    """

    @option_rules(max_entries=whole_number(1), overwrite=FLAG)
    def __init__(
        self,
        max_entries: int = 100_000,
        folder: str | os.PathLike[str] | None = None,
        filename: str = "rank{rank}_oom",
        remote_file_name: str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.max_entries = max_entries
        self._files = MemoryFiles(
            _WHERE, folder, filename, remote_file_name, overwrite, tuple(_FILES)
        )
        self.files: list[str] = []
        self._is_warned = False
        self._remove_observer: Callable[[], None] | None = None

    @property
    def state_key(self) -> str:
        """`OOMObserver{...}` with the file name."""
        return self._generate_state_key(filename=self._files.filename)

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Start to record allocations and to observe out-of-memory errors."""
        # a run before may have broken off without its teardown
        self._stop_recording()
        self.files = []
        if not is_allocator_readable(trainer.device, _WHERE, is_quiet=self._is_warned):
            self._is_warned = True
            return

        HISTORY.record(self, self.max_entries)
        self._remove_observer = observe_out_of_memory(partial(self._write_files, trainer))

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Check that the files would overwrite no others."""
        if self._remove_observer is not None:
            self._files.check_free(trainer)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Stop recording."""
        self._stop_recording()

    def _stop_recording(self) -> None:
        if self._remove_observer is not None:
            remove_observer, self._remove_observer = self._remove_observer, None
            remove_observer()
            HISTORY.stop(self)

    def _write_files(
        self, trainer: Trainer, device: int, requested: int, allocated: int, free: int
    ) -> None:
        """Write all files; log failures, as the error of the run is to be raised."""
        message = "%s: device %d has no memory for %d bytes: the process holds %d, %d are free"
        log.warning(message, _WHERE, device, requested, allocated, free)
        self.files = []
        try:
            snapshot = HISTORY.snapshot()
        except Exception:  # noqa: BLE001 - whatever it is, it must not hide the run's error
            log.warning("%s could not take a snapshot of the memory", _WHERE, exc_info=True)
            return
        for ending, make in _FILES.items():
            try:
                content = make(snapshot)
                self.files.append(self._files.write(trainer, ending, content))
                address = self._files.copy(trainer, ending, content)
            except Exception:  # noqa: BLE001 - likewise, and the next file may still succeed
                log.warning("%s could not write its %s", _WHERE, ending, exc_info=True)
            else:
                self.files += [] if address is None else [address]

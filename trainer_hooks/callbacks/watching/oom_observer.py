"""OOMObserver: when a CUDA device's memory runs out, leave pictures of who held it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._log import log
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_count
from trainer_hooks.callbacks.watching.cuda_memory import HISTORY, observe_out_of_memory, tells
from trainer_hooks.callbacks.watching.memory_files import (
    MemoryFiles,
    pickled,
    segment_flames,
    segment_plot,
    stack_flames,
    trace_plot,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["OOMObserver"]

_WHERE = "OOMObserver"
_MADE = {
    "_snapshot.pickle": pickled,
    "_trace_plot.html": trace_plot,
    "_segment_plot.html": segment_plot,
    "_segment_flamegraph.svg": segment_flames,
    "_memory_flamegraph.svg": stack_flames,
}


class OOMObserver(Callback):
    """When a CUDA device's memory runs out, leave pictures of who held it.

    They are made before the error is raised, so that nothing is freed yet: `rank0_oom` with
    `_snapshot.pickle`, which https://pytorch.org/memory_viz takes; `_trace_plot.html`, who held how
    much over time; `_segment_plot.html`, how the allocator's segments were filled; and
    `_segment_flamegraph.svg` and `_memory_flamegraph.svg`, what is held, by segment and by call
    stack. The two pages fetch torch's viewer from the network.

    Each error of a run is met, also one that something else handles, as a finder of batch sizes
    does; the files are those of the last. What goes wrong with them is logged, and never takes
    the error's place. By torch's documentation recording costs some 2 µs an allocation, in fit,
    validate, test and predict. Where the run is not on a CUDA device it warns once and does
    nothing.

    Args:
        max_entries: how many events of the history to keep, the last ones.
        folder: where; by default `memory` in the log folder. It may be an address such as
            `"s3://bucket/run"`.
        filename: template of what the names begin with, with `{epoch}`, `{batch}`, `{step}`,
            `{batch_in_epoch}`, `{rank}`, `{world_size}` and logged metrics.
        remote_file_name: template of the addresses that copies are uploaded to, likewise without
            the ending, such as `"s3://bucket/oom/rank{rank}"`; None for no copies.
        overwrite: whether files that were there before the training may be written over.

    Attributes:
        files: the files of this run, and the addresses of the copies.

    State: none.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a new training, a file is in the way, and `overwrite` is False.

    Example::

        observer = OOMObserver()
        trainer = Trainer(max_epochs=2, callbacks=[observer])
        trainer.fit(module, train_loader)
        print(observer.files)
    """

    def __init__(
        self,
        max_entries: int = 100_000,
        folder: str | os.PathLike[str] | None = None,
        filename: str = "rank{rank}_oom",
        remote_file_name: str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.max_entries = check_count("max_entries", max_entries, _WHERE, least=1)
        self._files = MemoryFiles(
            _WHERE, folder, filename, remote_file_name, overwrite, tuple(_MADE)
        )
        self.files: list[str] = []
        self._is_warned = False
        self._leave: Callable[[], None] | None = None

    @property
    def state_key(self) -> str:
        """The class with where its files go."""
        return self._generate_state_key(filename=self._files.filename)

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Record from here on, and wait for the error."""
        self._let_go()
        self.files = []
        if not tells(trainer.device, _WHERE, is_quiet=self._is_warned):
            self._is_warned = True
            return

        def meet(device: int, requested: int, allocated: int, free: int) -> None:
            self._meet(trainer, device, requested, allocated, free)

        HISTORY.record(self, self.max_entries)
        self._leave = observe_out_of_memory(meet)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Make sure that there is a place for the files."""
        if self._leave is not None:
            self._files.check_free(trainer)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Record no more."""
        self._let_go()

    def _let_go(self) -> None:
        if self._leave is not None:
            leave, self._leave = self._leave, None
            leave()
            HISTORY.stop(self)

    def _meet(
        self, trainer: Trainer, device: int, requested: int, allocated: int, free: int
    ) -> None:
        """Write everything; what fails is logged, as the error of the run is to be raised."""
        log.warning(
            "%s: device %d has no memory for %d bytes: the process holds %d, %d are free",
            _WHERE,
            device,
            requested,
            allocated,
            free,
        )
        self.files = []
        try:
            snapshot = HISTORY.snapshot()
        except Exception:  # noqa: BLE001 - of whatever kind, it must not hide the error
            log.warning("%s could not take a snapshot of the memory", _WHERE, exc_info=True)
            return
        for ending, make in _MADE.items():
            try:
                content = make(snapshot)
                self.files.append(self._files.write(trainer, ending, content))
                address = self._files.copy(trainer, ending, content)
            except Exception:  # noqa: BLE001 - likewise; the other files may still succeed
                log.warning("%s could not write its %s", _WHERE, ending, exc_info=True)
            else:
                self.files += [] if address is None else [address]

"""TrainingState: the state of a module's training that outlives its single runs.

`FitPosition` is a part of it: the position at which the last of them ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.checkpoint.seal import RunIdentity
from trainer_hooks.clock.clock import Timekeeper
from trainer_hooks.clock.progress import Progress
from trainer_hooks.metrics.history import History
from trainer_hooks.metrics.store import MetricStore
from trainer_hooks.module.optimization import Optimization
from trainer_hooks.runtime.buffers import BufferRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.module.module import Module


UNOPENED: dict[str, Any] = {"opened_with": {}, "generators": {}, "num_batches": math.inf}
"""The state of a training loader of which no batch was requested yet."""


@dataclass(slots=True)
class FitPosition:
    """The position of a fit, as a checkpoint holds it beside the states of the registry.

    Attributes:
        is_inside_batch: whether a batch has been taken whose hooks are not all called.
        window: batches of an accumulation window; None without a training loader.
        slot: the slot in which the checkpoint was saved that the loop has yet to go on from.
        broken_off: the hook of an epoch that was broken off before that checkpoint was saved.
        replacements: states by name that are saved in the place of the present ones: those before a
            validation that is under way, or of a checkpoint that the loop has yet to restore.
        states: of a fit that has ended, the states of the registry that only a run has, by name.
    """

    is_inside_batch: bool = False
    window: int | None = None
    slot: dict[str, str] = field(default_factory=dict)
    broken_off: str = ""
    replacements: dict[str, Any] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=lambda: {"stream": dict(UNOPENED)})


@dataclass(slots=True)
class TrainingState:
    """The state of a module's training, with which one fit after another goes on.

    Attributes:
        module: the module; None before the first fit.
        progress: the counters.
        timekeeper: the wall times, and the counts at the start of the epoch and the cycle.
        metrics: the logged values.
        history: the values of the whole training at the moments when logging was due.
        optimization: optimizers and schedulers.
        is_configured: whether a fit has made the optimizers.
        setup: the options of the optimizers and schedulers when they were made, as plain data.
        began: `modes_of(module)` at the start of the training.
        built: the plain names of the parameters and buffers before the first `on_fit_start`.
        buffers: the buffers that no `state_dict` holds, at the start of the training.
        num_batches: number of training batches of the last epoch; infinity where it is unknown.
        length: number of training batches of an epoch that nothing ends early.
        samples: samples of a batch and of an epoch of the last fit; None if its loader has no such
            numbers.
        ended: the position at which the last fit has ended, for checkpoints saved after it.
        saved_at: when the last checkpoint was saved, or the one from which the last fit resumed.
        hparams: the module's saved hyperparameters at the start of the last fit, from which the
            origin is computed.
        origin: the origin of the run, by which a restart recognises its own checkpoints; None until
            the first save of a fit without savers.
        identity: what tells the run from others of its origin.
        command: the beginning of the command line, for messages about its checkpoints; computed
            with the origin.
        saved_batches: completed batches when the last save began of a checkpoint that can be
            resumed.
        newest_path: the newest such checkpoint that is durable, or the one from which the last fit
            resumed; empty without one.
        newest_batches: completed batches in that checkpoint.
        awaited_save: the path of such a checkpoint that is written in the background, and the
            completed batches in it; None if it is durable, or older than a resume.
    """

    module: Module | None = None
    progress: Progress = field(default_factory=Progress)
    timekeeper: Timekeeper = field(default_factory=Timekeeper)
    metrics: MetricStore = field(default_factory=MetricStore)
    history: History = field(init=False)
    optimization: Optimization = field(default_factory=Optimization)
    is_configured: bool = False
    setup: dict[str, Any] = field(default_factory=dict)
    began: dict[str, Any] = field(default_factory=dict)
    built: frozenset[str] = frozenset()
    buffers: BufferRecord = field(default_factory=BufferRecord)
    num_batches: int | float = math.inf
    length: int | float = math.inf
    samples: tuple[int, int] | None = None
    ended: FitPosition = field(default_factory=FitPosition)
    saved_at: int = 0
    hparams: Mapping[str, Any] | None = None
    origin: str | None = None
    identity: RunIdentity = field(default_factory=RunIdentity)
    command: str = ""
    # -1 equals no count: a fit that ends before its first batch has no checkpoint either
    saved_batches: int = -1
    newest_path: str = ""
    newest_batches: int = 0
    awaited_save: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        # the history reads these very counters: a resume changes them in place
        self.history = History(self.progress, self.metrics.show)

    def record_save(self, path: str) -> None:
        """Record the newest checkpoint that can be resumed from, and the batches in it."""
        self.saved_batches = self.newest_batches = self.progress.batches_completed
        self.newest_path = path

    def begin_save(self, path: str) -> None:
        """Note that such a checkpoint is being written; `end_save` records it."""
        # at once, unlike the others: only the rank that writes learns of a failure, and all ranks
        # decide by this number whether to save
        self.saved_batches = self.progress.batches_completed
        self.awaited_save = path, self.saved_batches

    def end_save(self, path: str) -> None:
        """Record the checkpoint that was awaited, once `path` is durable."""
        if self.awaited_save is not None and self.awaited_save[0] == path:
            self.newest_path, self.newest_batches = self.awaited_save
            self.awaited_save = None

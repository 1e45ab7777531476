"""Profiler: record a few training batches with torch's profiler and write traces."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch.profiler import ProfilerAction, ProfilerActivity, profile

from trainer_hooks._log import log
from trainer_hooks._options import FLAG, Rule, is_text, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.hooks.band import Band
from trainer_hooks.profilers.pytorch import (
    activities_of,
    require_no_other,
    require_no_run_profiler,
    second_profiler_error,
    start_recorder,
    stop_recorder,
    write_trace,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "Profiler"
_ADVICE = "Leave one of them out, or choose other batches with Profiler(skip_first=...)."


class Profiler(Callback):
    """Record a few training batches with torch's profiler, as traces for https://ui.perfetto.dev.

    After `skip_first` batches of a fit, cycles begin: `wait` batches are not recorded, `warmup`
    batches warm the profiler up, and `active` batches are recorded, including the loading of their
    data. Then the trace is written to `trace-batches=4-6.json.gz`, named after the batches in it.
    After `repeat` cycles nothing is recorded any more, and nothing is slowed down. A fit that ends
    inside a cycle, also by an error, writes the batches recorded by then.

    A validation between two recorded batches is in the trace, too. A resumed run counts its own
    batches, as its caches are cold again.

    Args:
        wait: batches of a cycle that are not recorded.
        warmup: batches of a cycle that are recorded and discarded, since the first ones are slow.
        active: batches of a cycle that are recorded.
        repeat: the number of cycles; 0 for as many as fit into the training.
        skip_first: batches before the first cycle.
        dirpath: the folder for the traces; `profile` in the log folder unless given.
        filename: the beginning of their names.
        activities: the devices to record, one or several of `"cpu"`, `"cuda"`, `"xpu"`, `"mtia"`,
            or members of `torch.profiler.ProfilerActivity`; all of this machine unless given.
        record_shapes: whether to record the shapes of inputs.
        profile_memory: whether to record allocations of memory.
        with_stack: whether to record the lines of Python code; slow.
        with_flops: whether to estimate the floating point operations of some kernels.
        with_modules: whether to record the names of modules (TorchScript only).
        compress: whether to compress the traces; Perfetto opens both.

    Attributes:
        traces: the paths of the traces that this fit wrote.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a fit, another profiler of torch is running.

    State: none.

    Example::

        profiler = Profiler(wait=1, warmup=1, active=2, with_stack=True)
        trainer = Trainer(max_epochs=2, callbacks=[profiler])
        trainer.fit(module, train_loader, val_loader)
        print(profiler.traces)
    """

    # so that a recorded batch includes the work of all other callbacks
    band: ClassVar[Band] = Band.SINK

    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {"traces", "_profile", "_begun_at", "_done", "_cycles", "_next_at", "profile/*"}
    )

    @option_rules(
        wait=whole_number(),
        warmup=whole_number(),
        active=whole_number(1),
        repeat=whole_number(),
        skip_first=whole_number(),
        dirpath=Rule(
            "a local folder",
            lambda path: (
                isinstance(path, str | os.PathLike)
                and bool(os.fspath(path))
                and not is_remote(path)
            ),
            "Pass one, or leave it out for 'profile' in the log folder.",
        ).unless(None),
        filename=Rule(
            "the beginning of a file's name, without a folder",
            lambda name: is_text(name) and Path(name).name == name,
            "Pass one such as 'trace', and the folder as dirpath.",
        ),
        record_shapes=FLAG,
        profile_memory=FLAG,
        with_stack=FLAG,
        with_flops=FLAG,
        with_modules=FLAG,
        compress=FLAG,
    )
    def __init__(
        self,
        wait: int = 1,
        warmup: int = 1,
        active: int = 3,
        repeat: int = 1,
        skip_first: int = 0,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str = "trace",
        activities: str | ProfilerActivity | Sequence[str | ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        compress: bool = True,
    ) -> None:
        self.wait = wait
        self.warmup = warmup
        self.active = active
        self.repeat = repeat
        self.skip_first = skip_first
        self.dirpath = None if dirpath is None else str(Path(dirpath).absolute())
        self.filename = filename
        self.activities = activities_of(activities, _WHERE)
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.compress = compress
        self.traces: list[str] = []
        self._profile: profile | None = None
        self._folder = Path()
        self._begun_at = 0
        self._done = 0
        self._cycles = 0
        self._next_at = -1

    @property
    def state_key(self) -> str:
        """`Profiler{...}` with the file name and `skip_first`."""
        return self._generate_state_key(filename=self.filename, skip_first=self.skip_first)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start to count batches.

        Raises:
            UsageError: another profiler of torch is running.
        """
        require_no_run_profiler(_WHERE)
        first = _first_cycle(self)
        for other in trainer.callbacks:
            # of later cycles `_begin` finds out
            if isinstance(other, Profiler) and other is not self:
                theirs = _first_cycle(other)
                if first.start < theirs.stop and theirs.start < first.stop:
                    raise second_profiler_error(_WHERE, _WHERE, _ADVICE)
        self.traces = []
        self._done = self._cycles = 0
        self._next_at = self.skip_first + self.wait
        root = trainer.log_dir or trainer.default_root_dir
        self._folder = Path(root) / "profile" if self.dirpath is None else Path(self.dirpath)
        # no batch ends before the first one, so `on_train_batch_end` would come too late for it
        if self._next_at == 0:
            self._begin(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch, and begin or end a recording if it is due."""
        if self._next_at < 0:
            return
        self._done += 1
        if self._profile is not None:
            self._profile.step()
            if self._done == self._next_at + self.warmup + self.active:
                self._end()
                # a `repeat` of 0 equals no number of cycles, so the last never comes
                is_last = self._cycles == self.repeat
                self._next_at = -1 if is_last else self._done + self.wait
        if self._done == self._next_at:
            self._begin(trainer)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Write the batches recorded by then."""
        self._end()
        self._next_at = -1

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Write the batches recorded by then, also after an error."""
        self._end()
        self._next_at = -1

    def _begin(self, trainer: Trainer) -> None:
        """Start torch's profiler for the warm-up and active batches of a cycle.

        Raises:
            UsageError: another profiler of torch is running.
        """
        require_no_other(_WHERE, _ADVICE)
        self._begun_at = trainer.progress.batches_completed
        # a new one for each cycle, since a single one discards the cycle before
        begun = profile(
            activities=self.activities,
            schedule=self._action_at,
            on_trace_ready=self._write,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
        )
        with warnings.catch_warnings():
            # torch 2.11 says of every profiler that a next cycle would clear its events
            warnings.filterwarnings("ignore", "Warning: Profiler clears events")
            start_recorder(begun, _WHERE)
        self._profile = begun  # one that failed to start cannot be stopped

    def _action_at(self, step: int) -> ProfilerAction:
        """Return the profiler's action at a batch of a cycle, counted from the warm-up on."""
        # not torch.profiler.schedule, which warns if warmup is 0
        if step < self.warmup:
            return ProfilerAction.WARMUP
        remaining = self.warmup + self.active - 1 - step
        if remaining < 0:
            return ProfilerAction.NONE
        return ProfilerAction.RECORD if remaining else ProfilerAction.RECORD_AND_SAVE

    def _end(self) -> None:
        running, self._profile = self._profile, None
        if running is not None:
            self._cycles += 1
            stop_recorder(running)

    def _write(self, recorded: profile) -> None:
        """Write a trace, whole or not at all."""
        first = self._begun_at + self.warmup
        last = self._begun_at + recorded.step_num - 1
        if last < first:  # the fit ended before an active batch was done
            return
        suffix = ".json.gz" if self.compress else ".json"
        path = self._folder / f"{self.filename}-batches={first}-{last}{suffix}"
        write_trace(recorded, path)
        self.traces.append(str(path))
        log.info("%s: wrote %s; open it at https://ui.perfetto.dev", _WHERE, path)


def _first_cycle(profiler: Profiler) -> range:
    """Return the batches of a fit in which the first cycle records, warm-up included."""
    begin = profiler.skip_first + profiler.wait
    return range(begin, begin + profiler.warmup + profiler.active)

"""PyTorchProfiler: what torch and the device do in each action."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerAction, profile, record_function, schedule

from trainer_hooks._log import log
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.profilers.layer_names import LayerNames
from trainer_hooks.profilers.profiler import Profiler
from trainer_hooks.profilers.recording import activities_of, require_no_other, write_trace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from torch import nn
    from torch.profiler import ProfilerActivity

__all__ = ["PyTorchProfiler"]

_STEPS = ("run_training_batch", "validation_step", "test_step", "predict_step")
"""Actions after which a batch is done, for the schedule."""

_SORT_KEYS = (
    "cpu_time", "device_time", "cpu_time_total", "device_time_total", "cpu_memory_usage",
    "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage",
    "self_cpu_time_total", "self_device_time_total", "cuda_time", "cuda_time_total",
    "cuda_memory_usage", "self_cuda_memory_usage", "self_cuda_time_total", "count",
)  # fmt: skip


class PyTorchProfiler(Profiler):
    """Record a few batches with torch's profiler, with the actions of the run in it.

    At the end of the run comes a table of what took the most time, and a trace for
    https://ui.perfetto.dev is written, `fit-trace-0.json.gz`. To record chosen batches of a fit
    alone, use the callback `Profiler`.

    Args:
        dirpath: the folder for files; the log folder unless given.
        filename: what the summary's file is called; without one the summary is logged.
        group_by_input_shapes: whether the table has a row for each shape of inputs.
        emit_nvtx: whether, instead of recording, all operations are marked for `nsys`; on a GPU.
        export_to_chrome: whether traces are written.
        row_limit: how many rows the table has; -1 for all.
        sort_by_key: by which column it is sorted: `cpu_time_total` unless given, or
            `device_time_total` on a GPU.
        record_module_names: whether the forward of each layer is an action, too.
        table_kwargs: other arguments for the `table` of `torch.profiler`, by name.
        activities: what to record: `"cpu"`, `"cuda"` ..., one or several; all that this machine has
            unless given.
        schedule: what `torch.profiler.schedule` returns; unless given, a batch is left alone, one
            warms up, and three are recorded.
        on_trace_ready: is called with torch's profiler as a cycle of the schedule is over, instead
            of writing a trace.
        record_shapes: whether the shapes of inputs are recorded.
        profile_memory: whether memory that is taken and given back is recorded.
        with_stack: whether the lines of Python code are recorded; slow.
        with_flops: whether the operations of some kernels are estimated.
        with_modules: whether the names of modules are recorded (TorchScript alone).

    Raises:
        OptionError: an argument breaks its rule.
        UsageError: as a run begins, another profiler of torch is running.

    Example::

        trainer = Trainer(max_epochs=1, profiler=PyTorchProfiler(profile_memory=True))
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        group_by_input_shapes: bool = False,
        emit_nvtx: bool = False,
        export_to_chrome: bool = True,
        row_limit: int = 20,
        sort_by_key: str | None = None,
        record_module_names: bool = True,
        table_kwargs: dict[str, Any] | None = None,
        activities: str | ProfilerActivity | Sequence[str | ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
    ) -> None:
        super().__init__(dirpath, filename)
        self.group_by_input_shapes = group_by_input_shapes
        self.emit_nvtx = emit_nvtx
        self.export_to_chrome = export_to_chrome
        self.row_limit = row_limit
        self.sort_by_key = _check_key(sort_by_key)
        self.record_module_names = record_module_names
        self.table_kwargs = dict(table_kwargs or {})
        self.activities = activities_of(activities, "PyTorchProfiler")
        self.schedule = schedule
        _check_schedule(schedule)
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes or group_by_input_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        if emit_nvtx and not torch.cuda.is_available():
            raise OptionError(
                "emit_nvtx True of PyTorchProfiler: it marks what a GPU does, and there is none "
                "here. Leave it out."
            )
        self._open: dict[str, record_function] = {}
        self._running: profile | None = None
        self._recorded: profile | None = None
        self._nvtx = ExitStack()
        self._layers: LayerNames | None = None

    def setup(
        self,
        stage: str,
        local_rank: int | None = None,
        log_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Begin to record, as the schedule says."""
        super().setup(stage, local_rank, log_dir)
        self._recorded = None
        if self.emit_nvtx:
            self._nvtx.enter_context(torch.cuda.profiler.profile())
            marks = torch.autograd.profiler.emit_nvtx()  # type: ignore[no-untyped-call]
            self._nvtx.enter_context(marks)
            return
        require_no_other("PyTorchProfiler", "Leave one of them out.")
        self._running = profile(
            activities=self.activities,
            # made here, since torch's own cannot be pickled
            schedule=self.schedule or schedule(wait=1, warmup=1, active=3, repeat=1),
            on_trace_ready=self._take,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
            acc_events=True,  # the table is of all cycles
        )
        self._running.start()

    def attach_module(self, module: nn.Module | None) -> None:
        """Name the layers of a module, or no longer."""
        if self._layers is not None:
            self._layers.remove()
        named = module is not None and self.record_module_names
        self._layers = LayerNames(module) if named and module is not None else None

    def start(self, action_name: str) -> None:
        """Name what is recorded from here on."""
        if self._running is not None:
            mark = record_function(action_name)
            mark.__enter__()  # type: ignore[no-untyped-call]
            self._open[action_name] = mark

    def stop(self, action_name: str) -> None:
        """Name it no longer, and go on in the schedule where a batch is over.

        Raises:
            UsageError: it was not started.
        """
        if self._running is None:
            return
        mark = self._open.pop(action_name, None)
        if mark is None:
            raise UsageError(
                f"PyTorchProfiler.stop({action_name!r}): this action was never started. Call "
                "start first, or use profile() as a context manager."
            )
        mark.__exit__(None, None, None)
        if action_name in _STEPS:
            self._running.step()

    def summary(self) -> str:
        """Return the table of what took the most time."""
        self._end()
        if self.emit_nvtx:
            return ""
        title = f"{self._stage.upper()} profile".strip()
        if self._recorded is None:
            return f"{title}: no batch was recorded, as the run had too few for the schedule"
        on_device = torch.cuda.is_available()
        events = self._recorded.key_averages(group_by_input_shape=self.group_by_input_shapes)
        table = events.table(
            sort_by=self.sort_by_key or ("device_time_total" if on_device else "cpu_time_total"),
            row_limit=self.row_limit,
            **self.table_kwargs,
        )
        return f"{title}\n{table.rstrip()}"

    def teardown(self, stage: str | None) -> None:  # noqa: ARG002 - whichever it was
        """Stop recording, whatever ended the run."""
        self._end()
        self._recorded = None

    def _end(self) -> None:
        self._nvtx.close()
        for mark in reversed(self._open.values()):
            mark.__exit__(None, None, None)
        self._open = {}
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def _take(self, recorded: profile) -> None:
        """Keep what was recorded for the table, and write the trace."""
        self._recorded = recorded
        if self.on_trace_ready is not None:
            self.on_trace_ready(recorded)
        elif self.export_to_chrome:
            paths = (self._path(f"trace-{number}.json.gz") for number in count())
            path = next(path for path in paths if not path.exists())
            write_trace(recorded, path)
            log.info("PyTorchProfiler: wrote %s; open it at https://ui.perfetto.dev", path)

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is recorded, which nothing can copy, out of copies and pickles."""
        fresh: dict[str, Any] = {"_open": {}, "_running": None, "_recorded": None, "_layers": None}
        return {**self.__dict__, **fresh, "_nvtx": ExitStack()}


def _check_key(key: str | None) -> str | None:
    if key is None or key in _SORT_KEYS:
        return key
    raise OptionError(
        f"sort_by_key {key!r} of PyTorchProfiler: it must be one of {', '.join(_SORT_KEYS)}. Pass "
        "one, or leave it out."
    )


def _check_schedule(given: object) -> None:
    """Make sure that a schedule says what is done at each batch.

    Raises:
        OptionError: it does not.
    """
    if given is None or (callable(given) and isinstance(given(0), ProfilerAction)):
        return
    raise OptionError(
        f"schedule {given!r} of PyTorchProfiler: it must be a function of a batch's number that "
        "returns a torch.profiler.ProfilerAction. Pass what torch.profiler.schedule(...) returns."
    )

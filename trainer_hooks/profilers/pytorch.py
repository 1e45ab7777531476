"""PyTorchProfiler: the operations of torch and of the device in each action of a run."""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
)

from trainer_hooks._log import log
from trainer_hooks._options import Rule, check_options
from trainer_hooks._system import move
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.profilers.profiler import Profiler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import nn
    from torch.utils.hooks import RemovableHandle

_ACTIVITIES = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU", "mtia": "MTIA"}
_WHERE = "PyTorchProfiler"
_LEAST_BATCHES = 5
"""The batches that the usual schedule needs; in a shorter run all are recorded."""
_STEPS = ("run_training_batch", "validation_step", "test_step", "predict_step")
"""Actions whose end is the end of a batch, at which the schedule advances."""
_SORT_KEYS = (
    "cpu_time", "device_time", "cpu_time_total", "device_time_total", "cpu_memory_usage",
    "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage",
    "self_cpu_time_total", "self_device_time_total", "cuda_time", "cuda_time_total",
    "cuda_memory_usage", "self_cuda_memory_usage", "self_cuda_time_total", "count",
)  # fmt: skip

_OPEN: WeakKeyDictionary[profile, str] = WeakKeyDictionary()
"""Torch's profilers that this package has started and not stopped, and who started each.

torch knows only of one that records: while it waits or warms up by its schedule, a second one can
be started, and the process crashes when the first one records.
"""

_RULES = {
    "sort_by_key": Rule(
        f"one of {', '.join(_SORT_KEYS)}",
        lambda value: value is None or value in _SORT_KEYS,
        "Pass one, or leave it out.",
    ),
    "schedule": Rule(
        "a function of a batch's number that returns a torch.profiler.ProfilerAction",
        # only a call shows what it returns; torch's schedules have no state
        lambda value: value is None or (callable(value) and isinstance(value(0), ProfilerAction)),
        "Pass what torch.profiler.schedule(...) returns.",
    ),
}


class PyTorchProfiler(Profiler):
    """Record a few batches with `torch.profiler`, together with the actions of the run.

    At the end of the run a table shows the slowest operations, and a trace for
    https://ui.perfetto.dev is written, `fit-trace-0.json.gz`. To record chosen batches of a fit
    only, use the callback `Profiler`.

    Args:
        dirpath: the folder for the files; the log folder by default.
        filename: the name of the summary's file; without one the summary is logged.
        group_by_input_shapes: whether the table has one row for each shape of inputs.
        emit_nvtx: whether to mark all operations for `nsys` instead of recording them; on a GPU.
        export_to_chrome: whether to write traces.
        row_limit: the number of rows of the table; -1 for all.
        sort_by_key: the column that sorts the table; by default `cpu_time_total`, or
            `device_time_total` on a GPU.
        record_module_names: whether the forward of each layer is an action, too.
        table_kwargs: other arguments of torch's `table` by name.
        activities: the activities to record: `"cpu"`, `"cuda"` ..., one or several; by default all
            that this machine has.
        schedule: a schedule as `torch.profiler.schedule` returns it; by default one batch is
            skipped, one warms up, and three are recorded; all, in a run of fewer batches.
        on_trace_ready: a function that gets torch's profiler at the end of each cycle of the
            schedule, instead of a trace being written.
        record_shapes: whether to record the shapes of inputs.
        profile_memory: whether to record allocations of memory.
        with_stack: whether to record the lines of Python code; slow.
        with_flops: whether to estimate the floating-point operations of some kernels.
        with_modules: whether to record the names of modules (TorchScript only).

    Attributes:
        function_events: the recorded operations of the last run, as torch's profiler lists them;
            None before a run.
        batches_expected: a function that returns the number of batches of the run, which the
            Trainer sets before one.

    Raises:
        OptionError: an argument breaks its rule.
        UsageError: another profiler of torch is running when a run begins.

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
        check_options("PyTorchProfiler", _RULES, sort_by_key=sort_by_key, schedule=schedule)
        self.group_by_input_shapes = group_by_input_shapes
        self.emit_nvtx = emit_nvtx
        self.export_to_chrome = export_to_chrome
        self.row_limit = row_limit
        self.sort_by_key = sort_by_key
        self.record_module_names = record_module_names
        self.table_kwargs = dict(table_kwargs or {})
        self.function_events: Any = None
        self.activities = activities_of(activities, "PyTorchProfiler")
        self.schedule = schedule
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
        self.batches_expected: Callable[[], float] | None = None
        self._open: dict[str, record_function | None] = {}
        self._is_in_run = False
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
        """Begin to record according to the schedule."""
        super().setup(stage, local_rank, log_dir)
        self._recorded = None
        if self.emit_nvtx:
            self._nvtx.enter_context(torch.cuda.profiler.profile())
            marks = torch.autograd.profiler.emit_nvtx()  # type: ignore[no-untyped-call]
            self._nvtx.enter_context(marks)
            return
        require_no_other(_WHERE, "Leave one of them out.")
        self._is_in_run = True
        # else with the first batch, when the loaders are there
        if self.schedule is not None or self.batches_expected is None:
            self._begin(self.schedule or _usual_schedule())

    def _begin(self, chosen: Callable[[int], ProfilerAction]) -> None:
        self._running = profile(
            activities=self.activities,
            schedule=chosen,
            on_trace_ready=self._keep_recording,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
            acc_events=True,  # otherwise the table shows the last cycle only
        )
        start_recorder(self._running, _WHERE)

    def attach_module(self, module: nn.Module | None) -> None:
        """Mark the forward of each layer of a module; None ends that."""
        if self._layers is not None:
            self._layers.remove()
        named = module is not None and self.record_module_names
        self._layers = LayerNames(module) if named and module is not None else None

    def start(self, action_name: str) -> None:
        """Mark the beginning of an action in the recording; outside of a run, begin to record."""
        if self._running is None and not self.emit_nvtx:
            if not self._is_in_run:
                require_no_other(_WHERE, "End that one first.")
                self._begin(_record_all)
            elif action_name in _STEPS and self.batches_expected is not None:
                is_short = self.batches_expected() < _LEAST_BATCHES
                self.batches_expected = None  # once in a run: a recording that ended stays so
                self._begin(_record_all if is_short else _usual_schedule())
        mark = None
        if self._running is not None:
            mark = record_function(action_name)
            mark.__enter__()  # type: ignore[no-untyped-call]
        self._open[action_name] = mark

    def stop(self, action_name: str) -> None:
        """Mark the end of an action, and advance the schedule at the end of a batch.

        Raises:
            UsageError: the action was not started.
        """
        if self._running is None:
            return
        if action_name not in self._open:
            raise UsageError(
                f"PyTorchProfiler.stop({action_name!r}): this action was never started. Call "
                "start first, or use profile() as a context manager."
            )
        mark = self._open.pop(action_name)
        if mark is not None:  # else it was begun before the recording
            mark.__exit__(None, None, None)
        if action_name in _STEPS and self._is_in_run:
            self._running.step()

    def summary(self) -> str:
        """Return the table of the slowest operations."""
        # a recording is handed over when it ends, and a table needs the last one
        self._end()
        # with nvtx the external profiler has the recording
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
        """Stop recording, however the run ended."""
        self._end()
        self._is_in_run = False
        if self._recorded is not None:
            self.function_events = self._recorded.events()  # type: ignore[no-untyped-call]
        self._recorded = None

    def _end(self) -> None:
        self._nvtx.close()
        # marks nest, so that the innermost must end first
        for mark in reversed(self._open.values()):
            if mark is not None:
                mark.__exit__(None, None, None)
        self._open = {}
        # forgotten first: `stop` calls `_keep_recording`, in which a user's function may raise
        running, self._running = self._running, None
        if running is not None:
            stop_recorder(running)

    def _keep_recording(self, recorded: profile) -> None:
        """Keep a finished recording for the table, and write its trace."""
        self._recorded = recorded
        if self.on_trace_ready is not None:
            self.on_trace_ready(recorded)
        elif self.export_to_chrome:
            paths = (self._path(f"trace-{number}.json.gz") for number in count())
            path = next(path for path in paths if not path.exists())
            write_trace(recorded, path)
            log.info("PyTorchProfiler: wrote %s; open it at https://ui.perfetto.dev", path)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the recordings, which cannot be copied or pickled."""
        fresh: dict[str, Any] = {"_open": {}, "_running": None, "_recorded": None, "_layers": None}
        fresh["function_events"] = fresh["batches_expected"] = None
        fresh["_is_in_run"] = False
        return {**self.__dict__, **fresh, "_nvtx": ExitStack()}


def _usual_schedule() -> Callable[[int], ProfilerAction]:
    """Return the schedule of a run with enough batches: the first ones are slower than others."""
    return schedule(wait=1, warmup=1, active=3, repeat=1)


def _record_all(step: int) -> ProfilerAction:  # noqa: ARG001 - torch's signature
    return ProfilerAction.RECORD


class LayerNames:
    """Forward hooks that mark each layer of a module in torch's recordings until `remove`.

    Args:
        module: the module whose layers are marked.
    """

    def __init__(self, module: nn.Module) -> None:
        self._marks: list[record_function] = []
        self._handles: list[RemovableHandle] = []
        self._names: dict[int, str] = {}
        for name, layer in module.named_modules():
            if name:
                self._names[id(layer)] = f"{type(layer).__qualname__}: {name}"
                self._handles += [
                    layer.register_forward_pre_hook(self._begin),
                    # always, so that a mark ends also where the forward raises
                    layer.register_forward_hook(self._end, always_call=True),
                ]

    def remove(self) -> None:
        """Remove the forward hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _begin(self, layer: nn.Module, inputs: Any) -> None:  # noqa: ARG002 - torch's signature
        mark = record_function(self._names.get(id(layer), type(layer).__qualname__))
        mark.__enter__()  # type: ignore[no-untyped-call]
        self._marks.append(mark)

    def _end(self, layer: nn.Module, inputs: Any, output: Any) -> None:  # noqa: ARG002
        if self._marks:
            self._marks.pop().__exit__(None, None, None)


def activities_of(activities: object, where: str) -> list[ProfilerActivity]:
    """Return the activities to record as members of `ProfilerActivity`.

    Args:
        activities: one or several, by name or as members; None for all that this machine has.
        where: the owner of the argument, for messages.

    Raises:
        OptionError: an activity is unknown, or the list is empty.
    """
    if activities is None:
        supported = supported_activities()  # type: ignore[no-untyped-call]
        return sorted(supported, key=lambda activity: str(activity.name))
    is_one = isinstance(activities, str | ProfilerActivity)
    several = [activities] if is_one else activities
    names = ", ".join(map(repr, _ACTIVITIES))
    if not isinstance(several, list | tuple | set | frozenset) or not several:
        raise OptionError(
            f"activities {activities!r} of {where}: they must be one or more of {names}. Pass a "
            "list of them."
        )
    members = []
    for item in several:
        if isinstance(item, ProfilerActivity):
            members.append(item)
        elif isinstance(item, str) and item in _ACTIVITIES:
            members.append(getattr(ProfilerActivity, _ACTIVITIES[item]))
        else:
            raise OptionError(
                f"activities {item!r} of {where}: it must be one of {names}. Pass one of them."
            )
    return members


def require_no_other(where: str, advice: str) -> None:
    """Require that no other profiler of torch is running: torch has room for one.

    Args:
        where: the name of the profiler that is about to start, for messages.
        advice: the last sentence of the message.

    Raises:
        UsageError: one is running, or waits for its first batch.
    """
    names = ", ".join(sorted(set(_OPEN.values())))
    if names or torch.autograd._profiler_enabled():  # type: ignore[attr-defined]  # noqa: SLF001
        raise second_profiler_error(where, names, advice)


def second_profiler_error(where: str, running: str, advice: str) -> UsageError:
    """Return the error for a profiler beside another one.

    Args:
        where: the name of the second.
        running: the name of the first; empty if it is not known.
        advice: the last sentence of the message.
    """
    return UsageError(
        f"{where} cannot record: another profiler of torch is running"
        f"{f' ({running})' if running else ''}, and torch can run only one at a time. {advice}"
    )


def require_no_run_profiler(where: str) -> None:
    """Require that no `PyTorchProfiler` is running, which lasts for the whole run.

    Args:
        where: the name of the profiler that is about to start, for messages.

    Raises:
        UsageError: one is running.
    """
    if _WHERE in _OPEN.values():
        raise second_profiler_error(where, _WHERE, "Leave one of them out.")


def start_recorder(recorder: profile, where: str) -> None:
    """Start a profiler of torch.

    Args:
        recorder: the profiler.
        where: the name of the object that starts it.
    """
    recorder.start()
    _OPEN[recorder] = where  # one that failed to start is not open


def stop_recorder(recorder: profile) -> None:
    """Stop a profiler of torch that `start_recorder` started."""
    # first: a function of the user's that `stop` calls may raise
    _OPEN.pop(recorder, None)
    recorder.stop()


def write_trace(recorded: profile, path: Path) -> None:
    """Write a recording as a trace for https://ui.perfetto.dev, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # torch compresses a file whose name ends in `.gz`, so that the name keeps its ending
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        recorded.export_chrome_trace(str(unfinished))
        move(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)

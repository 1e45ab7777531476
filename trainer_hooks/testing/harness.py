"""The harness of the test kit: it makes a callback and runs it, and watches its first run."""

from __future__ import annotations

import contextlib
import copy
import shutil
import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainer_hooks._names import ours
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.model_summary import ModelSummary
from trainer_hooks.callbacks.progress.progress_bar import ProgressBar
from trainer_hooks.callbacks.reporting.run_manifest import RunManifest
from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.connector.registry import validate_callback
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks.discovery import installed_hooks
from trainer_hooks.hooks.plugin import HOOKS_GROUP
from trainer_hooks.hooks.relay import RelayMember
from trainer_hooks.loggers.base import Logger
from trainer_hooks.runtime import rng
from trainer_hooks.testing.nested_diff import nested_differences
from trainer_hooks.testing.process_state import (
    ProcessChange,
    process_changes,
    read_process_state,
    restored_process_state,
)
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from trainer_hooks.module.module import Module

ENTRY_POINTS = ("fit", "validate", "test", "predict")

_SEED = 86_420_753  # a seed that a callback will hardly set itself, which would hide that it does
_MAX_WARM_UPS = 3  # a module that compiles itself may import generated code in each run
_MUTABLE = (list, dict, set, bytearray)


def run_entry_point(trainer: Trainer, entry_point: str, module: Module) -> None:
    """Run fit, validate, test or predict with the module's own loaders; print nothing."""
    quiet = {"verbose": False} if entry_point in ("validate", "test") else {}
    getattr(trainer, entry_point)(module, **quiet)


def overrides_hook(callback: Callback, hook: str) -> bool:
    """Return whether a callback overrides a hook, so that the relay calls it there."""
    name = type(callback).__qualname__
    member = RelayMember(callback, name, routes_events=ours(callback).routes_events)
    return member.listener(hook) is not None


class _NullLogger(Logger):
    """A logger for callbacks that refuse to run without one; it drops all values."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Drop the metrics."""


# no slots: `cached_property` needs a `__dict__`
@dataclass
class CallbackHarness:
    """A factory's callback with the module, options and folder that it is run with.

    Attributes:
        factory: makes the callback, or a list of several.
        make_module: makes the module that is trained.
        options: options of every trainer, which override the harness's own.
        may_differ: keys of the state, and hooks, that may differ after a resume, such as times.
        folder: the folder in which all runs write.
        position: which of the factory's callbacks is checked.
        count: how many callbacks the factory made.
    """

    factory: Callable[[], object]
    make_module: Callable[[], Module]
    options: Mapping[str, Any]
    may_differ: frozenset[str]
    folder: Path
    position: int = 0
    count: int = field(default=1, init=False)
    _root: Path | None = field(default=None, init=False)

    def make(self) -> Callback:
        """Make a new callback.

        Raises:
            CallbackError: the factory made no callback.
        """
        # also an entry point's factory, which may return a list: one of them is checked at a time
        product = self.factory()
        callbacks = list(product) if isinstance(product, list | tuple) else [product]
        self.count = len(callbacks)
        if not callbacks:
            raise CallbackError("the factory made no callback, but an empty list. Return one.")
        return validate_callback(callbacks[self.position], "what the factory made")

    @cached_property
    def first_run(self) -> FirstRun:
        """The first run with the callback; made once, on first use."""
        return FirstRun(self)

    @property
    def subject(self) -> str:
        """The name of the callback's class, or `"(not made)"` if the factory failed."""
        callback = self.first_run.callback
        return "(not made)" if callback is None else type(callback).__qualname__

    @contextlib.contextmanager
    def new_folder(self, name: str = "run") -> Iterator[Path]:
        """Work in an empty folder inside `folder`; an earlier one of that name is deleted."""
        folder = self.folder / name
        # empty, as the callback is to find no files of an earlier run
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with self.in_folder(folder):
            yield folder

    @contextlib.contextmanager
    def in_folder(self, folder: Path) -> Iterator[None]:
        """Make a folder the working directory and the trainers' root.

        The process state is restored afterwards, so that one fault is reported by one check.
        """
        self._root = folder
        with restored_process_state(), contextlib.chdir(folder):
            yield

    def make_trainer(self, *callbacks: Callback, **options: Any) -> Trainer:
        """Make a trainer of two short epochs on the CPU that prints nothing.

        Every error of a callback leaves it, whatever the callback's `on_error`.

        Args:
            *callbacks: its callbacks.
            **options: options that override those of the harness.
        """

        def switch(default: type[Callback]) -> bool | None:
            # the trainer refuses a switch that is False beside such a callback
            return None if any(isinstance(item, default) for item in callbacks) else False

        defaults: dict[str, Any] = {
            "accelerator": "cpu",
            # an installed callback would take part, and its faults would be the callback's: only
            # the hooks that packages add are there, as in a run
            "plugins": [HOOKS_GROUP] if self._adds_hooks else False,
            "logger": _NullLogger(),
            "enable_checkpointing": switch(Checkpoint),
            "enable_progress_bar": switch(ProgressBar),
            "enable_model_summary": switch(ModelSummary),
            "enable_run_manifest": switch(RunManifest),
            "default_root_dir": self._root,
            "max_epochs": 2,
            # an epoch of TinyModule has three batches, so that its end cuts a window
            "accumulate_grad_batches": 2,
            "iteration_length": 2,
            "log_every_n_steps": 1,
        }
        # a callback that is disabled at its first error would pass all that comes after
        raising = {type(callback).__qualname__: "raise" for callback in callbacks}
        # a check's own options come last: its epochs and limits are what it checks by
        given = {**defaults, **self.options, **options, "callback_errors": raising}
        return Trainer(callbacks=list(callbacks), **given)

    @cached_property
    def _adds_hooks(self) -> bool:
        """Whether an installed package adds hooks; looked up once, for there are many trainers."""
        return bool(installed_hooks())


class FirstRun:
    """The first run with a callback: fit, validate, test and predict, and the changes they made.

    A callback may act on the first run of a process alone: install a handler, start a thread. So
    the process is compared here, before any other check has touched the callback.

    Attributes:
        callback: the callback that took part, or None if it could not be made.
        twin: a second callback of the factory, which did not take part.
        make_error: the error with which one of them could not be made.
        errors: the error that left each part of the run: "Trainer", an entry point, "close".
        changes: the changes that the run left in the process.
        import_changes: those that came with the first import of a module, and no second time.
        imported: the packages that the run was the first to import from.
        consumed: the global random generators that the callback drew from or seeded.
        entry_points: the entry points that work without the callback; a module may lack a test
            step.
        shared: mutable values that both callbacks refer to and the run changed, described.
    """

    def __init__(self, harness: CallbackHarness) -> None:
        self.callback: Callback | None = None
        self.twin: Callback | None = None
        self.make_error: Exception | None = None
        self.errors: dict[str, Exception] = {}
        self.shared: list[str] = []
        self.import_changes: tuple[ProcessChange, ...] = ()
        self.entry_points: tuple[str, ...] = ENTRY_POINTS
        baseline = self._baseline(harness)
        self._require_runnable()
        with harness.new_folder("first_run"):
            # after the run without the callback: what torch changes at first use is in `before`
            before, modules = read_process_state(), frozenset(sys.modules)
            random_state = _random_state_after(lambda: self._examine(harness))
            self.changes = process_changes(before)
        new_modules = set(sys.modules) - modules
        self.imported = sorted({name.partition(".")[0] for name in new_modules})
        if self.changes and self.imported:
            self._clear_of_imports(harness)
        self.consumed = _changed_generators(baseline, random_state)
        # as in the baseline: the draw may be that of a module which a hook was the first to
        # import. Only a second run, which imports nothing, can convict the callback
        if self.consumed and not modules.issuperset(sys.modules):
            self.consumed = self._consumed_again(harness, baseline)

    def _baseline(self, harness: CallbackHarness) -> dict[str, Any]:
        """Return the random states after a run without the callback."""
        for _ in range(_MAX_WARM_UPS):
            modules = frozenset(sys.modules)
            with harness.new_folder("without"):
                baseline = _random_state_after(lambda: self._run(harness))
            # importing a module may draw random numbers, which happens once in a process, and the
            # first fit makes torch load a good part of itself. Such a run is no baseline
            if self.errors or modules.issuperset(sys.modules):
                break
        return baseline

    def _clear_of_imports(self, harness: CallbackHarness) -> None:
        """Take out of `changes` those that a second run, which imports nothing, does not make."""
        errors = dict(self.errors)  # the first run's count, whatever a second one raises
        with harness.new_folder("again"), contextlib.suppress(Exception):
            before = read_process_state()
            self._run(harness, harness.make())
            repeated = {change.what for change in process_changes(before)}
            self.import_changes = tuple(
                change
                for change in self.changes
                # a thread or an open file of the first run is still there
                if change.is_restorable and change.what not in repeated
            )
        self.errors = errors
        self.changes = tuple(c for c in self.changes if c not in self.import_changes)

    def _consumed_again(self, harness: CallbackHarness, baseline: dict[str, Any]) -> list[str]:
        """Run two new callbacks of the factory and name the generators that changed once more."""
        errors = dict(self.errors)  # the first run's count, whatever a second one raises
        with harness.new_folder("again"), contextlib.suppress(Exception):
            random_state = _random_state_after(
                # as in the first run, both are made: a constructor may draw as well
                lambda: self._run(harness, [harness.make(), harness.make()][0])
            )
            self.consumed = _changed_generators(baseline, random_state)
        self.errors = errors
        return self.consumed

    def _require_runnable(self) -> None:
        """Keep only the entry points that work without the callback.

        Raises:
            Exception: not even a fit works without it.
        """
        for part in ("Trainer", "fit", "close"):
            if part in self.errors:
                error = self.errors[part]
                error.add_note("the test kit's run without the callback raised this: mend `module`")
                raise error
        self.entry_points = tuple(stage for stage in ENTRY_POINTS if stage not in self.errors)
        self.errors.clear()

    def _examine(self, harness: CallbackHarness) -> None:
        """Make both callbacks, run the first one, and describe the values they share."""
        try:
            self.callback = harness.make()
            self.twin = harness.make()
        except Exception as error:  # noqa: BLE001 - a factory may raise anything; it is reported
            self.make_error = error
            return
        # copied before the run, since both callbacks hold the very same objects
        shared_values = _shared_values(self.callback, self.twin)
        state_before = self._state_of_twin()
        self._run(harness, self.callback)
        self.shared += [
            f"{owner} was {before!r} and is {now!r}"
            for owner, (now, before) in shared_values.items()
            if nested_differences(before, now)
        ]
        # the state of the twin may live where no attribute leads, as in a closure or a module
        if not self.shared:
            differences = nested_differences(state_before, self._state_of_twin(), "state_dict()")
            self.shared += [
                f"{item}, of a callback that took part in no run" for item in differences
            ]

    def _run(self, harness: CallbackHarness, *callbacks: Callback) -> None:
        """Run every entry point with one trainer; keep the errors in `errors`."""
        try:
            trainer = harness.make_trainer(*callbacks)
        except Exception as error:  # noqa: BLE001 - kept; the check of the first fit reports it
            self.errors["Trainer"] = error
            return
        module = harness.make_module()
        # the others also after an error, so that the author learns of all at once
        for part in (*self.entry_points, "close"):
            try:
                if part == "close":
                    trainer.close()
                else:
                    run_entry_point(trainer, part, module)
            except Exception as error:  # noqa: BLE001 - kept; the checks of runs report it
                self.errors[part] = error

    def _state_of_twin(self) -> Any:
        try:
            return copy.deepcopy(self.twin.state_dict()) if self.twin is not None else {}
        except Exception:  # noqa: BLE001 - the check of the state's round trip reports it
            return {}


def _random_state_after(action: Callable[[], None]) -> dict[str, Any]:
    """Seed the global generators, run an action, and return their states afterwards."""
    with rng.isolated():
        rng.reseed(_SEED)
        action()
        return rng.capture()


def _changed_generators(baseline: dict[str, Any], random_state: dict[str, Any]) -> list[str]:
    """Name the generators whose state differs from that of the run without the callback."""
    return [
        name for name in baseline if nested_differences(baseline[name], random_state.get(name, ()))
    ]


def _shared_values(first: Callback, second: Callback) -> dict[str, tuple[Any, Any]]:
    """Return the mutable values that two callbacks share, each with a copy, by a description."""
    values: dict[str, Any] = {}
    for owner in type(first).__mro__:
        if owner.__module__.startswith("trainer_hooks.hooks") or owner in (Callback, object):
            continue
        for name, value in vars(owner).items():
            if isinstance(value, _MUTABLE) and not name.startswith("__"):
                values[f"the class attribute {owner.__qualname__}.{name}"] = value
    for name, value in vars(first).items():
        if isinstance(value, _MUTABLE) and vars(second).get(name) is value:
            values[f"the attribute {name!r}, the same object in both,"] = value
    return {description: (value, _copy(value)) for description, value in values.items()}


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - it holds an object that cannot be copied, such as a lock
        return copy.copy(value)

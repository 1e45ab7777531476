"""Trial: the first contact with a callback, in which what happens only once is seen."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks.callback import Callback
from trainer_hooks.runtime import rng
from trainer_hooks.testing import world
from trainer_hooks.testing.comparing import differences
from trainer_hooks.testing.entry import ENTRY_POINTS, enter

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from trainer_hooks.module import Module
    from trainer_hooks.trainer import Trainer

__all__ = ["Trial", "Workshop"]

_SEED = 86_420_753  # hardly the one that a callback seeds with
_MUTABLE = (list, dict, set, bytearray)


class Workshop(Protocol):
    """Where callbacks are made and run: what a trial needs of a `Bench`."""

    @property
    def make_module(self) -> Callable[[], Module]:
        """What makes the module that is trained."""

    def make(self) -> Callback:
        """Return a new callback."""

    def room(self, name: str) -> AbstractContextManager[Path]:
        """Make an empty folder the working directory."""

    def trainer(self, *callbacks: Callback) -> Trainer:
        """Return a quiet trainer."""


class Trial:
    """Make two callbacks, run everything once with the first, and note what changed.

    A callback may act on the first run of a process alone: install a handler, start a thread. So
    what the process is like is compared here, before any other check has touched the callback.

    Attributes:
        callback: the callback that was run, or None if it could not be made.
        twin: a second one of the factory, which was not run.
        make_error: why one of them could not be made.
        errors: what left a step of the run, by step: "Trainer", an entry point, "close".
        changes: what of the process was different afterwards.
        consumed: which global random numbers were drawn or set, that are not without the callback.
        entry_points: what the module can be asked for; not each has a test step.
        shared: what both callbacks have in common and the run changed.
    """

    def __init__(self, bench: Workshop) -> None:
        self.callback: Callback | None = None
        self.twin: Callback | None = None
        self.make_error: Exception | None = None
        self.errors: dict[str, Exception] = {}
        self.shared: list[str] = []
        self.entry_points: tuple[str, ...] = ENTRY_POINTS
        with bench.room("without"):
            without = self._random_numbers_after(lambda: self._run(bench))
        self._require_runnable()
        with bench.room("trial"):
            before = world.read()
            with_it = self._random_numbers_after(lambda: self._meet(bench))
            self.changes = world.changes(before)
        self.consumed = [
            name for name in without if differences(without[name], with_it.get(name, ()))
        ]

    def _require_runnable(self) -> None:
        """Leave out what fails without the callback too.

        Raises:
            Exception: not even a fit works without it.
        """
        for step in ("Trainer", "fit", "close"):
            if step in self.errors:
                error = self.errors[step]
                error.add_note("the test kit's run without the callback raised this: mend `module`")
                raise error
        self.entry_points = tuple(step for step in ENTRY_POINTS if step not in self.errors)
        self.errors.clear()

    def _meet(self, bench: Workshop) -> None:
        try:
            self.callback = bench.make()
            self.twin = bench.make()
        except Exception as error:  # noqa: BLE001 - a factory may raise anything; it is reported
            self.make_error = error
            return
        had_in_common = _in_common(self.callback, self.twin)
        state_before = self._state_of_twin()
        self._run(bench, self.callback)
        self.shared += [
            f"{where} was {was!r} and is {now!r}"
            for where, (now, was) in had_in_common.items()
            if differences(was, now)
        ]
        if not self.shared:
            found = differences(state_before, self._state_of_twin(), "state_dict()")
            self.shared += [f"{place}, of a callback that took part in no run" for place in found]

    def _run(self, bench: Workshop, *callbacks: Callback) -> None:
        try:
            trainer = bench.trainer(*callbacks)
        except Exception as error:  # noqa: BLE001 - kept, and reported by the check of fits
            self.errors["Trainer"] = error
            return
        module = bench.make_module()
        for step in self.entry_points:
            self._attempt(step, partial(enter, trainer, step, module))
        self._attempt("close", trainer.close)

    def _attempt(self, step: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - kept, and reported by the checks of runs
            self.errors[step] = error

    def _random_numbers_after(self, action: Callable[[], None]) -> dict[str, Any]:
        with rng.isolated():
            rng.reseed(_SEED)
            action()
            return rng.capture()

    def _state_of_twin(self) -> Any:
        try:
            return copy.deepcopy(self.twin.state_dict()) if self.twin is not None else {}
        except Exception:  # noqa: BLE001 - the check of the state's round trip tells of it
            return {}


def _in_common(first: Callback, second: Callback) -> dict[str, tuple[Any, Any]]:
    """Return the mutable values that two callbacks share, by place, with copies of them."""
    found: dict[str, Any] = {}
    for owner in type(first).__mro__:
        if owner.__module__.startswith("trainer_hooks.hooks") or owner in (Callback, object):
            continue
        for name, value in vars(owner).items():
            if isinstance(value, _MUTABLE) and not name.startswith("__"):
                found[f"the class attribute {owner.__qualname__}.{name}"] = value
    for name, value in vars(first).items():
        if isinstance(value, _MUTABLE) and vars(second).get(name) is value:
            found[f"the attribute {name!r}, the same object in both,"] = value
    return {place: (value, _copy(value)) for place, value in found.items()}


def _copy(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - it holds what cannot be copied, a lock perhaps
        return copy.copy(value)

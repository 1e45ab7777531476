"""ActionMonitor: translate the hooks of a run into a profiler's actions."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trainer_hooks.hooks.relay import RelayMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.profilers.profiler import Profiler

ACTIONS: tuple[tuple[str, str, str, bool], ...] = (
    ("run_training_epoch", "on_train_epoch_start", "on_train_epoch_end", True),
    ("train_dataloader_next", "on_before_dataloader", "on_after_dataloader", False),
    ("run_training_batch", "on_train_batch_start", "on_train_batch_end", True),
    ("backward", "on_before_backward", "on_after_backward", False),
    ("optimizer_step", "on_before_optimizer_step", "on_after_optimizer_step", False),
    ("run_validation", "on_validation_run_start", "on_validation_run_end", True),
)
"""Actions between two hooks: name, first hook, last hook, whether it includes the hooks' calls."""


class ActionMonitor:
    """A monitor of the hook relay that calls a profiler's `start` and `stop` for each action.

    An action is one call of a hook on one callback, one step of the module, or the time between two
    hooks (see `ACTIONS`). A run without a profiler has no monitor, so its hooks cost nothing more.

    Args:
        profiler: the profiler to call.

    Attributes:
        opening: the relay's first member: starts the actions that include the hooks around them.
        closing: the relay's last member: starts the actions that leave out the hooks around them.
    """

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self._open: list[str] = []
        first: dict[str, Callable[..., None]] = {}
        last: dict[str, Callable[..., None]] = {}
        for action, begins, ends, with_hooks in ACTIONS:
            # the first member of the relay comes before all callbacks, the last one after them
            starts, stops = (first, last) if with_hooks else (last, first)
            starts[begins] = partial(self._begin, action)
            stops[ends] = partial(self._end, action)
        # an error skips the hooks that would end the actions
        last["teardown"] = self._end_all
        self.opening = RelayMember(SimpleNamespace(**first), "the profiler")
        self.closing = RelayMember(SimpleNamespace(**last), "the profiler")

    def watched(
        self, hook: str, member: RelayMember, call: Callable[..., object]
    ) -> Callable[..., Any]:
        """Return a function that calls an implementer's hook as an action named after both."""
        kind = type(member.implementer).__name__
        # two callbacks of one class are two actions, as far as their state keys differ
        key = getattr(member.implementer, "state_key", kind)
        owner = f"[Module]{kind}" if member.skip else f"[Callback]{key}"
        return self.as_action(f"{owner}.{hook}", call)

    def as_action(self, action: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs `call` as an action, unless the same action is open."""

        def measured(*args: Any) -> Any:
            # a nested call is part of the outer one
            if action in self._open:
                return call(*args)
            self._begin(action)
            try:
                return call(*args)
            finally:
                self._end(action)

        return measured

    def _begin(self, action: str, *_: object) -> None:
        self._end(action)  # an action whose end hook an error has skipped
        self._open.append(action)
        self._profiler.start(action)

    def _end(self, action: str, *_: object) -> None:
        """End an action, and before it every action inside it that was cut off."""
        # an error skips end hooks: actions that are still open inside this one end with it
        if action in self._open:
            while self._open[-1] != action:
                self._profiler.stop(self._open.pop())
            self._profiler.stop(self._open.pop())

    def _end_all(self, *_: object) -> None:
        while self._open:
            self._profiler.stop(self._open.pop())

"""Watch: tells a profiler of a run's actions, as the hooks tell of them."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trainer_hooks.hooks import Member

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.profilers.profiler import Profiler

__all__ = ["ACTIONS", "Watch"]

ACTIONS: tuple[tuple[str, str, str, bool], ...] = (
    ("run_training_epoch", "on_train_epoch_start", "on_train_epoch_end", True),
    ("train_dataloader_next", "on_before_dataloader", "on_after_dataloader", False),
    ("run_training_batch", "on_train_batch_start", "on_train_batch_end", True),
    ("backward", "on_before_backward", "on_after_backward", False),
    ("optimizer_step", "on_before_optimizer_step", "on_after_optimizer_step", False),
    ("run_validation", "on_validation_run_start", "on_validation_run_end", True),
)
"""Of each action between two hooks its name, the hooks, and whether what these do is part of it."""


class Watch:
    """Call a profiler's `start` and `stop` for what goes on in a run.

    It is a monitor of the relay, so hooks that are not watched cost what they did. Actions are each
    call of a hook, the steps, and what lies between two hooks (`ACTIONS`).

    Args:
        profiler: what is called.

    Attributes:
        opening: the relay's first member, which has the start of what includes its hooks.
        closing: its last member, which has the start of what does not.
    """

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self._open: list[str] = []
        first: dict[str, Callable[..., None]] = {}
        last: dict[str, Callable[..., None]] = {}
        for action, begins, ends, with_hooks in ACTIONS:
            starts, stops = (first, last) if with_hooks else (last, first)
            starts[begins] = partial(self._begin, action)
            stops[ends] = partial(self._end, action)
        last["teardown"] = self._end_all
        self.opening = Member(SimpleNamespace(**first), "the profiler")
        self.closing = Member(SimpleNamespace(**last), "the profiler")

    def watched(self, hook: str, member: Member, call: Callable[..., object]) -> Callable[..., Any]:
        """Return a function that calls a listener as an action."""
        kind = type(member.implementer).__name__
        key = getattr(member.implementer, "state_key", kind)
        owner = f"[Module]{kind}" if member.skip else f"[Callback]{key}"
        return self.step(f"{owner}.{hook}", call)

    def step(self, action: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that makes a call as an action; inside of itself it is none."""

        def measured(*args: Any) -> Any:
            if action in self._open:
                return call(*args)
            self._begin(action)
            try:
                return call(*args)
            finally:
                self._end(action)

        return measured

    def _begin(self, action: str, *_: object) -> None:
        self._end(action)  # it was cut off, as by an error that somebody caught
        self._open.append(action)
        self._profiler.start(action)

    def _end(self, action: str, *_: object) -> None:
        """End an action, and first what was cut off inside of it."""
        if action in self._open:
            while self._open[-1] != action:
                self._profiler.stop(self._open.pop())
            self._profiler.stop(self._open.pop())

    def _end_all(self, *_: object) -> None:
        while self._open:
            self._profiler.stop(self._open.pop())

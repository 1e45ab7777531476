"""The relay: the catalogue's methods, each fanning out to the members that override it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import StopTraining
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.spec import ALIASES, HOOKS, overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["HookRelay", "Member", "call_noting", "describe_error"]

_ISOLATED = frozenset(
    {"on_exception", "on_keyboard_interrupt", "teardown", "on_close", "on_post_close"}
)
"""Hooks that run for every member, even if one of them fails."""

_CUTTING = frozenset(
    {
        "on_train_batch_start", "on_before_train_batch", "on_before_zero_grad",
        "on_before_forward", "on_after_forward", "on_before_loss", "on_after_loss",
        "on_before_backward", "on_after_backward", "on_before_optimizer_step",
        "on_after_train_batch", "on_after_optimizer_step",
        "on_validation_batch_start", "on_validation_before_forward", "on_validation_after_forward",
        "on_test_batch_start",
        "on_predict_batch_start", "on_predict_before_forward", "on_predict_after_forward",
    }
)  # fmt: skip
"""Hooks in which a request to stop cuts the batch in work off, so that it reaches the loop."""


@dataclass(frozen=True, slots=True)
class Member:
    """One implementer of hooks that the relay calls.

    Attributes:
        implementer: the object with the hook methods.
        label: how an error names it, as in `EarlyStopping (state_key ...)`.
        skip: how many leading arguments it does not take. 0 for a callback; 2 for the module,
            whose hooks are given neither the trainer nor itself.
        routes_events: whether its `run_event` receives every event instead of the named hooks.
        on_failure: what is told of an error in a hook, with the hook's name, so that the run goes
            on. None lets errors through; a request to stop always passes.
    """

    implementer: object
    label: str
    skip: int = 0
    routes_events: bool = False
    on_failure: Callable[[str, Exception], None] | None = None

    def listener(self, hook: str) -> Callable[..., object] | None:
        """Return what to call at `hook`, or None if this member does not override it."""
        call = self._own(hook)
        if call is None or self.on_failure is None:
            return call
        return partial(_shielded, call, self.on_failure, hook)

    def _own(self, hook: str) -> Callable[..., object] | None:
        if self.routes_events:
            return partial(self.implementer.run_event, hook)  # type: ignore[attr-defined]
        for name in (hook, *(old for old, new in ALIASES.items() if new == hook)):
            if overrides(self.implementer, name):
                return getattr(self.implementer, name)  # type: ignore[no-any-return]
        return None


def _shielded(
    call: Callable[..., object], on_failure: Callable[[str, Exception], None], hook: str, *args: Any
) -> None:
    """Call, and hand an error on to `on_failure` instead of the caller."""
    try:
        call(*args)
    except StopTraining:
        raise
    except Exception as error:  # noqa: BLE001 - the callback asked that none ends the run
        on_failure(hook, error)


_Listener = tuple["Callable[..., object]", int, str]


class HookRelay(Hooks):
    """Call a hook on the relay to call it on every member that overrides it, in order.

    A hook that nobody overrides stays the catalogue's empty method. One with listeners is shadowed
    by a fan-out over a tuple that never changes: connecting others from inside a hook takes effect
    at the next firing.

    Attributes:
        listened: the hooks that somebody overrides.
        on_stop: what is told of a `StopTraining` that was raised in a hook, once all its listeners
            had their turn, so that the hook's counterpart still fires. None lets it through, and so
            do the hooks inside of a batch, which it cuts off.
    """

    def __init__(self, members: Sequence[Member] = ()) -> None:
        self.listened: frozenset[str] = frozenset()
        self.on_stop: Callable[[StopTraining], None] | None = None
        self.connect(members)

    def connect(self, members: Sequence[Member]) -> None:
        """Replace all members."""
        fan_outs = {}
        for hook in HOOKS:
            listeners: list[_Listener] = []
            for member in members:
                call = member.listener(hook)
                if call is not None:
                    listeners.append((call, member.skip, member.label))
            if listeners:
                fan_outs[hook] = (
                    _fan_out_to_all(hook, tuple(listeners))
                    if hook in _ISOLATED
                    else _fan_out(hook, tuple(listeners), self._stop)
                )
        for hook in self.listened:
            del self.__dict__[hook]
        self.__dict__.update(fan_outs)
        self.listened = frozenset(fan_outs)

    def _stop(self, hook: str, request: StopTraining) -> None:
        if self.on_stop is None or hook in _CUTTING:
            raise request
        self.on_stop(request)


def _fan_out(
    hook: str, listeners: tuple[_Listener, ...], stop: Callable[[str, StopTraining], None]
) -> Callable[..., None]:
    """Return a function that calls `listeners` in turn and stops at the first error.

    A request to stop is none: the others still have their turn, then `stop` is told of the first.
    """

    def fire(*args: Any) -> None:
        request: StopTraining | None = None
        for call, skip, label in listeners:
            try:
                call(*args[skip:])
            except StopTraining as error:
                error.add_note(f"raised in hook {hook!r} of {label}")
                request = request or error
            except BaseException as error:
                error.add_note(f"raised in hook {hook!r} of {label}")
                raise
        if request is not None:
            stop(hook, request)

    return fire


def _fan_out_to_all(hook: str, listeners: tuple[_Listener, ...]) -> Callable[..., None]:
    """Return a function that calls every listener, then raises the first error with the others."""

    def fire(*args: Any) -> None:
        errors = []
        for call, skip, label in listeners:
            try:
                call(*args[skip:])
            except BaseException as error:  # noqa: BLE001 - collected, and raised below
                error.add_note(f"raised in hook {hook!r} of {label}")
                errors.append(error)
        if errors:
            first, *others = errors
            for other in others:
                if other is first:  # an `on_exception` that raises what it was given
                    continue
                first.add_note(f"and then, of the same hook: {describe_error(other)}")
            raise first

    return fire


def call_noting(error: BaseException, call: Callable[..., object], *arguments: Any) -> None:
    """Call while `error` is on its way; what fails in that is noted on it."""
    try:
        call(*arguments)
    except BaseException as other:  # noqa: BLE001 - noted on the error that is raised
        if other is not error:
            error.add_note(f"and then, while it was reported: {describe_error(other)}")


def describe_error(error: BaseException) -> str:
    """Return an error's type, message and notes in one line."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}" + (f" ({notes})" if notes else "")

"""The relay: the catalogue's methods, each fanning out to the members that override it."""

from __future__ import annotations

import sys
from functools import partial
from inspect import ismethod
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks._log import warn
from trainer_hooks.errors import StopTraining, TrainerHooksWarning, add_note, described
from trainer_hooks.hooks.catalogue import Hooks
from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from trainer_hooks.hooks.member import Member
    from trainer_hooks.hooks.spec import HookSpec

__all__ = [
    "HookRelay",
    "Monitor",
    "call_noting",
    "describe_error",
    "hook_in_work",
    "is_isolated",
    "is_module_first",
    "place_in_work",
]

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
        "on_validation_after_loss",
        "on_test_batch_start",
        "on_predict_batch_start", "on_predict_before_forward", "on_predict_after_forward",
    }
)  # fmt: skip
"""Hooks in which a request to stop cuts the batch in work off, so that it reaches the loop."""

_MODULE_FIRST = frozenset({"on_load_checkpoint"})
"""Hooks that `fire_to_module` calls on the module, before the callbacks have their turn."""

_Listener = tuple["Callable[..., object]", int, str]


class Monitor(Protocol):
    """What looks on at every call of a listener, as a profile does."""

    def watched(self, hook: str, member: Member, call: Callable[..., object]) -> Callable[..., Any]:
        """Return what is to be called in place of `call`, a member's listener at `hook`."""

    @property
    def opening(self) -> Member:
        """A member of its own that has its turn before all others, unwatched."""

    @property
    def closing(self) -> Member:
        """A member of its own that has its turn after all others, unwatched."""


class HookRelay(Hooks):
    """Call a hook on the relay to call it on every member that overrides it, in order.

    A hook that nobody overrides stays the catalogue's empty method. One with listeners is shadowed
    by a fan-out over a tuple that never changes: connecting others from inside a hook takes effect
    at the next firing.

    Args:
        members: who is called, in order.
        hooks: the hooks that there are.

    Attributes:
        hooks: likewise.
        listened: the hooks that somebody may override.
        on_stop: what is told of a `StopTraining` that was raised in a hook, once all its listeners
            had their turn, so that the hook's counterpart still fires. None lets it through, and so
            do the hooks inside of a batch, which it cuts off.
        on_end_epoch: is called where the module's `on_train_batch_start` returns -1; what else
            hooks return is told once, and ignored.
    """

    def __init__(
        self, members: Sequence[Member] = (), hooks: Mapping[str, HookSpec] = HOOKS
    ) -> None:
        self.hooks = hooks
        self.listened: frozenset[str] = frozenset()
        self.on_stop: Callable[[StopTraining], None] | None = None
        self.on_end_epoch: Callable[[], None] | None = None
        self._told: set[tuple[str, str]] = set()
        self._monitors: tuple[Monitor, ...] = ()
        self._members: Sequence[Member] = ()
        self._source: Callable[[], Sequence[Member]] | None = None
        self._stubs = {hook: partial(self._settle_and_fire, hook) for hook in hooks}
        self.connect(members)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the fan-outs out of copies and pickles, and who looks on."""
        hooks = None if self.hooks is HOOKS else dict(self.hooks)
        return {"hooks": hooks, "members": (self._source or (lambda: self._members))()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Be the relay of a copy's members."""
        self.__init__(hooks=HOOKS if state["hooks"] is None else state["hooks"])  # type: ignore[misc]
        self.connect_later(lambda: state["members"])

    def connect(self, members: Sequence[Member]) -> None:
        """Replace all members."""
        self._source = None
        self._members = members
        for monitor in self._monitors:
            members = (monitor.opening, *members, monitor.closing)
        fan_outs = {}
        for hook, listeners in self._listeners(members).items():
            fan_outs[hook] = (
                _fan_out_to_all(hook, tuple(listeners), self._stop, self._returned)
                if hook in _ISOLATED
                else _fan_out(hook, tuple(listeners), self._stop, self._returned)
            )
        for hook in self.listened:
            del self.__dict__[hook]
        self.__dict__.update(fan_outs)
        self.listened = frozenset(fan_outs)

    def connect_later(self, source: Callable[[], Sequence[Member]]) -> None:
        """Replace all members by those that `source` gives at the next firing of any hook.

        So a thousand registrations in a row cost a thousand times one, and not each time all.
        """
        self._source = source
        self.__dict__.update(self._stubs)
        self.listened = frozenset(self._stubs)

    def observe(self, monitor: Monitor) -> None:
        """Let a monitor look on at every call from the next firing on, around those before it."""
        self._look_on((*self._monitors, monitor))

    def leave(self, monitor: Monitor) -> None:
        """Take a monitor out."""
        self._look_on(tuple(one for one in self._monitors if one is not monitor))

    def _look_on(self, monitors: tuple[Monitor, ...]) -> None:
        self._monitors = monitors
        members = self._members
        self.connect_later(self._source or (lambda: members))

    def fire(self, hook: str, *args: Any) -> None:
        """Call a hook by name; for those that are in `hooks` and not in the catalogue."""
        if hook in self.listened:
            getattr(self, hook)(*args)

    def fire_to_module(self, hook: str, *args: Any) -> None:
        """Call a hook on the module alone; for one that it hears of before all others."""
        self._settle()
        for member in self._members:
            listener = self._listener(hook, member) if member.skip else None
            if listener is not None:
                _fan_out(hook, (listener,), self._stop, self._returned)(*args)

    def fire_event(
        self,
        event: str,
        leading: tuple[Any, ...],
        arguments: Mapping[str, Any],
        positional: tuple[Any, ...] = (),
    ) -> bool:
        """Call the method named `event`, which is no hook, on every member but the module.

        Returns:
            Whether anybody has one.
        """
        self._settle()
        listeners: list[_Listener] = []
        for member in self._members:
            if member.skip == 0:
                call = member.event_listener(event, leading, arguments, positional)
                if call is not None:
                    call = self._watched(event, member, call)
                    listeners.append((member.shielded(call, event), 0, member.label))
        _fan_out(event, tuple(listeners), self._stop, _drop)()
        return bool(listeners)

    def _listeners(self, members: Sequence[Member]) -> dict[str, list[_Listener]]:
        found: dict[str, list[_Listener]] = {}
        for member in members:
            for hook in self.hooks:
                listener = self._listener(hook, member)
                if listener is not None and not (member.skip and hook in _MODULE_FIRST):
                    found.setdefault(hook, []).append(listener)
        return found

    def _listener(self, hook: str, member: Member) -> _Listener | None:
        call = member.listener(hook, self.hooks)
        if call is None:
            return None
        return member.shielded(self._watched(hook, member, call), hook), member.skip, member.label

    def _watched(
        self, hook: str, member: Member, call: Callable[..., object]
    ) -> Callable[..., object]:
        if any(member is one.opening or member is one.closing for one in self._monitors):
            return call
        for monitor in self._monitors:
            call = monitor.watched(hook, member, call)
        return call

    def _settle(self) -> None:
        if self._source is not None:
            self.connect(self._source())

    def _settle_and_fire(self, hook: str, *args: Any) -> None:
        self._settle()
        self.fire(hook, *args)

    def _returned(self, hook: str, listener: _Listener, result: object) -> None:
        """Take what a hook returned: a word of Lightning's, or what nobody asked for."""
        call, skip, label = listener
        is_end = hook == "on_train_batch_start" and isinstance(result, int) and result == -1
        if is_end and skip and self.on_end_epoch is not None:
            self.on_end_epoch()
            return
        # of a function that was put in a hook's place, such as a lambda, it is by chance
        if (hook, label) in self._told or not (skip or ismethod(call)):
            return
        self._told.add((hook, label))
        what = repr(result) if isinstance(result, int) else f"a {type(result).__qualname__}"
        warn(
            f"the hook {hook!r} of {label} returned {what}: hooks return None, and nothing is done "
            "with it. Call trainer.skip_batch() or trainer.stop(reason) to act on the run, or "
            "return nothing.",
            TrainerHooksWarning,
        )

    def _stop(self, hook: str, request: StopTraining) -> None:
        if self.on_stop is None or hook in _CUTTING:
            raise request
        self.on_stop(request)


def _drop(event: str, listener: _Listener, result: object) -> None:
    """Do nothing with what the listener of an event returns, which is the user's own."""


def _fan_out(
    hook: str,
    listeners: tuple[_Listener, ...],
    stop: Callable[[str, StopTraining], None],
    returned: Callable[[str, _Listener, object], None],
) -> Callable[..., None]:
    """Return a function that calls `listeners` in turn and stops at the first error.

    A request to stop is none: the others still have their turn, then `stop` is told of the first.
    """

    def fire(*args: Any) -> None:
        request: StopTraining | None = None
        for call, skip, label in listeners:
            try:
                if (result := call(*args[skip:])) is not None:
                    returned(hook, (call, skip, label), result)
            except StopTraining as error:
                add_note(error, f"raised in hook {hook!r} of {label}")
                request = request or error
            except BaseException as error:
                add_note(error, f"raised in hook {hook!r} of {label}")
                raise
        if request is not None:
            stop(hook, request)

    return fire


def _fan_out_to_all(
    hook: str,
    listeners: tuple[_Listener, ...],
    stop: Callable[[str, StopTraining], None],
    returned: Callable[[str, _Listener, object], None],
) -> Callable[..., None]:
    """Return a function that calls every listener, then raises the first error with the others.

    Of a request to stop, which is none, `stop` is told unless there is an error.
    """

    def fire(*args: Any) -> None:
        errors = []
        request: StopTraining | None = None
        for call, skip, label in listeners:
            try:
                if (result := call(*args[skip:])) is not None:
                    returned(hook, (call, skip, label), result)
            except StopTraining as error:
                add_note(error, f"raised in hook {hook!r} of {label}")
                request = request or error
            except BaseException as error:  # noqa: BLE001 - collected, and raised below
                add_note(error, f"raised in hook {hook!r} of {label}")
                errors.append(error)
        if errors:
            first, *others = errors
            for other in others:
                if other is first:  # an `on_exception` that raises what it was given
                    continue
                add_note(first, f"and then, of the same hook: {describe_error(other)}")
            raise first
        if request is not None:
            stop(hook, request)

    return fire


def call_noting(error: BaseException, call: Callable[..., object], *arguments: Any) -> None:
    """Call while `error` is on its way; what fails in that is noted on it."""
    try:
        call(*arguments)
    except BaseException as other:  # noqa: BLE001 - noted on the error that is raised
        if other is not error:
            add_note(error, f"and then, while it was reported: {describe_error(other)}")


def describe_error(error: BaseException) -> str:
    """Return an error's type, message and notes in one line; it never fails."""
    told = error.__dict__.get("__notes__")
    notes = "; ".join(map(str, told)) if isinstance(told, list) else ""
    return described(error) + (f" ({notes})" if notes else "")


def hook_in_work(frame: FrameType | None = None) -> str:
    """Return the hook from inside which this is called, the innermost; an empty text if none.

    It is read from the stack, so that a firing need not note what it fires.

    Args:
        frame: where to look, as for another thread; the caller's unless given.
    """
    firing = _firing(sys._getframe(1) if frame is None else frame)  # noqa: SLF001 - documented
    return "" if firing is None else str(firing.f_locals["hook"])


def place_in_work(frame: FrameType | None) -> str:
    """Return the innermost hook that a thread is in, and whose: `on_fit_start of 'Timer'`.

    Args:
        frame: the call that the thread is in.
    """
    firing = _firing(frame)
    if firing is None:
        return ""
    return f"{firing.f_locals['hook']} of {firing.f_locals.get('label', 'nobody')}"


def _firing(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code not in _FIRING:
        frame = frame.f_back
    return frame


def is_module_first(hook: str) -> bool:
    """Return whether the module hears of `hook` before any callback, whatever their bands."""
    return hook in _MODULE_FIRST


def is_isolated(hook: str) -> bool:
    """Return whether `hook` runs for every listener, even if one of them fails."""
    return hook in _ISOLATED


_FIRING = (
    _fan_out("", (), print, print).__code__,
    _fan_out_to_all("", (), print, print).__code__,
)
"""What runs while a hook is fired."""

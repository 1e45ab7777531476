"""HookRelay: the catalogue's methods, each calling the members that override it, in order."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from inspect import ismethod
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol

from trainer_hooks._log import warn
from trainer_hooks._names import ours_if_left
from trainer_hooks.errors import (
    StopTraining,
    TrainerHooksWarning,
    add_note,
    error_summary,
    is_interruption,
)
from trainer_hooks.hooks.catalogue import USUAL, Hooks
from trainer_hooks.hooks.forked_copy import allow_in_forks, end_process, refuse_in_forks
from trainer_hooks.hooks.spec import (
    ALIASES,
    HOOKS,
    declared_hook,
    is_empty_hook,
    overridden,
    overrides,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import FrameType

    from trainer_hooks.hooks.catalogue import HookTraits
    from trainer_hooks.hooks.spec import HookSpec

_OLDER_NAMES = {new: old for old, new in ALIASES.items()}

_Listener = tuple["Callable[..., object]", int, str]
"""What `RelayMember.listener` returns, the member's `skip`, and its label for errors."""


@dataclass(frozen=True, slots=True)
class RelayMember:
    """A callback, the module, or another object with hooks, as the relay calls it.

    The others are the connector's leader, as the Trainer of another framework that runs on ours,
    and the opening and closing member of a monitor.

    Attributes:
        implementer: the object with the hook methods.
        label: how an error names the member, as in
            `callback Timer (state_key 'Timer', from Trainer(callbacks=...))`.
        skip: number of leading arguments that its hooks do not take: 2 for the module, whose hooks
            take neither the trainer nor the module, and 0 for any other member. The relay knows the
            module by it.
        routes_events: whether its `run_event` receives every event instead of the named hooks.
        on_failure: called with the hook's name and the error when one of its hooks fails; the run
            then goes on. None lets errors through. A `StopTraining`, Ctrl-C and the exit that a
            signal asks for always pass.
        supplier: who supplied the member, in words.
    """

    implementer: object
    label: str
    skip: int = 0
    routes_events: bool = False
    on_failure: Callable[[str, BaseException], None] | None = None
    supplier: str = ""

    def candidates(self, hooks: Mapping[str, HookSpec]) -> Iterable[str]:
        """Return the hooks that may have a `listener`, in their order; no others have one."""
        if self.routes_events:
            return hooks
        names = {ALIASES.get(name, name) for name in overridden(self.implementer, hooks)}
        names.update(getattr(type(self.implementer), "translated_hooks", ()))
        return [hook for hook in hooks if hook in names]

    def listener(
        self, hook: str, hooks: Mapping[str, HookSpec] = HOOKS
    ) -> Callable[..., object] | None:
        """Return the function to call at `hook`, or None if this member does not override it."""
        if self.routes_events:
            receive = self._event_receiver(hook)
            if hook in hooks and not hooks[hook].takes_module:
                # run_event always takes trainer and module; the init hooks fire before a module
                return lambda trainer: receive(trainer, None)
            return receive
        # a foreign callback: its adapter says which function to call
        if hook in getattr(type(self.implementer), "translated_hooks", ()):
            return self.implementer.translated(hook)  # type: ignore[attr-defined, no-any-return]
        # the present name first: a class with both is meant for old and new releases
        for name in (hook, _OLDER_NAMES.get(hook)):
            if name is not None and overrides(self.implementer, name, hooks):
                owner = ours_if_left(self.implementer, name)
                method = _without_argument_aliases(getattr(owner, name))
                return _with_optional_loader_index(method)
        return None

    def event_listener(
        self,
        event: str,
        leading: tuple[Any, ...],
        arguments: Mapping[str, Any],
        positional: tuple[Any, ...] = (),
    ) -> Callable[..., object] | None:
        """Return a function without arguments that delivers an event which is no hook, or None.

        Args:
            event: the event's name, which is the name of the method to call.
            leading: the trainer and the module, for a `run_event`.
            arguments: the method's keyword arguments.
            positional: the method's positional arguments.
        """
        # a `run_event` has no names for the arguments: they come in the order of the caller's
        if self.routes_events:
            return partial(self._event_receiver(event), *leading, *positional, *arguments.values())
        method = getattr(self.implementer, event, None)
        if method is None or is_empty_hook(method):
            return None
        return partial(method, *positional, **arguments)

    def shielded(self, call: Callable[..., object], hook: str) -> Callable[..., object]:
        """Return `call`, or where there is an `on_failure`, a function that gives it the errors."""
        return call if self.on_failure is None else partial(_shielded, call, self.on_failure, hook)

    def _event_receiver(self, event: str) -> Callable[..., object]:
        return partial(self.implementer.run_event, event)  # type: ignore[attr-defined]


def _without_argument_aliases(method: Callable[..., object]) -> Callable[..., object]:
    """Return a hook as its class defines it, without the wrapper of `ARGUMENT_ALIASES`.

    The relay passes arguments by position, so that the wrapper would be a frame for nothing.
    """
    declared = declared_hook(getattr(method, "__func__", None))
    if declared is None:
        return method
    return MethodType(declared, method.__self__)  # type: ignore[attr-defined]


def _with_optional_loader_index(method: Callable[..., object]) -> Callable[..., object]:
    """Return a hook that can be called without `dataloader_idx`, which is then 0.

    A run passes the index only where there are several loaders. Lightning 1.x passed it always, so
    that hooks for it require the argument.
    """
    if not ismethod(method):
        return method
    function = method.__func__
    code = getattr(function, "__code__", None)
    # positional parameters come first, before keyword-only ones and local variables
    by_position = () if code is None else code.co_varnames[: code.co_argcount]
    if by_position[-1:] != ("dataloader_idx",) or function.__defaults__:
        return method

    def hook(self: object, *args: Any) -> object:
        return function(self, *args, *((0,) if len(args) + 1 < len(by_position) else ()))

    # a method again: a value that a hook of a method returns is warned of
    return MethodType(hook, method.__self__)


def _shielded(
    call: Callable[..., object],
    on_failure: Callable[[str, BaseException], None],
    hook: str,
    *args: Any,
) -> object:
    try:
        return call(*args)
    # BaseException: as with the loading of plugins, sys.exit() in a callback is a fault of it
    except BaseException as error:
        if isinstance(error, StopTraining) or is_interruption(error):
            raise
        on_failure(hook, error)
        return None


class HookMonitor(Protocol):
    """An observer of every hook call, as a profile is."""

    def watched(
        self, hook: str, member: RelayMember, call: Callable[..., object]
    ) -> Callable[..., Any]:
        """Return the function to call in place of `call`, a member's listener at `hook`."""

    @property
    def opening(self) -> RelayMember:
        """The monitor's own member that has its turn before all others and is not watched."""

    @property
    def closing(self) -> RelayMember:
        """The monitor's own member that has its turn after all others and is not watched."""


class HookRelay(Hooks):
    """Call a hook on the relay to call it on every member that overrides it, in order.

    A hook without listeners stays the catalogue's empty method. One with listeners is shadowed by
    an instance attribute: a function that calls a fixed tuple of listeners. A change of members
    from inside a hook takes effect at the next firing.

    Args:
        members: the callbacks and the module, in order.
        hooks: all known hooks by name.

    Attributes:
        hooks: all known hooks by name.
        listened: the hooks that have listeners; from `connect_later` to the next firing, all hooks.
        on_stop: called with a `StopTraining` that a hook raised, once all the hook's listeners had
            their turn, so that the matching end hook still fires. With None, and in a hook that
            `cuts_batch`, the error is raised instead.
        on_end_epoch: called where the module's `on_train_batch_start` returns -1. Any other return
            value of a hook is ignored with one warning.
    """

    def __init__(
        self, members: Sequence[RelayMember] = (), hooks: Mapping[str, HookSpec] = HOOKS
    ) -> None:
        self.hooks = hooks
        self.listened: frozenset[str] = frozenset()
        self.on_stop: Callable[[StopTraining], None] | None = None
        self.on_end_epoch: Callable[[], None] | None = None
        self._owner: int | None = None
        # a hook of a batch would otherwise warn thousands of times
        self._warned_returns: set[tuple[str, str]] = set()
        self._monitors: tuple[HookMonitor, ...] = ()
        self._members: Sequence[RelayMember] = ()
        self._pending_members: Callable[[], Sequence[RelayMember]] | None = None
        self._stubs = {hook: partial(self._connect_and_fire, hook) for hook in hooks}
        self.connect(members)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the functions that fire hooks and the monitors out of copies and pickles."""
        # the usual table as None: a mappingproxy cannot be pickled
        hooks = None if self.hooks is HOOKS else dict(self.hooks)
        return {"hooks": hooks, "members": (self._pending_members or (lambda: self._members))()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Connect the members of a copy at its first firing."""
        self.__init__(hooks=HOOKS if state["hooks"] is None else state["hooks"])  # type: ignore[misc]
        self.connect_later(lambda: state["members"])

    def begin_run(
        self,
        on_stop: Callable[[StopTraining], None],
        on_end_epoch: Callable[[], None] | None = None,
    ) -> None:
        """Set the functions that a run receives requests with, and note that this process runs it.

        Args:
            on_stop: see the attribute.
            on_end_epoch: likewise.
        """
        self.on_stop, self.on_end_epoch = on_stop, on_end_epoch
        self._owner = os.getpid()
        refuse_in_forks(self)

    def end_run(self) -> None:
        """Take back the settings of `begin_run`."""
        self.on_stop = self.on_end_epoch = self._owner = None
        allow_in_forks(self)

    @property
    def is_forked_copy(self) -> bool:
        """Whether this process was forked inside the run, so that the run is another process's."""
        return self._owner is not None and self._owner != os.getpid()

    def end_forked_copy(self, error: BaseException) -> None:
        """End this process with an error, if it was forked inside the run; else do nothing."""
        if self.is_forked_copy:
            end_process(error)

    def connect(self, members: Sequence[RelayMember]) -> None:
        """Replace all members."""
        self._pending_members = None
        self._members = members
        # each monitor outside of those before it, as its `watched` wraps theirs
        for monitor in self._monitors:
            members = (monitor.opening, *members, monitor.closing)
        fan_outs = {}
        for hook, listeners in self._listeners(members).items():
            fan_outs[hook] = self._fan_out(hook, tuple(listeners))
        # instance attributes shadow the catalogue's methods: without one the empty method is called
        for hook in self.listened:
            del self.__dict__[hook]
        self.__dict__.update(fan_outs)
        self.listened = frozenset(fan_outs)

    def connect_later(self, members: Callable[[], Sequence[RelayMember]]) -> None:
        """Replace all members at the next firing of any hook, by those that `members` returns then.

        Connecting costs time for each member and hook: so a thousand registrations in a row pay for
        one connection and not for a thousand.
        """
        self._pending_members = members
        # a stub at every hook: which of them have listeners is not known before the connection
        self.__dict__.update(self._stubs)
        self.listened = frozenset(self._stubs)

    def observe(self, monitor: HookMonitor) -> None:
        """Add a monitor, which wraps every call from the next firing on, outside earlier ones."""
        self._set_monitors((*self._monitors, monitor))

    def leave(self, monitor: HookMonitor) -> None:
        """Remove a monitor."""
        self._set_monitors(tuple(other for other in self._monitors if other is not monitor))

    def _set_monitors(self, monitors: tuple[HookMonitor, ...]) -> None:
        self._monitors = monitors
        # members that were announced and not yet connected must not be lost
        members = self._members
        self.connect_later(self._pending_members or (lambda: members))

    def fire(self, hook: str, *args: Any) -> None:
        """Call a hook by name, as one that a plugin adds and the catalogue does not have."""
        if hook in self.listened:
            getattr(self, hook)(*args)

    def fire_on_module(self, hook: str, *args: Any) -> None:
        """Call a hook on the module alone, as one that fires there before the callbacks' turn."""
        self._connect_pending()
        for member in self._members:
            listener = self._listener(hook, member) if member.skip else None
            if listener is not None:
                self._fan_out(hook, (listener,))(*args)

    def fire_after(self, hook: str, implementer: object, *args: Any) -> None:
        """Call a hook on the members that come after one, as a run does that was cut off there."""
        self._fan_out(hook, self._listeners_after(hook, implementer))(*args)

    def has_listeners_after(self, hook: str, implementer: object) -> bool:
        """Return whether `fire_after` would call anything."""
        return bool(self._listeners_after(hook, implementer))

    def _listeners_after(self, hook: str, implementer: object) -> tuple[_Listener, ...]:
        self._connect_pending()
        implementers = [member.implementer for member in self._members]
        # by identity: a callback may define equality
        places = [at for at, candidate in enumerate(implementers) if candidate is implementer]
        later = self._members[places[0] + 1 :] if places else ()
        listeners = (self._listener(hook, member) for member in later)
        return tuple(listener for listener in listeners if listener is not None)

    def implementers(self, hook: str) -> list[object]:
        """Return the objects on which a hook is called, in their order."""
        self._connect_pending()
        members = self._members
        return [
            member.implementer
            for member in members
            if member.listener(hook, self.hooks) is not None
        ]

    def fire_event(
        self,
        event: str,
        leading: tuple[Any, ...],
        arguments: Mapping[str, Any],
        positional: tuple[Any, ...] = (),
    ) -> bool:
        """Call the method named `event`, which is no hook, on every member but the module.

        Returns:
            Whether any member has such a method.
        """
        self._connect_pending()
        listeners: list[_Listener] = []
        for member in self._members:
            # events are for callbacks: a module's method of that name is its own
            if member.skip == 0:
                call = member.event_listener(event, leading, arguments, positional)
                if call is not None:
                    call = self._watched(event, member, call)
                    listeners.append((member.shielded(call, event), 0, member.label))
        self._fan_out(event, tuple(listeners))()
        return bool(listeners)

    def _fan_out(self, hook: str, listeners: tuple[_Listener, ...]) -> Callable[..., None]:
        """Return a function that calls `listeners` in turn.

        It stops at the first error; in an isolated hook it calls every listener, then raises the
        first error, with the others as notes. A `StopTraining` is no error: the remaining listeners
        still have their turn, then `_handle_stop` receives the first of them, unless there is an
        error.
        """
        spec = self.hooks.get(hook)  # None of an event of the user's own
        traits = USUAL if spec is None else spec.traits

        # the names `hook`, `traits`, `listeners` and `label` are read from its frames
        def fire(*args: Any) -> None:
            pending: BaseException | None = None
            for call, skip, label in listeners:
                try:
                    # one frame between loop and callback: nothing is wrapped around the call
                    if (result := call(*args[skip:])) is not None:
                        self._handle_return_value(hook, (call, skip, label), result)
                except BaseException as error:
                    self.end_forked_copy(error)
                    add_note(error, f"raised in hook {hook!r} of {label}")
                    if isinstance(error, StopTraining):
                        pending = pending or error
                    elif not traits.is_isolated:
                        raise
                    elif pending is None or isinstance(pending, StopTraining):
                        pending = error
                    elif error is not pending:  # an `on_exception` may raise the one it received
                        note = f"and then, of the same hook: {error_summary_with_notes(error)}"
                        add_note(pending, note)
            # one comparison where nothing was raised, which is each firing but a few
            if pending is not None:
                if not isinstance(pending, StopTraining):
                    raise pending
                self._handle_stop(hook, pending)

        return fire

    def _listeners(self, members: Sequence[RelayMember]) -> dict[str, list[_Listener]]:
        listeners: dict[str, list[_Listener]] = {}
        for member in members:
            for hook in member.candidates(self.hooks):
                listener = self._listener(hook, member)
                is_early = member.skip and self.hooks[hook].traits.is_module_first
                if listener is not None and not is_early:
                    listeners.setdefault(hook, []).append(listener)
        return listeners

    def _listener(self, hook: str, member: RelayMember) -> _Listener | None:
        call = member.listener(hook, self.hooks)
        if call is None:
            return None
        # the shield is outermost: a monitor must see the error that it takes away
        return member.shielded(self._watched(hook, member, call), hook), member.skip, member.label

    def _watched(
        self, hook: str, member: RelayMember, call: Callable[..., object]
    ) -> Callable[..., object]:
        # the monitors' own members bring the moments, and must not be counted as callbacks
        if any(
            member is monitor.opening or member is monitor.closing for monitor in self._monitors
        ):
            return call
        for monitor in self._monitors:
            call = monitor.watched(hook, member, call)
        return call

    def _connect_pending(self) -> None:
        if self._pending_members is not None:
            self.connect(self._pending_members())

    def _connect_and_fire(self, hook: str, *args: Any) -> None:
        self._connect_pending()
        # by name: the connection has replaced this stub, or taken it away
        self.fire(hook, *args)

    def _handle_return_value(self, hook: str, listener: _Listener, result: object) -> None:
        """End the epoch where the module returned -1 as in Lightning; warn of any other value."""
        if hook not in self.hooks:
            return  # the return value of an event's method is the user's own
        call, skip, label = listener
        # Lightning's protocol of this one hook; no other return value means anything. The type
        # first: `==` of a tensor would be a tensor, whose truth waits for the device
        is_end = hook == "on_train_batch_start" and isinstance(result, int) and result == -1
        if is_end and skip and self.on_end_epoch is not None:
            self.on_end_epoch()
            return
        # a plain function put in a hook's place, such as a lambda, returns its value by chance
        if (hook, label) in self._warned_returns or not (skip or ismethod(call)):
            return
        self._warned_returns.add((hook, label))
        # not the repr of a tensor, which copies its values from the device
        shown = repr(result) if isinstance(result, int) else f"a {type(result).__qualname__}"
        warn(
            f"the hook {hook!r} of {label} returned {shown}: hooks return None, and nothing is "
            "done with it. Call trainer.skip_batch() or trainer.stop(reason) to act on the run, or "
            "return nothing.",
            TrainerHooksWarning,
        )

    def _handle_stop(self, hook: str, request: StopTraining) -> None:
        spec = self.hooks.get(hook)  # None of an event of the user's own
        if self.on_stop is None or (spec is not None and spec.traits.cuts_batch):
            raise request
        self.on_stop(request)


def call_and_note_errors(
    error: BaseException, call: Callable[..., object], *arguments: Any
) -> None:
    """Call a function while `error` is being raised; note its own error on `error`."""
    try:
        call(*arguments)
    except BaseException as other:  # noqa: BLE001 - noted on the error that is raised
        # a hook may raise the very error that it was told of
        if other is not error:
            add_note(error, f"and then, while it was reported: {error_summary_with_notes(other)}")


def error_summary_with_notes(error: BaseException) -> str:
    """Return an error's type, message and notes in one line; this never fails."""
    # from the dict: reading the attribute may run code of the error's class
    notes = error.__dict__.get("__notes__")
    joined = "; ".join(map(str, notes)) if isinstance(notes, list) else ""
    return error_summary(error) + (f" ({joined})" if joined else "")


def current_hook() -> str:
    """Return the innermost hook that is being fired; an empty string if none is."""
    return current_hook_and_label()[0]


def current_hook_and_label() -> tuple[str, str]:
    """Return the innermost hook that is being fired and the label of its member; else two ''.

    They are read from the stack, so that firing a hook costs nothing for it.
    """
    firing = _firing_frame(sys._getframe(1))  # noqa: SLF001 - documented
    if firing is None:
        return "", ""
    return firing.f_locals["hook"], firing.f_locals.get("label", "")


def current_hook_and_callback(frame: FrameType | None) -> str:
    """Return the innermost hook that a thread is in, and whose: `on_fit_start of 'Timer'`.

    Args:
        frame: the thread's innermost frame.
    """
    firing = _firing_frame(frame)
    if firing is None:
        return ""
    return f"{firing.f_locals['hook']} of {firing.f_locals.get('label', 'nobody')}"


def _firing_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code is not _FIRING_CODE:
        frame = frame.f_back
    return frame


def hook_broken_off(error: BaseException) -> str:
    """Return the hook of an epoch that an error has broken off, so that a resume cannot go on.

    A resume calls the hooks of an epoch's end once more, also the listeners that had their turn. Of
    the others it leaves out the listeners that had none. Empty if the error changes no calls.
    """
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        # the outermost: a hook inside of it, as `on_log`, is fired again with it
        if frame.f_code is _FIRING_CODE:
            hook, listeners = frame.f_locals["hook"], frame.f_locals["listeners"]
            is_last = frame.f_locals.get("label") == listeners[-1][2]
            traits: HookTraits = frame.f_locals["traits"]
            is_lost = traits.is_not_repeated and not is_last
            return str(hook) if traits.closes_epoch or is_lost else ""
        traceback = traceback.tb_next
    return ""


_FIRING_CODE = HookRelay()._fan_out("", ()).__code__  # noqa: SLF001
"""The code object of the functions that fire a hook; their frames are found on the stack."""

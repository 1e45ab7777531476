"""Member: one implementer of hooks, as the relay sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import StopTraining
from trainer_hooks.hooks.spec import ALIASES, HOOKS, overrides

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.hooks.spec import HookSpec

__all__ = ["Member"]

_OLDER_NAMES = {new: old for old, new in ALIASES.items()}


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
        supplier: who supplied it, in words.
    """

    implementer: object
    label: str
    skip: int = 0
    routes_events: bool = False
    on_failure: Callable[[str, Exception], None] | None = None
    supplier: str = ""

    def listener(
        self, hook: str, hooks: Mapping[str, HookSpec] = HOOKS
    ) -> Callable[..., object] | None:
        """Return what to call at `hook`, or None if this member does not override it."""
        if self.routes_events:
            receive = self._routed(hook)
            if hook in hooks and not hooks[hook].takes_module:
                return lambda trainer: receive(trainer, None)
            return receive
        if hook in getattr(type(self.implementer), "translated_hooks", ()):
            return self.implementer.translated(hook)  # type: ignore[attr-defined, no-any-return]
        for name in (hook, _OLDER_NAMES.get(hook)):
            if name is not None and overrides(self.implementer, name, hooks):
                return _declared(getattr(self.implementer, name))
        return None

    def event_listener(
        self,
        event: str,
        leading: tuple[Any, ...],
        arguments: Mapping[str, Any],
        positional: tuple[Any, ...] = (),
    ) -> Callable[..., object] | None:
        """Return what to call, without arguments, at an event that is no hook; None if nothing.

        Args:
            event: the event's name, which is the method's.
            leading: the trainer and the module, for a `run_event`.
            arguments: what the method is given, by name.
            positional: what it is given before that, by place.
        """
        if self.routes_events:
            return partial(self._routed(event), *leading, *positional, *arguments.values())
        method = getattr(self.implementer, event, None)
        if method is None or getattr(method, "is_empty_hook", False) is True:
            return None
        return partial(method, *positional, **arguments)

    def shielded(self, call: Callable[..., object], hook: str) -> Callable[..., object]:
        """Return `call`, its errors handed to `on_failure` if this member has one."""
        return call if self.on_failure is None else partial(_shielded, call, self.on_failure, hook)

    def _routed(self, event: str) -> Callable[..., object]:
        return partial(self.implementer.run_event, event)  # type: ignore[attr-defined]


def _declared(method: Callable[..., object]) -> Callable[..., object]:
    """Return a method as it is written: a built-in callback's without what renames keywords."""
    declared = getattr(getattr(method, "__func__", None), "declared_hook", None)
    if declared is None:
        return method
    return MethodType(declared, method.__self__)  # type: ignore[attr-defined]


def _shielded(
    call: Callable[..., object], on_failure: Callable[[str, Exception], None], hook: str, *args: Any
) -> object:
    """Call, and hand an error on to `on_failure` instead of the caller."""
    try:
        return call(*args)
    except StopTraining:
        raise
    except Exception as error:  # noqa: BLE001 - the callback asked that none ends the run
        on_failure(hook, error)
        return None

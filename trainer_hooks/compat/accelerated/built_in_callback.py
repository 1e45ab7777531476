"""BuiltInCallback: pytorch-accelerated's callback for classes that work by our hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from trainer_hooks import callback
from trainer_hooks.compat.accelerated.trainer_callback import EVENT_NAMES, TrainerCallback
from trainer_hooks.hooks.spec import HOOKS, overrides

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["built_in"]


class BuiltInCallback(TrainerCallback):
    """A callback of pytorch-accelerated's package, with both hooks and that system's events.

    Its work is in hooks of trainer_hooks; a subclass may override events beside them.
    """

    translated_hooks: ClassVar[frozenset[str]] = frozenset(HOOKS)
    """Hooks for which `translated` returns the function to call."""

    _own_hooks: ClassVar[dict[str, Callable[..., object]]] = {}
    """The class's own hooks that have the name of an event, by name."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at a hook: the class's own, after that for the events."""
        event = super().translated(hook)
        if hook in self._own_hooks:
            own: Callable[..., object] | None = self._own_hooks[hook].__get__(self)
        else:
            own = getattr(self, hook) if overrides(self, hook) and hook not in EVENT_NAMES else None
        if own is None or event is None or own == event:
            return own or event

        def both(*args: Any) -> None:
            own(*args)
            event(*args)

        return both


K = TypeVar("K", bound="callback.Callback")


def built_in(kind: type[K], package: str = "") -> type[K]:
    """Return a class of trainer_hooks as one of pytorch-accelerated's, a subclass of both.

    Args:
        kind: the class.
        package: the package in which it is found by the same name, if not in its own.
    """
    own = {
        name: getattr(kind, name)
        for name in EVENT_NAMES & HOOKS.keys()
        if getattr(kind, name) is not getattr(callback.Callback, name)
    }
    contents = {
        "__module__": package or kind.__module__,
        "__doc__": kind.__doc__,
        # a search by name, as for a command line, finds the class of trainer_hooks
        "guest_class": kind,
        "_own_hooks": own,
        # a subclass that overrides such an event calls this one by super(), and not the hook
        **{name: getattr(TrainerCallback, name) for name in own},
    }
    return type(kind.__name__, (kind, BuiltInCallback), contents)

"""Events: what may be fired by name, and with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import UsageError, nearest
from trainer_hooks.hooks.spec import ALIASES, HOOKS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trainer_hooks.hooks.spec import HookSpec

__all__ = ["check_event", "positional"]


def check_event(event: str, hooks: Mapping[str, HookSpec], reserved: Collection[str]) -> None:
    """Make sure that an event may be fired by name.

    Args:
        event: its name.
        hooks: the hooks that there are; those that plugins add may be fired by name.
        reserved: names that callbacks have for something else.

    Raises:
        UsageError: it is a hook that trainer_hooks fires itself, means something else, or looks
            like a hook and is none.
    """
    if event in HOOKS or event in ALIASES:
        raise UsageError(
            f"event {event!r} of call_event: is a hook, which the trainer fires itself. Give an "
            "event of your own another name."
        )
    if event.startswith("_") or event in reserved:
        raise UsageError(
            f"event {event!r} of call_event: is no event but a part of every callback. Give an "
            "event of your own another name."
        )
    if event.startswith("on_") and event not in hooks:
        raise UsageError(
            f"event {event!r} of call_event: begins with 'on_' and is no hook."
            f"{nearest(event, hooks)} Give an event of your own a name that does not begin with "
            "'on_', or add a hook: install a package that registers a subclass of Hooks in the "
            "entry-point group 'trainer_hooks.hooks'."
        )


def positional(spec: HookSpec, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what a hook is given after the trainer and the module, in its order.

    Args:
        spec: a hook that a plugin adds.
        arguments: its arguments by name.

    Raises:
        UsageError: they are not the hook's.
    """
    names = spec.arguments[2:]
    if set(names) != set(arguments):
        raise UsageError(
            f"event {spec.name!r} of call_event: was given {sorted(arguments) or 'no arguments'}, "
            f"and its hook, of {spec.supplier}, takes {list(names) or 'none'}. Give exactly those, "
            "by name."
        )
    return tuple(arguments[name] for name in names)

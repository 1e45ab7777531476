"""What can be known of a hook without calling it, derived from the catalogue."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainer_hooks.hooks.catalogue import Hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ALIASES", "HOOKS", "HookSpec", "empty_hook", "overrides"]

ALIASES: Mapping[str, str] = MappingProxyType({"on_configure_sharded_model": "on_configure_model"})
"""Older names that are accepted for a hook."""


@dataclass(frozen=True, slots=True)
class HookSpec:
    """One hook of the catalogue.

    Attributes:
        name: the method's name.
        arguments: names of its arguments, without `self`.
        summary: its docstring, one sentence saying when it fires.
        lightning: its name in Lightning ("same", or "1.x same" where only 1.x releases had it).
        composer: the name of the same moment in MosaicML Composer, or an empty string.
        accelerated: the name of the same moment in pytorch-accelerated, or an empty string.
    """

    name: str
    arguments: tuple[str, ...]
    summary: str
    lightning: str = ""
    composer: str = ""
    accelerated: str = ""

    @property
    def takes_module(self) -> bool:
        """Whether the hook is given the module; the two init hooks come before there is one."""
        return "module" in self.arguments


def _specs() -> dict[str, HookSpec]:
    specs = {}
    for name, hook in vars(Hooks).items():
        if name.startswith("_"):
            continue
        arguments = tuple(inspect.signature(hook).parameters)[1:]
        known_as = getattr(hook, "known_as", ("", "", ""))
        specs[name] = HookSpec(name, arguments, inspect.getdoc(hook) or "", *known_as)
    return specs


HOOKS: Mapping[str, HookSpec] = MappingProxyType(_specs())
"""Every hook by name, in firing order."""


def overrides(implementer: object, hook: str) -> bool:
    """Return whether `implementer` has a `hook` of its own: in its class, or as an attribute."""
    if hook in getattr(implementer, "__dict__", ()):
        return True
    method = getattr(type(implementer), hook, None)
    if method is None or getattr(method, "is_empty_hook", False):
        return False
    return method is not getattr(Hooks, hook, None)


def empty_hook(hook: str) -> Callable[..., None]:
    """Return a method that does nothing and does not count as overriding `hook`.

    It is for implementers that are given other arguments than a callback, as the module is.
    """

    def method(self: object, *args: object) -> None:
        pass

    method.__name__ = hook
    method.__doc__ = HOOKS[hook].summary
    method.__dict__["is_empty_hook"] = True
    return method

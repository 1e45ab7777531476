"""What can be known of a hook without calling it, derived from the catalogue."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainer_hooks.hooks.catalogue import Hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ALIASES", "HOOKS", "HookSpec", "empty_hook", "overrides", "specs_of"]

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
        supplier: the distribution that brought it; empty for the hooks of trainer_hooks itself.
        declared: the empty method that declares it.
    """

    name: str
    arguments: tuple[str, ...]
    summary: str
    lightning: str = ""
    composer: str = ""
    accelerated: str = ""
    supplier: str = ""
    declared: Callable[..., None] | None = None

    @property
    def takes_module(self) -> bool:
        """Whether the hook is given the module; the two init hooks come before there is one."""
        return "module" in self.arguments


def specs_of(catalogue: type[Hooks], supplier: str = "") -> dict[str, HookSpec]:
    """Return what a catalogue's class declares itself, in its order.

    Args:
        catalogue: `Hooks`, or a subclass that adds hooks.
        supplier: the distribution that brought it.
    """
    specs = {}
    for name, hook in vars(catalogue).items():
        if name.startswith("_") or not inspect.isfunction(hook):
            continue
        arguments = tuple(inspect.signature(hook).parameters)[1:]
        lightning, composer, accelerated = getattr(hook, "known_as", ("", "", ""))
        doc = inspect.getdoc(hook) or ""
        specs[name] = HookSpec(
            name, arguments, doc, lightning, composer, accelerated, supplier, hook
        )
    return specs


HOOKS: Mapping[str, HookSpec] = MappingProxyType(specs_of(Hooks))
"""Every hook of trainer_hooks by name, in firing order."""


def overrides(implementer: object, hook: str, hooks: Mapping[str, HookSpec] = HOOKS) -> bool:
    """Return whether `implementer` has a `hook` of its own: in its class, or as an attribute.

    One that is None is switched off.

    Args:
        implementer: a callback or a module.
        hook: the hook's name, or an older name of one.
        hooks: the hooks that there are.
    """
    own = getattr(implementer, "__dict__", {})
    if hook in own:
        return own[hook] is not None
    method = getattr(type(implementer), hook, None)
    # `is True`: a mock that was put in a hook's place says yes to any question
    if method is None or getattr(method, "is_empty_hook", False) is True:
        return False
    spec = hooks.get(hook)
    return spec is None or method is not spec.declared


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

"""HookSpec: the facts about each hook, read from the catalogue; and the test for overrides."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from trainer_hooks._annotations import signature_of
from trainer_hooks._names import class_attribute, names_left_to_user, ours_if_left
from trainer_hooks.hooks.catalogue import USUAL, Hooks, HookTraits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import FunctionType

_Method = TypeVar("_Method", bound="Callable[..., Any]")

ALIASES: Mapping[str, str] = MappingProxyType({"on_configure_sharded_model": "on_configure_model"})
"""Older names that are accepted for a hook, and the hook of each."""

ARGUMENT_ALIASES: Mapping[str, str] = MappingProxyType({"pl_module": "module"})
"""Keywords that the package's own hooks accept for an argument, and the argument of each.

Scripts written for Lightning call `super().on_fit_start(trainer=trainer, pl_module=pl_module)` on
`Callback` and on the built-in callbacks, whose hooks are wrapped when their classes are made.
"""


@dataclass(frozen=True, slots=True)
class HookSpec:
    """One hook of the catalogue.

    Attributes:
        name: the method's name.
        arguments: names of its arguments, without `self`.
        summary: its docstring, one sentence saying when it fires.
        supplier: the distribution that added it; empty for the hooks of trainer_hooks itself.
        declared: the empty method that declares it.
        traits: how it is fired otherwise than most.
    """

    name: str
    arguments: tuple[str, ...]
    summary: str
    supplier: str = ""
    declared: Callable[..., None] | None = None
    traits: HookTraits = USUAL

    @property
    def takes_module(self) -> bool:
        """Whether the hook takes the module; the two init hooks fire before there is one."""
        return "module" in self.arguments


def specs_of(catalogue: type[Hooks], supplier: str = "") -> dict[str, HookSpec]:
    """Return the hooks that a catalogue class declares itself, by name, in its order.

    Args:
        catalogue: `Hooks`, or a subclass that adds hooks.
        supplier: the distribution that the class belongs to.
    """
    # `vars` of the class, not `dir`: what is inherited is another catalogue's, and `dir` sorts
    return {
        name: HookSpec(
            name,
            _arguments_of(hook),
            inspect.getdoc(hook) or "",
            supplier,
            hook,
            vars(hook).get("traits", USUAL),
        )
        for name, hook in vars(catalogue).items()
        if not name.startswith("_") and inspect.isfunction(hook)
    }


def _arguments_of(hook: FunctionType) -> tuple[str, ...]:
    """Return the names of a function's arguments but the first."""
    code = hook.__code__
    varies = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    # a decorator may have set attributes by which the function has another signature
    if varies or vars(hook).keys() - {"traits"}:
        return tuple(signature_of(hook).parameters)[1:]
    # of each of our hooks `inspect.signature` would take as long as importing five modules
    return code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]


HOOKS: Mapping[str, HookSpec] = MappingProxyType(specs_of(Hooks))
"""Every hook of trainer_hooks by name, in firing order."""

EVENT_NAMES: Mapping[str, str] = MappingProxyType(
    {name: spec.traits.event for name, spec in HOOKS.items() if spec.traits.event}
)
"""The second name of each hook that has one in `trainer_hooks.Event`, in firing order."""


def overrides(implementer: object, hook: str, hooks: Mapping[str, HookSpec] = HOOKS) -> bool:
    """Return whether an object overrides a hook, in its class or as an instance attribute.

    Args:
        implementer: a callback or a module. An attribute that is None switches the hook off.
        hook: the hook's name, or an older name of one.
        hooks: all known hooks by name.
    """
    return bool(overridden(implementer, hooks, (hook,)))


def overridden(
    implementer: object, hooks: Mapping[str, HookSpec] = HOOKS, names: Iterable[str] = ()
) -> list[str]:
    """Return the hooks that an object overrides, older names last: see `overrides`.

    Args:
        implementer: a callback or a module.
        hooks: all known hooks by name.
        names: the hooks to look at, in place of all and their older names.
    """
    # one loop for all hooks of an object: each run's start has it for each callback, several times
    kind = type(implementer)
    # not `hasattr` of the instance: a foreign class's `__getattr__` may answer any name
    attributes = getattr(implementer, "__dict__", {})
    left = names_left_to_user(kind)
    overriding = []
    for name in names or (*hooks, *ALIASES):
        # under a name that is left to the user it may have anything, for another framework
        if name in attributes and name not in left:
            if attributes[name] is not None:
                overriding.append(name)
            continue
        method = class_attribute(kind, name) if name in left else getattr(kind, name, None)
        if method is None or is_empty_hook(method):
            continue
        # an older name has no spec: a class that defines it overrides the hook
        spec = hooks.get(name)
        if spec is None or method is not spec.declared:
            overriding.append(name)
    return overriding


def empty_hook(hook: str) -> Callable[..., None]:
    """Return a method that does nothing and does not count as overriding `hook`.

    It is for classes whose hooks take other arguments than a callback's, as the module's do.
    """

    def method(self: object, *args: object) -> None:
        pass

    # a function of its own for each hook: name and docstring are the hook's
    method.__name__ = hook
    method.__doc__ = HOOKS[hook].summary
    return mark_empty(method)


# a mark is or holds the function that it is set on: functools.wraps copies the attributes of a
# function to a wrapper, which does something, and which has to be called


def mark_empty(method: _Method) -> _Method:
    """Declare that a method does nothing, so that it does not count as overriding a hook."""
    method.__dict__["is_empty_hook"] = method
    return method


def is_empty_hook(method: object) -> bool:
    """Whether a method, bound or not, was declared by `mark_empty`."""
    function = getattr(method, "__func__", method)
    return getattr(function, "is_empty_hook", None) is function


def mark_declared(hook: _Method, declared: Callable[..., Any]) -> _Method:
    """Declare that a function only adapts the arguments of another one, which the relay calls."""
    hook.__dict__["declared_hook"] = (hook, declared)
    return hook


def declared_hook(hook: object) -> Callable[..., Any] | None:
    """Return the function that `mark_declared` named for a function; None without one."""
    mark = getattr(hook, "declared_hook", None)
    return mark[1] if isinstance(mark, tuple) and mark[0] is hook else None


def keeps_optimizers(method: _Method) -> _Method:
    """Declare that a hook changes no optimizer, its groups or schedulers.

    A resume restores the optimizers after the hooks that may change them, and keeps a copy of the
    module's weights until then. A hook that is declared so needs neither.
    """
    method.__dict__["keeps_optimizers"] = True
    return method


def may_change_optimizers(implementer: object, hook: str) -> bool:
    """Return whether an object's hook may change optimizers, as one without a declaration may."""
    # the method that is called: a subclass's own hook is not declared by its base class
    method = getattr(ours_if_left(implementer, hook), hook, None)
    # `is True`: a Mock in a hook's place answers every attribute with another, truthy Mock
    return getattr(method, "keeps_optimizers", False) is not True

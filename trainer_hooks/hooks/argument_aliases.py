"""Lightning's keyword `pl_module` for the module argument of the package's own hooks.

Scripts written for Lightning call `super().on_fit_start(trainer=trainer, pl_module=pl_module)` on
`Callback` and on the built-in callbacks. Their hooks are wrapped when the classes are made, which
is why this stands beside the catalogue and not with the code for Lightning.
"""

from __future__ import annotations

from functools import wraps
from inspect import isfunction
from typing import TYPE_CHECKING, Any

from trainer_hooks.hooks.spec import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["accept_argument_aliases", "add_empty_hooks"]

_ALIASES = {"pl_module": "module"}
"""Accepted keywords, and the argument that each stands for."""


def accept_argument_aliases(kind: type) -> None:
    """Wrap the hooks that a class defines itself, so that they accept the aliases as keywords.

    The relay calls the method as it was written (`declared_hook`), so that a run pays for no
    wrapper.
    """
    for name in HOOKS.keys() & vars(kind).keys():
        method, spec = vars(kind)[name], HOOKS[name]
        # a class that switches off its base's hook does so with the catalogue's own empty method,
        # which must stay that very object: `overrides` compares by identity
        is_own = isfunction(method) and method is not spec.declared
        if is_own and spec.takes_module and not hasattr(method, "declared_hook"):
            setattr(kind, name, _accepting_aliases(method))


def add_empty_hooks(kind: type) -> None:
    """Give a class an empty method for each hook, which accepts the aliases as keywords."""
    for name, spec in HOOKS.items():
        if spec.takes_module and spec.declared is not None:
            method = _accepting_aliases(spec.declared)
            method.__dict__["is_empty_hook"] = True
            setattr(kind, name, method)


def _accepting_aliases(declared: Callable[..., None]) -> Callable[..., None]:
    @wraps(declared)
    def hook(self: object, *args: Any, **kwargs: Any) -> None:
        for alias, name in _ALIASES.items():
            if alias in kwargs:
                kwargs[name] = kwargs.pop(alias)
        declared(self, *args, **kwargs)

    hook.__dict__["declared_hook"] = declared
    return hook

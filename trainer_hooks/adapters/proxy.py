"""Proxies: objects handed to foreign code in place of ours, under the names of its framework."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from trainer_hooks.hooks.relay import current_hook_and_callback

__all__ = ["PartialProxy", "Proxy", "missing_attribute"]


class Proxy:
    """Pass every attribute on to another object, except those that a subclass defines.

    A subclass sets `_framework` for a better error: an attribute that neither it nor the target has
    is reported as one of that framework without a counterpart here.

    Args:
        target: the object to which attributes are passed on.

    Attributes:
        proxy_target: that object.
    """

    __slots__ = ("__weakref__", "proxy_target")

    # with an underscore, so that they hide no attribute of a target
    _framework: ClassVar[str] = ""
    """The framework whose names are offered, as its users write it."""

    _foreign_name: ClassVar[str] = "Trainer"
    """The object's name in that framework, for errors, as `Trainer.fit_loop`."""

    def __init__(self, target: Any) -> None:
        # not `self.proxy_target = ...`: __setattr__ would set the attribute on the target
        object.__setattr__(self, "proxy_target", target)

    def __getattr__(self, name: str) -> Any:
        target = self.proxy_target
        try:
            return getattr(target, name)
        except AttributeError as error:
            # a property that the target's class has and that failed is a fault of its own
            if not self._framework or error.name != name or hasattr(type(target), name):
                raise
            raise self._proxy_error(name) from None

    def _proxy_error(self, name: str) -> AttributeError:
        """Return the error for a name that neither the proxy nor its target has."""
        return missing_attribute(self._foreign_name, self._framework, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = getattr(type(self), name, None)
        if isinstance(own, property):
            object.__setattr__(self, name, value)
        else:
            setattr(self.proxy_target, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.proxy_target, name)

    def __dir__(self) -> list[str]:
        """Return the names of the proxy and of its target."""
        return sorted({*object.__dir__(self), *dir(self.proxy_target)})

    def __repr__(self) -> str:
        """Show the target."""
        return repr(self.proxy_target)


class PartialProxy:
    """Offer a few attributes of a part of a foreign trainer; any other name is an error.

    Args:
        trainer: the Trainer that the values are read from.
    """

    _framework: ClassVar[str]
    """The framework whose names are offered, as its users write it."""

    _foreign_name: ClassVar[str]
    """The part's name in that framework, for errors."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def __getattr__(self, name: str) -> Any:
        raise missing_attribute(self._foreign_name, self._framework, name)


def missing_attribute(owner: str, framework: str, name: str) -> AttributeError:
    """Return the error for an attribute of a foreign framework that has no counterpart here.

    Where a hook is running, the message names the hook and the callback that read the attribute.

    Args:
        owner: the object that would have it there, as `Trainer.fit_loop`.
        framework: the framework, as its users write it.
        name: the attribute.
    """
    where = current_hook_and_callback(sys._getframe(1))  # noqa: SLF001 - documented
    asked = f", which {where} looked for," if where else ""
    return AttributeError(
        f"{name!r} of {framework}'s {owner}{asked} has no counterpart in trainer_hooks. Run the "
        f"callback in {framework}'s own Trainer, or override the method of it that needs this.",
        name=name,
    )

"""Proxies: objects handed to foreign code in place of ours, under the names of its framework."""

from __future__ import annotations

import copy
import sys
from types import MemberDescriptorType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from trainer_hooks.hooks.relay import current_hook_and_callback


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
        self.proxy_target = target

    def __getattr__(self, name: str) -> Any:
        target = self.proxy_target
        try:
            return getattr(target, name)
        except AttributeError as error:
            # a property that the target's class has and that failed is a fault of its own
            if not self._framework or error.name != name or hasattr(type(target), name):
                raise
            raise missing_attribute(self._foreign_name, self._framework, name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        # the proxy's own properties and slots; everything else is the target's
        if isinstance(getattr(type(self), name, None), property | MemberDescriptorType):
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


_MODULE_CLASSES: WeakKeyDictionary[type, type] = WeakKeyDictionary()
"""The module's class of each class that `ModuleProxyType` made; as an attribute it would hide one
of the module's."""


class ModuleProxyType(type):
    """Give each proxy a class of its own that stands for the module's: `type(pl_module)(width)`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a proxy, or of a proxy's own class another module."""
        if cls in _MODULE_CLASSES:
            return _MODULE_CLASSES[cls](*args, **kwargs)
        kind = type(args[0])
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__slots__": ()}
        proxy_class: Any = type.__new__(type(cls), kind.__name__, (cls,), names)
        proxy = type.__call__(proxy_class, *args, **kwargs)
        _MODULE_CLASSES[proxy_class] = kind
        return proxy

    def __getattr__(cls, name: str) -> Any:
        if cls not in _MODULE_CLASSES:
            raise AttributeError(name)
        return getattr(_MODULE_CLASSES[cls], name)

    def __instancecheck__(cls, instance: Any) -> bool:
        """Take modules of the class as instances of a proxy's own class."""
        module_class = _MODULE_CLASSES.get(cls)
        is_proxy = super().__instancecheck__(instance)
        return is_proxy or (module_class is not None and isinstance(instance, module_class))


class ModuleProxy(metaclass=ModuleProxyType):
    """Pass everything on to a module, and be an instance of the foreign class of modules as well.

    It is no `Proxy`, whose `__setattr__` would keep properties of its own from the module.

    Args:
        module: the module.

    Attributes:
        proxy_target: that module.
    """

    __slots__ = ("__weakref__", "proxy_target")

    proxy_target: Any

    def __init__(self, module: Any) -> None:
        object.__setattr__(self, "proxy_target", module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.proxy_target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.proxy_target, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.proxy_target, name)

    def __dir__(self) -> list[str]:
        """Return the module's names."""
        return dir(self.proxy_target)

    # Python looks up such methods on the class and never asks __getattr__ for them
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.proxy_target(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        # type(), since isinstance() believes the __class__ of another class that subclasses give
        return self.proxy_target is (other.proxy_target if type(other) is type(self) else other)

    def __hash__(self) -> int:
        return hash(self.proxy_target)

    def __repr__(self) -> str:
        """Show the module."""
        return repr(self.proxy_target)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # Lightning's StochasticWeightAveraging copies the module that it is handed
        return copy.deepcopy(self.proxy_target, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the module in the proxy's place."""
        # the file holds no class that was made at run time, and loads without an adapter
        return _unpickled, (self.proxy_target,)


def _unpickled(module: Any) -> Any:
    return module


_JOINED_CLASSES: WeakKeyDictionary[type, dict[type, type]] = WeakKeyDictionary()
"""The classes made by `joined_class`, by the module's class and by the foreign one."""


def joined_class(module_class: type, foreign_class: type) -> type:
    """Return a class that is both the module's and the foreign one.

    A proxy gives it as its `__class__`, which `isinstance` asks for where `type()` is no subclass.
    """
    classes = _JOINED_CLASSES.setdefault(module_class, {})
    if foreign_class not in classes:
        names = {"__module__": module_class.__module__}
        classes[foreign_class] = type(module_class.__name__, (module_class, foreign_class), names)
    return classes[foreign_class]


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

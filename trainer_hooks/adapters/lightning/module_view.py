"""ModuleView: a module under the names of a LightningModule."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from trainer_hooks.adapters.views import View

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ModuleView", "unwrapped"]

_KINDS: WeakKeyDictionary[type, dict[type, type]] = WeakKeyDictionary()
"""What a module's view says that its class is, by the module's class and Lightning's."""


def unwrapped(item: Any) -> Any:
    """Return what a view stands for; anything else as it is."""
    return item.view_target if isinstance(item, View) or type(item) is ModuleView else item


class ModuleView:
    """A module under the names of a LightningModule; all but a few are passed on.

    Args:
        module: the module.
        trainer: the view of its trainer.
    """

    __slots__ = ("__weakref__", "view_target", "view_trainer")

    view_target: Any
    view_trainer: Any

    def __init__(self, module: nn.Module, trainer: Any) -> None:
        object.__setattr__(self, "view_target", module)
        object.__setattr__(self, "view_trainer", trainer)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return _kind_of(type(self.view_target), self.view_trainer._home)  # noqa: SLF001

    @property
    def trainer(self) -> Any:
        """The view of the trainer."""
        return self.view_trainer

    _trainer = trainer

    def all_gather(self, data: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Return tensors of all processes; in one process the data as they are, as there."""
        if self.view_trainer.view_target.world_size == 1:
            return data
        return self.view_target.all_gather(data, group, sync_grads)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.view_target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.view_target, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.view_target, name)

    def __dir__(self) -> list[str]:
        """Return the module's names."""
        return dir(self.view_target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.view_target(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.view_target is unwrapped(other)

    def __hash__(self) -> int:
        return hash(self.view_target)

    def __repr__(self) -> str:
        """Show the module."""
        return repr(self.view_target)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.view_target, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the module."""
        return unwrapped, (self.view_target,)


def _kind_of(kind: type, home: str) -> type:
    """Return a class that is both the module's and a LightningModule, for `isinstance` alone."""
    package = sys.modules.get(home)
    if package is None:
        return kind
    known = _KINDS.setdefault(kind, {})
    theirs: type = package.LightningModule
    if theirs not in known:
        known[theirs] = type(kind.__name__, (kind, theirs), {"__module__": kind.__module__})
    return known[theirs]

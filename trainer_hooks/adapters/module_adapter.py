"""ModuleAdapter: the base of adapters of other frameworks' modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from typing import Self

_SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""Attributes of `nn.Module` that hold its tensors; adapter and foreign module share them."""


def take_class_name(adapter: Any, foreign: object) -> None:
    """Give an adapter a class with the name of the foreign object's, for messages and reports."""
    kind = type(foreign)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    adapter.__class__ = type(kind.__name__, (type(adapter),), names)


class ModuleAdapter(Module):
    """Adapter that lets a module of another framework be trained; its tensors are the module's own.

    Args:
        foreign: the foreign module. Its parameters, buffers and submodules are shared, so that the
            names in a checkpoint are the same.
    """

    # the foreign module is read through vars(): nn.Module would register it as a submodule, and its
    # parameters would get another prefix

    def __init__(self, foreign: Any) -> None:
        vars(self)["foreign_module"] = foreign
        mode = foreign.training
        super().__init__()  # sets `training`, which is the foreign module's here
        foreign.training = mode
        for name in _SHARED:
            # the same dicts and no copies, so that a layer that is added later is a part of both
            vars(self)[name] = vars(foreign)[name]
        take_class_name(self, foreign)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the foreign module, with its own forward hooks."""
        return vars(self)["foreign_module"](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            # how Python copies the foreign module is not how to copy this
            if name.startswith("__"):
                raise
            return getattr(vars(self)["foreign_module"], name)

    @property
    def training(self) -> bool:
        """Whether the foreign module is in training mode."""
        return bool(vars(self)["foreign_module"].training)

    @training.setter
    def training(self, mode: bool) -> None:
        vars(vars(self)["foreign_module"])["training"] = mode

    def train(self, mode: bool = True) -> Self:
        """Put the foreign module into training or evaluation mode."""
        # nn.Module's own would go over the children and leave out a train() that the user overrides
        vars(self)["foreign_module"].train(mode)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move the foreign module, which may note its device."""
        vars(self)["foreign_module"].to(*args, **kwargs)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the foreign module's weights."""
        return vars(self)["foreign_module"].state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load the foreign module's weights."""
        return vars(self)["foreign_module"].load_state_dict(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle as `__reduce__` of a subclass says."""
        return self.__reduce__()

    def __repr__(self) -> str:
        """Show the foreign module."""
        return repr(vars(self)["foreign_module"])

"""HostedModule: what stands for another framework's module derives from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.module import Module

if TYPE_CHECKING:
    from typing import Self

__all__ = ["HostedModule"]

_SHARED = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
"""What a module shares with the one that stands for it: all that can be trained and saved."""


class HostedModule(Module):
    """Stand for a module of another framework, the guest, whose tensors are its own.

    Args:
        guest: the module. Its parameters, buffers and parts are shared, so that the names in a
            checkpoint are the same.
    """

    def __init__(self, guest: Any) -> None:
        vars(self)["module_guest"] = guest
        mode = guest.training
        super().__init__()
        guest.training = mode
        for name in _SHARED:
            vars(self)[name] = vars(guest)[name]
        kind = type(guest)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        self.__class__ = type(kind.__name__, (type(self),), names)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the guest, with its own hooks."""
        return vars(self)["module_guest"](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):  # how Python copies the guest is not how to copy this
                raise
            return getattr(vars(self)["module_guest"], name)

    @property
    def training(self) -> bool:
        """Whether the guest is in the mode for training."""
        return bool(vars(self)["module_guest"].training)

    @training.setter
    def training(self, mode: bool) -> None:
        vars(vars(self)["module_guest"])["training"] = mode

    def train(self, mode: bool = True) -> Self:
        """Put the guest into a mode."""
        vars(self)["module_guest"].train(mode)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move the guest, which notes where it is."""
        vars(self)["module_guest"].to(*args, **kwargs)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the guest's weights."""
        return vars(self)["module_guest"].state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load the guest's weights."""
        return vars(self)["module_guest"].load_state_dict(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle as `__reduce__` says."""
        return self.__reduce__()

    def __repr__(self) -> str:
        """Show the guest."""
        return repr(vars(self)["module_guest"])

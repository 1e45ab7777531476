"""A loader as a message shows it: short, whatever it holds."""

from __future__ import annotations

from reprlib import Repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["shown"]


class _Shown(Repr):
    """`repr`, cut short; of a tensor its shape. `Repr` finds the methods by the types' names."""

    def __init__(self) -> None:
        super().__init__()
        self.maxother = self.maxstring = 120
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 2
        self.maxlevel = 3

    def repr_Tensor(self, tensor: Tensor, _level: int) -> str:  # noqa: N802 - by the type's name
        """Return the tensor's shape, such as `Tensor(8, 32)`."""
        return f"Tensor({', '.join(map(str, tensor.shape))})"


_SHOWN = _Shown()


def shown(loader: Any) -> str:
    """Return what a loader is, short enough for a message."""
    return _SHOWN.repr(loader)

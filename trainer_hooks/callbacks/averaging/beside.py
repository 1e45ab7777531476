"""AverageBeside: an average beside a module's weights, which changes places with them at times."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.callbacks.averaging.average import Average
    from trainer_hooks.module import Module

__all__ = ["AverageBeside"]


class AverageBeside:
    """Keep an average of the module of a training.

    Args:
        make: returns a new average of a module.

    Attributes:
        average: the average; None before there is a module.
        is_exchanged: whether the module has the averaged weights now.

    State: the averaged weights, and what else the average knows.
    """

    def __init__(self, make: Callable[[Module], Average]) -> None:
        self._make = make
        self.forget()

    def forget(self) -> None:
        """Forget an earlier training."""
        self.average: Average | None = None
        self.is_exchanged = False
        self._owner: Module | None = None
        self._pending: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the average; nothing before there is one."""
        if self._pending is not None:
            return dict(self._pending)
        if self.average is None:
            return {}
        weights, extra = dict(self.average.state_dict()), self.average.extra_state()
        return {"average": weights, "average_extra": extra}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep an average until there is a copy of the module to put it into."""
        names = ("average", "average_extra")
        self._pending = {n: state_dict[n] for n in names} if "average" in state_dict else None

    def copy(self, module: Module) -> Average:
        """Copy a module that is whole and where it is to be, unless it was; return the average."""
        if self.average is None or self._owner is not module:
            self._owner, self.average = module, self._make(module)
        if self._pending is not None:
            self.average.load(self._pending["average"], self._pending["average_extra"])
            self._pending = None
        return self.average

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the module have the averaged weights, and then its own again, bit for bit."""
        average, module = self.average, self._owner
        if average is None or module is None or not average.count or self.is_exchanged:
            yield
            return
        average.exchange(module)
        self.is_exchanged = True
        try:
            yield
        finally:
            average.exchange(module)
            self.is_exchanged = False

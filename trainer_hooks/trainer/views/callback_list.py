"""`trainer.callbacks`: a list whose changes are the trainer's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, SupportsIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainer_hooks.callback import Callback

__all__ = ["CallbackList"]


class CallbackList(list["Callback"]):
    """The callbacks that take part, in order; what is put in or taken out takes part or does not.

    A place in the list cannot be chosen: bands decide, and within one the order of coming.

    Args:
        callbacks: those that take part.
        add: registers one more.
        remove: takes one out.
    """

    def __init__(
        self,
        callbacks: Iterable[Callback],
        add: Callable[[Callback], None],
        remove: Callable[[Callback], None],
    ) -> None:
        super().__init__(callbacks)
        self._add, self._remove = add, remove

    def append(self, callback: Callback) -> None:
        """Register one more."""
        self._add(callback)
        super().append(callback)

    def extend(self, callbacks: Iterable[Callback]) -> None:
        """Register several more."""
        for callback in callbacks:
            self.append(callback)

    def insert(self, index: SupportsIndex, callback: Callback) -> None:
        """Register one more, whose place its band decides."""
        self._add(callback)
        super().insert(index, callback)

    def remove(self, callback: Callback) -> None:
        """Take one out."""
        self._remove(callback)
        super().remove(callback)

    def pop(self, index: SupportsIndex = -1) -> Callback:
        """Take out and return one."""
        callback = self[index]
        self.remove(callback)
        return callback

    def clear(self) -> None:
        """Take all out."""
        for callback in tuple(self):
            self.remove(callback)

    def replace(self, callbacks: Iterable[Callback]) -> None:
        """Let these take part and no others."""
        wanted = tuple(callbacks)
        for callback in tuple(self):
            if not any(callback is one for one in wanted):
                self.remove(callback)
        for callback in wanted:
            if not any(callback is one for one in self):
                self.append(callback)

    def __setitem__(self, index: Any, value: Any) -> None:
        changed = list(self)
        changed[index] = value
        self.replace(changed)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        for callback in self[index] if isinstance(index, slice) else [self[index]]:
            self.remove(callback)

    def __iadd__(self, callbacks: Iterable[Callback]) -> Self:  # type: ignore[override, misc]
        self.extend(callbacks)
        return self

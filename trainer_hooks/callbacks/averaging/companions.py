"""Companions: callbacks that take part in something that may be broken off."""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from trainer_hooks.connector import Entry, Roster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainer_hooks.callback import Callback

__all__ = ["Companions"]


class Companions:
    """Keep the states of callbacks, as they were before what is under way.

    Args:
        callbacks: the callbacks.

    State: theirs, by their keys.

    Raises:
        CallbackError: two that have a state have one key.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        Roster(Entry(callback, "user") for callback in callbacks)  # no two with one key
        self._callbacks = callbacks
        self.forget()

    def forget(self) -> None:
        """Forget what was under way."""
        self._before: dict[str, dict[str, Any]] | None = None

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Put their states back if what is done is broken off."""
        before = self._before = deepcopy(self._states())
        try:
            yield
        except BaseException:
            self.load_state_dict(before)
            raise
        finally:
            self._before = None

    def state_dict(self) -> dict[str, Any]:
        """Return their states; amid an attempt, those of before."""
        return self._before or self._states()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put states back."""
        for callback in self._callbacks:
            if callback.is_stateful and callback.state_key in state_dict:
                callback.load_state_dict(state_dict[callback.state_key])

    def _states(self) -> dict[str, dict[str, Any]]:
        return {one.state_key: one.state_dict() for one in self._callbacks if one.is_stateful}

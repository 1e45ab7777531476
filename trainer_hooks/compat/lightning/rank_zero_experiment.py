"""What the `experiment` of a logger of one's own is decorated with."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from trainer_hooks import rank_zero_only
from trainer_hooks.loggers import DummyLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.loggers import Logger

__all__ = ["rank_zero_experiment"]


def rank_zero_experiment(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `experiment` as it is in the first process; to others it takes any call and is idle.

    Args:
        fn: makes or returns the object that writes.
    """
    in_first = rank_zero_only(fn)

    @wraps(fn)
    def experiment(self: Logger) -> Any:
        found = in_first(self)
        return DummyLogger().experiment if found is None else found

    return experiment

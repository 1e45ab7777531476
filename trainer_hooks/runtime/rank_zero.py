"""What the first of several processes alone does."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trainer_hooks._log import log, warn
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.runtime.topology import read_topology

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["rank_zero_info", "rank_zero_only", "rank_zero_warn"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def rank_zero_only(function: Callable[_P, _R]) -> Callable[_P, _R | None]:
    """Return a function that does nothing, and returns None, in all processes but the first."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        return function(*args, **kwargs) if read_topology().is_global_zero else None

    return call


@rank_zero_only
def rank_zero_info(message: str, *args: Any) -> None:
    """Log at level INFO in the first process; `args` are put into the message as by `logging`."""
    log.info(message, *args)


@rank_zero_only
def rank_zero_warn(message: str, category: type[Warning] = TrainerHooksWarning) -> None:
    """Warn in the first process, at the line that calls."""
    warn(message, category)
